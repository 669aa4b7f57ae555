package analysis

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/vg"
	"pgregory.net/rapid"
)

// anyNumber draws what can go wrong on an axis.
func anyNumber() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(-10, 1e7), rapid.SampledFrom([]float64{0, -1, 1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, math.MaxFloat64 / 4}))
}

// No values make a figure panic, on linear or logarithmic axes, and what comes
// out is XML (gonum/plot#681, gonum/plot#377: logarithmic axes panic).
func TestFiguresTakeAnyValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		axes := lineAxes{xLog: rapid.Bool().Draw(t, "xLog"), yLog: rapid.Bool().Draw(t, "yLog"), keyed: rapid.Bool().Draw(t, "keyed")}
		point := rapid.Custom(func(t *rapid.T) linePoint {
			return linePoint{anyNumber().Draw(t, "x"), anyNumber().Draw(t, "y"), anyNumber().Draw(t, "lo"), anyNumber().Draw(t, "hi")}
		})
		var lines []line
		for range rapid.IntRange(0, 4).Draw(t, "lines") {
			lines = append(lines, line{name: rapid.String().Draw(t, "name"), colour: ink, points: rapid.SliceOfN(point, 0, 5).Draw(t, "points"), marks: true})
		}
		svg, err := drawLines(lines, axes)
		require.NoError(t, err)
		requireXML(t, svg)

		oneDot := rapid.Custom(func(t *rapid.T) dot {
			return dot{x: anyNumber().Draw(t, "x"), lo: anyNumber().Draw(t, "lo"), hi: anyNumber().Draw(t, "hi")}
		})
		var rows []dotRow
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			rows = append(rows, dotRow{name: "row", colour: ink, tracks: [][]dot{rapid.SliceOfN(oneDot, 0, 4).Draw(t, "dots"), {plainDot(1)}}})
		}
		svg, err = drawRows(rows, rowAxes{log: axes.xLog})
		require.NoError(t, err)
		requireXML(t, svg)

		parts := rapid.SliceOfN(anyNumber(), 2, 2).Draw(t, "parts")
		svg, err = drawStacks([]stackRow{{name: "a", parts: parts}}, []string{"x", "y"}, stageColours, "ms")
		require.NoError(t, err)
		requireXML(t, svg)
	})
}

func requireXML(t require.TestingT, svg []byte) {
	dec := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		_, err := dec.Token()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
	}
}

func TestFiguresShowNothingRatherThanAnEmptyAxis(t *testing.T) {
	svg, err := drawLines([]line{{name: "a", points: []linePoint{plain(1, 0), plain(2, -1)}}}, lineAxes{yLog: true})
	require.NoError(t, err)
	require.Nil(t, svg)
	svg, err = drawLines([]line{{name: "a", points: []linePoint{plain(1, 5)}}}, lineAxes{yLog: true})
	require.NoError(t, err)
	require.NotNil(t, svg, "one point is enough")
}

func TestSpreadKeepsLabelsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "n")
		ys := make([]vg.Length, n)
		at := 0.0
		for i := range ys {
			at += rapid.Float64Range(0, 40).Draw(t, "step")
			ys[i] = vg.Length(math.Min(at, 200))
		}
		spread(ys, 12, 0, 200)
		for i := 1; i < n; i++ {
			require.GreaterOrEqual(t, float64(ys[i]-ys[i-1]), 12-1e-9)
		}
		require.LessOrEqual(t, float64(ys[n-1]), 200.0)
		require.GreaterOrEqual(t, float64(ys[0]), -1e-9)
	})
}

func TestDecades(t *testing.T) {
	labels := func(lo, hi, dense float64) string {
		var all []string
		for _, tick := range (decades{dense}).Ticks(lo, hi) {
			all = append(all, tick.Label)
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, "10 20 50 100", labels(9, 120, 2))
	require.Equal(t, "100 1,000 10,000", labels(60, 30000, 2))
	require.Equal(t, "150 200 300 400", labels(120, 450, 2))
	require.Empty(t, labels(0, 10, 2))
	require.Empty(t, labels(10, 10, 2))
}

func TestFormat(t *testing.T) {
	require.Equal(t, []string{"0.42", "8.30", "82.4", "293", "30,620", "0", "0.0031"},
		[]string{formatMs(0.42), formatMs(8.3), formatMs(82.41), formatMs(293.4), formatMs(30620), formatCount(-0.2), formatMs(0.0031)})
	require.Equal(t, []string{"×61", "×1.51", "×0.05", "1,234,567"}, []string{formatRatio(61.2), formatRatio(1.51), formatRatio(0.05), formatCount(1234567)})
}
