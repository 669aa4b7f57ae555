package analysis

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// dotRow is a row of a dot figure: dots on one horizontal line.
type dotRow struct {
	name   string
	colour color.RGBA
	dots   []dot
	note   string // at the right end
}

// dot is a value with an optional reach (an interval or a peak); lo and hi are
// NaN without one.
type dot struct {
	x, lo, hi float64
	hollow    bool
}

// rowAxes is how the horizontal axis of a dot figure is set.
type rowAxes struct {
	label      string
	log        bool
	ticks      plot.Ticker
	xMin, xMax *float64
}

const rowHeight = 24

// drawRows gives a dot figure, its first row on top; nil when nothing can be
// drawn.
func drawRows(rows []dotRow, axes rowAxes) ([]byte, error) {
	var xs []float64
	var shown []dotRow
	for _, r := range rows {
		usable := false
		for _, d := range r.dots {
			for _, v := range []float64{d.x, d.lo, d.hi} {
				if !math.IsNaN(v) && !math.IsInf(v, 0) && !(axes.log && v <= 0) {
					xs = append(xs, v)
					usable = true
				}
			}
		}
		if usable {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
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
	p.Y.Min, p.Y.Max = -0.5, float64(len(shown))-0.5
	ticks := make(plot.ConstantTicks, len(shown))
	for i, r := range shown {
		ticks[i] = plot.Tick{Value: float64(len(shown) - 1 - i), Label: r.name}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Label.Color = ink
	p.Y.Tick.Label.Font.Size = textSize
	p.Add(gridLines{vertical: true}, dotRows{shown, axes.log})
	var notes vg.Length
	for _, r := range shown {
		notes = max(notes, typeface(smallSize, quiet).Width(r.note))
	}
	height := vg.Length(len(shown))*rowHeight + 44
	return render(figureWidth, height, func(c draw.Canvas) { p.Draw(draw.Crop(c, 0, -notes-6, 0, 0)) })
}

type dotRows struct {
	rows []dotRow
	log  bool
}

// Plot implements plot.Plotter.
func (d dotRows) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	bad := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || (d.log && v <= 0) }
	for i, r := range d.rows {
		y := trY(float64(len(d.rows) - 1 - i))
		for _, dt := range r.dots {
			if !bad(dt.lo) && !bad(dt.hi) {
				c.StrokeLine2(draw.LineStyle{Color: r.colour, Width: 1.2}, trX(dt.lo), y, trX(dt.hi), y)
			}
		}
		for _, dt := range r.dots {
			if bad(dt.x) {
				continue
			}
			at := vg.Point{X: trX(dt.x), Y: y}
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: paper, Radius: 4.8, Shape: draw.CircleGlyph{}}, at)
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: r.colour, Radius: 3.8, Shape: draw.CircleGlyph{}}, at)
			if dt.hollow {
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: paper, Radius: 2.3, Shape: draw.CircleGlyph{}}, at)
			}
		}
		style := typeface(smallSize, quiet)
		style.YAlign = text.YCenter
		c.FillText(style, vg.Point{X: c.Max.X + 8, Y: y}, r.note)
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
			sum += v
		}
		longest = math.Max(longest, sum)
	}
	if longest <= 0 || math.IsInf(longest, 0) || math.IsNaN(longest) {
		return nil, nil
	}
	p := newPlot(label, "")
	p.X.Min, p.X.Max = 0, longest*1.02
	p.Y.Min, p.Y.Max = -0.5, float64(len(rows))-0.5
	ticks := make(plot.ConstantTicks, len(rows))
	for i, r := range rows {
		ticks[i] = plot.Tick{Value: float64(len(rows) - 1 - i), Label: r.name}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Label.Color = ink
	p.Y.Tick.Label.Font.Size = textSize
	p.Add(gridLines{vertical: true}, stackRows{rows, colours})
	var notes vg.Length
	for _, r := range rows {
		notes = max(notes, typeface(smallSize, quiet).Width(r.note))
	}
	height := vg.Length(len(rows))*rowHeight + 62
	return render(figureWidth, height, func(c draw.Canvas) {
		drawKey(c, parts, colours)
		p.Draw(draw.Crop(c, 0, -notes-6, 0, -20))
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
		style := typeface(smallSize, quiet)
		style.YAlign = text.YCenter
		c.FillText(style, vg.Point{X: x + 12, Y: y}, name)
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
			}
			at += v
		}
		style := typeface(smallSize, quiet)
		style.YAlign = text.YCenter
		c.FillText(style, vg.Point{X: c.Max.X + 8, Y: y}, r.note)
	}
}
