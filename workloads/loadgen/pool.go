package loadgen

import "iter"

// pool holds the connections of an open schedule that are free and the
// requests that wait for one, each in the order of their coming: so all
// connections, and the replicas behind them, get their turn.
type pool struct {
	open    int // connections open or being opened
	pending int // requests that came due and have not ended
	free    queue[*slot]
	waiting queue[request]
}

// take gives the slot that has been free the longest; nil if there is none.
func (p *pool) take() *slot {
	for p.free.len() > 0 {
		if s := p.free.pop(); !s.dead {
			return s
		}
	}
	return nil
}

// queue is first in, first out.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(v T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // rather move than grow
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// pop takes the first item of a queue that has one.
func (q *queue[T]) pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// all goes through the queue without taking anything.
func (q *queue[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, v := range q.items[q.head:] {
			if !yield(v) {
				return
			}
		}
	}
}
