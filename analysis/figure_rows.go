package analysis

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// dotRow is a row of a dot figure. Its tracks are thin lines under each other.
type dotRow struct {
	name   string
	colour color.RGBA
	tracks [][]dot
	note   string // at the right end
}

// dot is a value with an optional reach (an interval or a span); lo and hi are
// NaN without one.
type dot struct {
	x, lo, hi float64
	hollow    bool
}

func plainDot(x float64) dot { return dot{x: x, lo: math.NaN(), hi: math.NaN()} }

// rowAxes is how the horizontal axis of a dot figure is set.
type rowAxes struct {
	label      string
	log        bool
	ticks      plot.Ticker
	xMin, xMax *float64
}

const (
	rowHeight   = 24
	trackHeight = 5 // more for each further track
)

// drawRows gives a dot figure, its first row on top; nil when nothing can be
// drawn.
func drawRows(rows []dotRow, axes rowAxes) ([]byte, error) {
	var xs []float64
	var shown dotRows
	most := 1
	shown.log = axes.log
	for _, r := range rows {
		before := len(xs)
		for _, track := range r.tracks {
			for _, d := range track {
				for _, v := range []float64{d.x, d.lo, d.hi} {
					if shown.can(v) {
						xs = append(xs, v)
					}
				}
			}
		}
		if len(xs) > before {
			shown.rows = append(shown.rows, r)
			most = max(most, len(r.tracks))
		}
	}
	if len(xs) == 0 {
		return nil, nil
	}
	p := newPlot(axes.label, "")
	setAxis(&p.X, xs, axes.log, axes.ticks)
	if axes.xMin != nil {
		p.X.Min = *axes.xMin
	}
	if axes.xMax != nil {
		p.X.Max = math.Max(*axes.xMax, p.X.Max)
	}
	names, notes := make([]string, len(shown.rows)), make([]string, len(shown.rows))
	for i, r := range shown.rows {
		names[i], notes[i] = r.name, r.note
	}
	nameRows(p, names)
	p.Add(gridLines{vertical: true}, shown)
	height := vg.Length(len(shown.rows)*(rowHeight+trackHeight*(most-1))) + 44
	return render(figureWidth, height, func(c draw.Canvas) { p.Draw(draw.Crop(c, 0, -noteWidth(notes), 0, 0)) })
}

// nameRows makes the vertical axis rows with names, the first on top.
func nameRows(p *plot.Plot, names []string) {
	ticks := make(plot.ConstantTicks, len(names))
	for i, name := range names {
		ticks[i] = plot.Tick{Value: float64(len(names) - 1 - i), Label: name}
	}
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Label.Color = ink
	p.Y.Tick.Label.Font.Size = textSize
}

func noteWidth(notes []string) vg.Length {
	var width vg.Length
	for _, note := range notes {
		width = max(width, typeface(smallSize, quiet).Width(note))
	}
	return width + 6
}

// dotRows draws rows of dots and their notes.
type dotRows struct {
	rows []dotRow
	log  bool
}

// can is true for values that the axis can show.
func (d dotRows) can(v float64) bool { return showable(v, d.log) }

// Plot implements plot.Plotter.
func (d dotRows) Plot(c draw.Canvas, p *plot.Plot) {
	_, trY := p.Transforms(&c)
	for i, r := range d.rows {
		y := trY(float64(len(d.rows) - 1 - i))
		for j, track := range r.tracks {
			offset := (float64(len(r.tracks)-1)/2 - float64(j)) * trackHeight
			d.track(c, p, r, track, y+vg.Length(offset))
		}
		fillBeside(c, smallSize, quiet, vg.Point{X: c.Max.X + 8, Y: y}, r.note)
	}
}

