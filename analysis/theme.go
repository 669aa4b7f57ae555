package analysis

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours of text and lines. They are written into SVG files as they are; in
// the report they become CSS variables that follow light and dark.
var (
	paper = rgb(0xFFFFFF)
	ink   = rgb(0x1C2128)
	quiet = rgb(0x5B6570) // axes and their labels
	faint = rgb(0xE3E6EA) // grid
)

func rgb(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

// policyColours keep their meaning in all figures. They are told apart with
// the common colour deficiencies and on white and on dark paper; each line is
// named beside it as well.
var policyColours = map[string]color.RGBA{
	"kubeproxy":      rgb(0x7A828C),
	"default":        rgb(0x7A828C),
	"roundrobin":     rgb(0xA0905A),
	"least-request":  rgb(0xB65FA4),
	"localization":   rgb(0xC98A00),
	"pack":           rgb(0xC98A00),
	"opttraffic":     rgb(0x00916E),
	"lata":           rgb(0x1F78C8),
	"default+lata":   rgb(0x5AA9E6),
	"larp+lata":      rgb(0x1F78C8),
	"heart":          rgb(0xD9480F),
	"heart-equal":    rgb(0x7A828C),
	"heart-last":     rgb(0x1F78C8),
	"heart-nofilter": rgb(0x00916E),
}

// spareColours are for methods of the user's own, in order of their names.
var spareColours = []color.RGBA{rgb(0x8250DF), rgb(0x9A6324), rgb(0xC2255C), rgb(0x3B7A57), rgb(0x4263EB), rgb(0x6E7B00), rgb(0xA0905A), rgb(0x0B7285)}

// palette gives every policy of a report its colour.
type palette map[string]color.RGBA

func newPalette(cells []Cell, scale []ScalePoint) palette {
	names := scalePolicies(scale)
	for _, c := range cells {
		if !slices.Contains(names, c.Policy) {
			names = append(names, c.Policy)
		}
	}
	slices.SortFunc(names, comparePolicies)
	p, spare := palette{}, 0
	for _, name := range names {
		if c, ok := policyColours[name]; ok {
			p[name] = c
			continue
		}
		p[name] = spareColours[spare%len(spareColours)]
		spare++
	}
	return p
}

func (p palette) css(policy string) string { return cssColour(p[policy]) }

func cssColour(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// Sizes of figures, points. Narrow enough to be read on a phone without zoom.
const (
	figureWidth  = 430
	figureHeight = 290
	textSize     = 11
	smallSize    = 10
)

func typeface(size vg.Length, c color.Color) text.Style {
	return text.Style{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: text.Plain{Fonts: font.DefaultCache},
	}
}

// fillBeside writes a text with its middle at a height. gonum centres the box
// of a line, which has more room above the letters than below.
func fillBeside(c draw.Canvas, size vg.Length, colour color.Color, at vg.Point, txt string) {
	style := typeface(size, colour)
	style.YAlign = text.YCenter
	at.Y += style.FontExtents().Descent
	c.FillText(style, at, txt)
}

// newPlot gives a plot with quiet axes and without a box.
func newPlot(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = paper
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width = 0
		axis.Padding = 4
		axis.Tick.Label.Color = quiet
		axis.Tick.Label.Font = typeface(smallSize, quiet).Font
		axis.Tick.LineStyle.Width = 0
		axis.Tick.Length = 0
		axis.Label.TextStyle.Color = quiet
		axis.Label.TextStyle.Font = typeface(smallSize, quiet).Font
		axis.Label.Padding = 4
	}
	p.X.Tick.Label.YAlign = text.YTop
	p.Y.Tick.Label.XAlign = text.XRight
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	return p
}

// render draws plots one under the other on one canvas and gives SVG.
func render(width, height vg.Length, drawOn func(draw.Canvas)) ([]byte, error) {
	canvas := vgsvg.New(width, height)
	dc := draw.New(canvas)
	dc.FillPolygon(paper, []vg.Point{{X: 0, Y: 0}, {X: width, Y: 0}, {X: width, Y: height}, {X: 0, Y: height}})
	drawOn(draw.Crop(dc, 6, -6, 2, -4))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw figure: %w", err)
	}
	// Liberation Sans has the metrics of Arial and Helvetica.
	return bytes.ReplaceAll(bytes.Map(inXML, b.Bytes()), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")), nil
}

// inXML leaves out what XML cannot hold, as a name of the user's may.
func inXML(r rune) rune {
	if (r < ' ' && r != '\n' && r != '\t') || r == 0xFFFE || r == 0xFFFF {
		return -1
	}
	return r
}

// inlineRules make a figure part of the report: no prologue, its size set by
// the page, its neutral colours by the theme.
var inlineRules = []struct {
	find    *regexp.Regexp
	replace string
}{
	{regexp.MustCompile(`(?s)^.*?<svg width="[^"]*" height="[^"]*"`), `<svg role="img"`},
	{regexp.MustCompile(`\s+xmlns(:xlink)?="[^"]*"`), ``},
	{regexp.MustCompile(`font-family:[^;"]*;font-variant:normal;font-weight:normal;font-style:normal;`), ``},
	{regexp.MustCompile(cssColour(paper)), `var(--paper)`},
	{regexp.MustCompile(cssColour(ink)), `var(--ink)`},
	{regexp.MustCompile(cssColour(quiet)), `var(--quiet)`},
	{regexp.MustCompile(cssColour(faint)), `var(--line)`},
}

func inline(svg []byte) []byte {
	for _, r := range inlineRules {
		svg = r.find.ReplaceAll(svg, []byte(r.replace))
	}
	return svg
}

// decades are the ticks of a logarithmic axis: 1, 2 and 5 of each power of
// ten where the range has no more decades than dense, else the powers alone.
type decades struct{ dense float64 }

// Ticks implements plot.Ticker. It never fails: a range that is empty or not
// above zero has no ticks.
func (d decades) Ticks(lo, hi float64) []plot.Tick {
	if !(lo > 0) || !(hi > lo) || math.IsInf(hi, 0) {
		return nil
	}
	span := math.Log10(hi / lo)
	steps := []float64{1}
	if span < d.dense {
		steps = []float64{1, 2, 5}
	}
	if span < 0.7 {
		steps = []float64{1, 1.5, 2, 3, 4, 5, 6, 8}
	}
	var ticks []plot.Tick
	for exp := math.Floor(math.Log10(lo)); exp <= math.Ceil(math.Log10(hi)); exp++ {
		for _, s := range steps {
			if v := s * math.Pow(10, exp); v >= lo && v <= hi {
				ticks = append(ticks, plot.Tick{Value: v, Label: axisNumber(v)})
			}
		}
	}
	return ticks
}

// axisNumber writes a tick without trailing zeros, large ones with commas.
func axisNumber(v float64) string {
	if v >= 1000 {
		return formatCount(v)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// showable is true for values that an axis can show: gonum panics on a
// logarithmic axis with a value that is not above zero, and no time or share
// is anywhere near the limits.
func showable(v float64, log bool) bool {
	const largest, smallest = 1e12, 1e-12
	if log && v < smallest {
		return false
	}
	return math.Abs(v) <= largest // false for NaN
}

// logRange widens the span of showable values, of nothing too, so that a
// logarithmic axis has room.
func logRange(values []float64) (lo, hi float64) {
	lo, hi = slices.Min(values), slices.Max(values)
	pad := math.Max(1.12, math.Pow(hi/lo, 0.06))
	return lo / pad, hi * pad
}

// slug makes a file name of names.
func slug(parts ...string) string {
	var b strings.Builder
	for _, r := range strings.Join(parts, "-") {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '+':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	return b.String()
}
