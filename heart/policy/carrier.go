package policy

import "math/bits"

// carrier is a flow over the open links of a transport problem, kept at its
// maximum while links are closed and opened one by one. Rows are callers,
// columns callees, links have no capacity. Links are rows of bits, so that a
// search looks at 64 of them at a time: a problem of a thousand groups a side
// has a million links.
type carrier struct {
	rows, cols     int
	rowWords       int      // words of a set of rows
	colWords       int      // words of a set of columns
	open           []uint64 // by row: the columns it may send to
	used           []uint64 // by column: the rows that do send to it
	flow           []int64  // row-major
	spare          []int64  // supply of a row that is not sent
	need           []int64  // demand of a column that is not met
	short          int64    // sum of spare, which is the sum of need
	unseenRows     []uint64 // by the last search, as are the following
	unseenCols     []uint64
	viaRow, viaCol []int32 // row before a column, column before a row; -1 = none
	queue          []int32
}

// newCarrier has all links open and no flow. Supply and demand have one sum.
func newCarrier(supply, demand []int64) *carrier {
	c := &carrier{rows: len(supply), cols: len(demand)}
	c.rowWords, c.colWords = (c.rows+63)/64, (c.cols+63)/64
	c.open = make([]uint64, c.rows*c.colWords)
	c.used = make([]uint64, c.cols*c.rowWords)
	c.flow = make([]int64, c.rows*c.cols)
	c.spare, c.need = append(c.spare, supply...), append(c.need, demand...)
	c.unseenRows, c.unseenCols = make([]uint64, c.rowWords), make([]uint64, c.colWords)
	c.viaRow, c.viaCol = make([]int32, c.cols), make([]int32, c.rows)
	for i := range c.rows {
		fillBits(c.open[i*c.colWords:(i+1)*c.colWords], c.cols)
		c.short += supply[i]
	}
	return c
}

// fillBits sets the first n bits.
func fillBits(set []uint64, n int) {
	for w := range set {
		set[w] = ^uint64(0)
		if left := n - 64*w; left < 64 {
			set[w] = 1<<left - 1
		}
	}
}

func (c *carrier) isOpen(l link) bool {
	return c.open[int(l.row)*c.colWords+int(l.col)/64]>>(l.col%64)&1 == 1
}

// send puts units on an open link, which may be negative.
func (c *carrier) send(row, col int, units int64) {
	x := &c.flow[row*c.cols+col]
	*x += units
	c.setUsed(row, col, *x > 0)
}

func (c *carrier) setUsed(row, col int, used bool) {
	set := &c.used[col*c.rowWords+row/64]
	if used {
		*set |= 1 << (row % 64)
	} else {
		*set &^= 1 << (row % 64)
	}
}

func (c *carrier) isUsed(row, col int) bool {
	return c.used[col*c.rowWords+row/64]>>(row%64)&1 == 1
}

// fill sends what it can over open links in the order given from last to
// first, then over whole paths.
func (c *carrier) fill(links []link) {
	for k := len(links) - 1; k >= 0 && c.short > 0; k-- {
		l := links[k]
		if units := min(c.spare[l.row], c.need[l.col]); units > 0 && c.isOpen(l) {
			c.deliver(int(l.row), int(l.col), units)
			c.send(int(l.row), int(l.col), units)
		}
	}
	c.maximise()
}

// deliver books units from a row's spare to a column's need.
func (c *carrier) deliver(row, col int, units int64) {
	c.spare[row] -= units
	c.need[col] -= units
	c.short -= units
}

// drop shuts a link that carries nothing.
func (c *carrier) drop(l link) {
	c.open[int(l.row)*c.colWords+int(l.col)/64] &^= 1 << (l.col % 64)
}

// close shuts a link if the others can carry all that it carries now.
func (c *carrier) close(l link) bool {
	c.drop(l)
	row, col := int(l.row), int(l.col)
	if !c.isUsed(row, col) {
		return true
	}
	units := c.flow[row*c.cols+col]
	c.send(row, col, -units)
	c.deliver(row, col, -units)
	if c.maximise(); c.short == 0 {
		return true
	}
	// What is short is spare in this very row and needed in this very column.
	c.open[row*c.colWords+col/64] |= 1 << (l.col % 64)
	units = c.short
	c.deliver(row, col, units)
	c.send(row, col, units)
	return false
}

// reopen opens a link again and sends over it what was short. It must follow a
// search that failed: the link helps only if it leaves what that search saw.
func (c *carrier) reopen(l link) {
	c.open[int(l.row)*c.colWords+int(l.col)/64] |= 1 << (l.col % 64)
	rowSeen := c.unseenRows[l.row/64]>>(l.row%64)&1 == 0
	colSeen := c.unseenCols[l.col/64]>>(l.col%64)&1 == 0
	if rowSeen && !colSeen {
		c.maximise()
	}
}

// maximise sends over augmenting paths until nothing is short or none is left.
func (c *carrier) maximise() {
	for c.short > 0 {
		col := c.search()
		if col < 0 {
			return
		}
		c.augment(col)
	}
}

// search walks breadth first from the rows with spare supply, over open links
// to columns and back over used ones, and returns the first column in need,
// or -1.
func (c *carrier) search() int {
	fillBits(c.unseenRows, c.rows)
	fillBits(c.unseenCols, c.cols)
	c.queue = c.queue[:0]
	for i, spare := range c.spare {
		if spare > 0 {
			c.enqueue(i, -1)
		}
	}
	for k := 0; k < len(c.queue); k++ {
		row := int(c.queue[k])
		open := c.open[row*c.colWords : (row+1)*c.colWords]
		for w, unseen := range c.unseenCols {
			found := open[w] & unseen
			c.unseenCols[w] = unseen &^ found
			for ; found != 0; found &= found - 1 {
				col := 64*w + bits.TrailingZeros64(found)
				c.viaRow[col] = int32(row)
				if c.need[col] > 0 {
					return col
				}
				c.enqueueUsers(col)
			}
		}
	}
	return -1
}

func (c *carrier) enqueueUsers(col int) {
	for w, users := range c.used[col*c.rowWords : (col+1)*c.rowWords] {
		for users &= c.unseenRows[w]; users != 0; users &= users - 1 {
			c.enqueue(64*w+bits.TrailingZeros64(users), int32(col))
		}
	}
}

func (c *carrier) enqueue(row int, via int32) {
	c.unseenRows[row/64] &^= 1 << (row % 64)
	c.viaCol[row] = via
	c.queue = append(c.queue, int32(row))
}

// augment sends what fits along the path that the last search found to col.
func (c *carrier) augment(col int) {
	units := c.need[col]
	row, at := int(c.viaRow[col]), col
	for c.viaCol[row] >= 0 {
		at = int(c.viaCol[row])
		units = min(units, c.flow[row*c.cols+at])
		row = int(c.viaRow[at])
	}
	units = min(units, c.spare[row])
	c.deliver(row, col, units)
	for at = col; ; {
		row = int(c.viaRow[at])
		c.send(row, at, units)
		if c.viaCol[row] < 0 {
			return
		}
		at = int(c.viaCol[row])
		c.send(row, at, -units)
	}
}
