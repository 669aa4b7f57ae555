package analysis

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figure is one drawing of the report.
type figure struct {
	Name    string // of the file, without its ending
	Title   string
	Caption string
	svg     []byte
	shares  string // the method whose shares over time it shows; empty = another figure
}

// line is a series of a line figure, named at its right end.
type line struct {
	name   string
	colour color.RGBA
	points []linePoint
	marks  bool // a dot at each point
	dashed bool
}

// linePoint is a value with its interval; lo and hi are NaN without one.
type linePoint struct{ x, y, lo, hi float64 }

func plain(x, y float64) linePoint { return linePoint{x, y, math.NaN(), math.NaN()} }

// lineAxes is how the axes of a line figure are set.
type lineAxes struct {
	xLabel, yLabel string
	xLog, yLog     bool
	xTicks, yTicks plot.Ticker // nil = chosen here
	yMin, yMax     *float64    // nil = from the data
	keyed          bool        // names above the drawing, not at the lines' ends
}

// drawLines gives a line figure; nil when nothing can be drawn on its axes.
func drawLines(lines []line, axes lineAxes) ([]byte, error) {
	lines = drawable(lines, axes)
	if len(lines) == 0 {
		return nil, nil
	}
	p := newPlot(axes.xLabel, axes.yLabel)
	var xs, ys []float64
	for _, l := range lines {
		for _, pt := range l.points {
			xs, ys = append(xs, pt.x), append(ys, pt.y)
			for _, v := range []float64{pt.lo, pt.hi} {
				if !math.IsNaN(v) {
					ys = append(ys, v)
				}
			}
		}
	}
	setAxis(&p.X, xs, axes.xLog, axes.xTicks)
	setAxis(&p.Y, ys, axes.yLog, axes.yTicks)
	if axes.yLog && axes.yTicks == nil {
		p.Y.Tick.Marker = decades{dense: 3.2} // labels above each other take less room
	}
	if axes.yMin != nil {
		p.Y.Min = *axes.yMin
	}
	if axes.yMax != nil {
		p.Y.Max = *axes.yMax
	}
	p.Add(gridLines{}, lineSeries(lines))
	if axes.keyed {
		return renderKeyed(p, lines)
	}
	labels := endLabels(lines)
	p.Add(labels)
	return render(figureWidth, figureHeight, func(c draw.Canvas) { p.Draw(draw.Crop(c, 0, -labels.width(), 0, 0)) })
}

func renderKeyed(p *plot.Plot, lines []line) ([]byte, error) {
	names, colours := make([]string, len(lines)), make([]color.RGBA, len(lines))
	for i, l := range lines {
		names[i], colours[i] = l.name, l.colour
	}
	rows := keyRows(names, figureWidth-10)
	return render(figureWidth, figureHeight, func(c draw.Canvas) {
		drawKey(c, names, colours)
		p.Draw(draw.Crop(c, 0, 0, 0, -vg.Length(rows)*keyRowHeight-4))
	})
}

// drawKeyedLines is drawLines with the names on top in place of at the ends,
// for lines that all end in one corner.
func drawKeyedLines(lines []line, axes lineAxes) ([]byte, error) {
	axes.keyed = true
	return drawLines(lines, axes)
}