func (d dotRows) track(c draw.Canvas, p *plot.Plot, r dotRow, track []dot, y vg.Length) {
	trX, _ := p.Transforms(&c)
	var radius vg.Length = 3.8
	if len(r.tracks) > 1 {
		radius = 2.4
	}
	for _, dt := range track {
		if d.can(dt.lo) && d.can(dt.hi) {
			c.StrokeLine2(draw.LineStyle{Color: r.colour, Width: 1.2}, trX(dt.lo), y, trX(dt.hi), y)
		}
	}
	for _, dt := range track {
		if !d.can(dt.x) {
			continue
		}
		at := vg.Point{X: trX(dt.x), Y: y}
		circle := func(colour color.Color, radius vg.Length) {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: colour, Radius: radius, Shape: draw.CircleGlyph{}}, at)
		}
		circle(paper, radius+0.8)
		circle(r.colour, radius)
		if dt.hollow {
			circle(paper, radius-1.5)
		}
	}
}

// stackRow is a row of a stacked bar figure.
type stackRow struct {
	name  string
	parts []float64 // in the order of the figure's parts
	note  string
}

// drawStacks gives horizontal stacked bars with their parts named on top; nil
// when all are empty.
func drawStacks(rows []stackRow, parts []string, colours []color.RGBA, label string) ([]byte, error) {
	longest := 0.0
	for _, r := range rows {
		sum := 0.0
		for _, v := range r.parts {
			sum += math.Max(v, 0)
		}
		longest = math.Max(longest, sum)
	}
	if longest <= 0 || !showable(longest, false) {
		return nil, nil
	}
	p := newPlot(label, "")
	p.X.Min, p.X.Max = 0, longest*1.02
	names, notes := make([]string, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		names[i], notes[i] = r.name, r.note
	}
	nameRows(p, names)
	p.Add(gridLines{vertical: true}, stackRows{rows, colours})
	height := vg.Length(len(rows))*rowHeight + 62
	return render(figureWidth, height, func(c draw.Canvas) {
		drawKey(c, parts, colours)
		p.Draw(draw.Crop(c, 0, -noteWidth(notes), 0, -20))
	})
}

const keyRowHeight = 15

func keyWidth(name string) vg.Length { return 12 + typeface(smallSize, quiet).Width(name) + 14 }

// keyRows is how many lines the key needs in a width.
func keyRows(names []string, width vg.Length) int {
	rows, x := 1, vg.Length(0)
	for _, name := range names {
		if x > 0 && x+keyWidth(name) > width {
			rows, x = rows+1, 0
		}
		x += keyWidth(name)
	}
	return rows
}

// drawKey names colours at the top of a canvas.
func drawKey(c draw.Canvas, names []string, colours []color.RGBA) {
	left := c.Min.X + 4
	x, y := left, c.Max.Y-8
	for i, name := range names {
		if x > left && x+keyWidth(name) > c.Max.X {
			x, y = left, y-keyRowHeight
		}
		box := []vg.Point{{X: x, Y: y - 4}, {X: x + 8, Y: y - 4}, {X: x + 8, Y: y + 4}, {X: x, Y: y + 4}}
		c.FillPolygon(colours[i%len(colours)], box)
		fillBeside(c, smallSize, quiet, vg.Point{X: x + 12, Y: y}, name)
		x += keyWidth(name)
	}
}

type stackRows struct {
	rows    []stackRow
	colours []color.RGBA
}

// Plot implements plot.Plotter.
func (s stackRows) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	const half = 7
	for i, r := range s.rows {
		y := trY(float64(len(s.rows) - 1 - i))
		at := 0.0
		for j, v := range r.parts {
			if v > 0 {
				x0, x1 := trX(at), trX(at+v)
				c.FillPolygon(s.colours[j%len(s.colours)], []vg.Point{{X: x0, Y: y - half}, {X: x1, Y: y - half}, {X: x1, Y: y + half}, {X: x0, Y: y + half}})
				at += v
			}
		}
		fillBeside(c, smallSize, quiet, vg.Point{X: c.Max.X + 8, Y: y}, r.note)
	}
}