// drawable leaves out what the axes cannot show: on a logarithmic axis all
// that is not above zero.
func drawable(lines []line, axes lineAxes) []line {
	bad := func(v float64, log bool) bool { return !showable(v, log) }
	var out []line
	for _, l := range lines {
		l.points = slices.DeleteFunc(slices.Clone(l.points), func(p linePoint) bool { return bad(p.x, axes.xLog) || bad(p.y, axes.yLog) })
		for i, p := range l.points {
			if bad(p.lo, axes.yLog) || bad(p.hi, axes.yLog) {
				l.points[i].lo, l.points[i].hi = math.NaN(), math.NaN()
			}
		}
		if len(l.points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// setAxis fits an axis to values. A span of nothing is widened: gonum cannot
// scale it.
func setAxis(axis *plot.Axis, values []float64, log bool, ticks plot.Ticker) {
	const denseDecades = 1.7
	axis.Min, axis.Max = slices.Min(values), slices.Max(values)
	if log {
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = decades{denseDecades}
		axis.Min, axis.Max = logRange(values)
	} else if axis.Min == axis.Max {
		pad := math.Max(1, math.Abs(axis.Min)/10)
		axis.Min, axis.Max = axis.Min-pad, axis.Max+pad
	}
	if ticks != nil {
		axis.Tick.Marker = ticks
	}
}

// atValues are ticks at the values that were run.
func atValues(values []float64, label func(float64) string) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(values))
	for i, v := range values {
		ticks[i] = plot.Tick{Value: v, Label: label(v)}
	}
	return ticks
}

// gridLines draws a faint line at each labelled tick of the vertical axis.
type gridLines struct{ vertical bool }

// Plot implements plot.Plotter.
func (g gridLines) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	style := draw.LineStyle{Color: faint, Width: 0.75}
	if g.vertical {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if !t.IsMinor() && t.Value >= p.X.Min && t.Value <= p.X.Max {
				c.StrokeLine2(style, trX(t.Value), c.Min.Y, trX(t.Value), c.Max.Y)
			}
		}
		return
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if !t.IsMinor() && t.Value >= p.Y.Min && t.Value <= p.Y.Max {
			c.StrokeLine2(style, c.Min.X, trY(t.Value), c.Max.X, trY(t.Value))
		}
	}
}

// lineSeries draws lines, their intervals and dots.
type lineSeries []line

// Plot implements plot.Plotter.
func (s lineSeries) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	for i, l := range s {
		// Intervals at the same rate stand side by side, not on each other.
		shift := vg.Length(float64(i)-float64(len(s)-1)/2) * 1.6
		pts := make([]vg.Point, len(l.points))
		for j, pt := range l.points {
			pts[j] = vg.Point{X: trX(pt.x), Y: trY(pt.y)}
			if !math.IsNaN(pt.lo) {
				c.StrokeLine2(draw.LineStyle{Color: l.colour, Width: 1.1}, pts[j].X+shift, trY(pt.lo), pts[j].X+shift, trY(pt.hi))
			}
		}
		style := draw.LineStyle{Color: l.colour, Width: 1.8}
		if l.dashed {
			style.Dashes = []vg.Length{4, 3}
		}
		c.StrokeLines(style, pts)
		if l.marks {
			for _, pt := range pts {
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: paper, Radius: 3.9, Shape: draw.CircleGlyph{}}, pt)
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: l.colour, Radius: 2.9, Shape: draw.CircleGlyph{}}, pt)
			}
		}
	}
}

// endLabels names each line right of its last point, moved apart where they
// would touch.
type endLabels []line

func (e endLabels) width() vg.Length {
	var w vg.Length
	for _, l := range e {
		w = max(w, typeface(textSize, l.colour).Width(l.name))
	}
	return w + 12
}

// Plot implements plot.Plotter.
func (e endLabels) Plot(c draw.Canvas, p *plot.Plot) {
	_, trY := p.Transforms(&c)
	type label struct {
		line
		end, y vg.Length
	}
	labels := make([]label, len(e))
	for i, l := range e {
		last := l.points[len(l.points)-1]
		labels[i] = label{l, trY(last.y), trY(last.y)}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	ys := make([]vg.Length, len(labels))
	for i, l := range labels {
		ys[i] = l.y
	}
	spread(ys, textSize+1.5, c.Min.Y+textSize/2, c.Max.Y-textSize/2+4)
	for i, l := range labels {
		x := c.Max.X + 8
		c.StrokeLine2(draw.LineStyle{Color: l.colour, Width: 0.6}, c.Max.X-1, l.end, x-1, ys[i])
		fillBeside(c, textSize, l.colour, vg.Point{X: x + 1, Y: ys[i]}, l.name)
	}
}

// spread moves sorted positions apart until each pair is gap apart, as little
// as it can, within lo to hi where there is room.
func spread(ys []vg.Length, gap, lo, hi vg.Length) {
	for i := range ys {
		ys[i] = max(ys[i], lo)
		if i > 0 {
			ys[i] = max(ys[i], ys[i-1]+gap)
		}
	}
	for i := len(ys) - 1; i >= 0; i-- {
		limit := hi
		if i < len(ys)-1 {
			limit = ys[i+1] - gap
		}
		ys[i] = min(ys[i], limit)
	}
}
