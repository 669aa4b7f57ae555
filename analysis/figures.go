package analysis

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// sectionFigures draws all that a section has data for.
func sectionFigures(set Set, s section, colours palette) ([]figure, error) {
	var figures []figure
	add := func(name, title, caption string, source Source, svg []byte, err error) error {
		if err != nil {
			return fmt.Errorf("figure %s of %s/%s: %w", name, s.Scenario, s.App, err)
		}
		if svg != nil {
			figures = append(figures, figure{slug(s.Scenario, s.App, s.Backend, name), title, fmt.Sprintf("%s (%s)", caption, source), svg, ""})
		}
		return nil
	}
	focus := s.at(s.Focus)
	rate := formatRate(s.Focus) + " RPS"

	svg, err := s.p99Figure(colours)
	if err := add("p99", "P99 over the rate", "Median of the runs' P99 with its interval, logarithmic", s.Source, svg, err); err != nil {
		return nil, err
	}
	svg, err = replicasFigure(focus, colours)
	if err := add("replicas", "Replicas over time", "Ready replicas, median of the runs, and the number the rate needs", s.Source, svg, err); err != nil {
		return nil, err
	}
	svg, err = cdfFigure(set, focus, colours)
	if err := add("cdf", "Latencies at "+rate, "All runs' requests together, from the merged histograms", s.Source, svg, err); err != nil {
		return nil, err
	}
	svg, err = cpuFigure(focus, colours)
	if err := add("cpu", "CPU of the replicas at "+rate, "A dot a replica, a line a component: the mean in percent of what a replica may use. Gap: points between the busiest and the idlest of one component in one run, median over the runs", s.Source, svg, err); err != nil {
		return nil, err
	}
	for _, c := range focus {
		svg, err = sharesFigure(c)
		if err := add("shares-"+slug(c.Policy), "Shares of "+c.Policy+" over time at "+rate, "Part of each component's requests that its tables sent to a node, medians over the runs", s.Source, svg, err); err != nil {
			return nil, err
		}
		if svg != nil {
			figures[len(figures)-1].shares = c.Policy
		}
	}
	svg, err = stagesFigure(focus)
	if err := add("stages", "Time of a controller step at "+rate, "Median of the steps, on the machine that ran this", Measured, svg, err); err != nil {
		return nil, err
	}
	return figures, nil
}

// p99Figure shows P99 over the rates, or a row a policy where there is one
// rate only.
func (s section) p99Figure(colours palette) ([]byte, error) {
	if len(s.rates) == 1 {
		return p99Rows(s.cells, colours)
	}
	var lines []line
	for _, policy := range s.policies {
		l := line{name: policy, colour: colours[policy], marks: true}
		for _, c := range s.cells {
			if c.Policy == policy && c.P99Ms != nil {
				l.points = append(l.points, linePoint{c.RPS, c.P99Ms.Median, orNaN(c.P99Ms.Lo), orNaN(c.P99Ms.Hi)})
			}
		}
		lines = append(lines, l)
	}
	return drawLines(lines, lineAxes{xLabel: "requests per second", yLabel: "P99, ms", yLog: true, xTicks: atValues(s.rates, formatRate)})
}

func p99Rows(cells []Cell, colours palette) ([]byte, error) {
	var rows []dotRow
	for _, c := range cells {
		if e := c.P99Ms; e != nil {
			rows = append(rows, dotRow{name: c.Policy, colour: colours[c.Policy], note: formatMs(e.Median) + " ms",
				tracks: [][]dot{{{x: e.Median, lo: orNaN(e.Lo), hi: orNaN(e.Hi)}}}})
		}
	}
	return drawRows(rows, rowAxes{label: "P99, ms", log: true})
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// cdfFigure shows which part of the requests was answered within a time.
func cdfFigure(set Set, cells []Cell, colours palette) ([]byte, error) {
	var lines []line
	for _, c := range cells {
		h, err := set.histogram(c)
		if err != nil {
			return nil, err
		}
		if h != nil && h.TotalCount() > 0 {
			lines = append(lines, line{name: c.Policy, colour: colours[c.Policy], points: cdf(h)})
		}
	}
	bottom, top := 0.0, 100.0
	return drawKeyedLines(lines, lineAxes{xLabel: "latency, ms", yLabel: "requests answered within", xLog: true, yTicks: percentTicks(100), yMin: &bottom, yMax: &top})
}

// cdf gives points (ms, percent): more of them towards the tail, where
// methods differ.
func cdf(h *hdrhistogram.Histogram) []linePoint {
	var points []linePoint
	for i := 1; i <= 100; i++ {
		points = append(points, plain(float64(h.ValueAtQuantile(float64(i)))/1000, float64(i)))
		if i >= 98 && i < 100 {
			points = append(points, plain(float64(h.ValueAtQuantile(float64(i)+0.5))/1000, float64(i)+0.5))
		}
	}
	return points
}

// percentTicks are three to five ticks from 0 to top percent.
func percentTicks(top float64) plot.ConstantTicks {
	step := 25.0
	for _, s := range []float64{1, 2, 5, 10, 20} {
		if top <= 3.5*s {
			step = s
			break
		}
	}
	var ticks plot.ConstantTicks
	for v := 0.0; v <= top; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%3.0f %%", v)})
	}
	return ticks
}

// cpuFigure shows the balance: a row a policy, a dot a replica.
func cpuFigure(cells []Cell, colours palette) ([]byte, error) {
	var rows []dotRow
	for _, c := range cells {
		usages := c.replicaCPU()
		if len(usages) == 0 {
			continue
		}
		row := dotRow{name: c.Policy, colour: colours[c.Policy], tracks: cpuTracks(usages)}
		if c.CPUGapPp != nil {
			row.note = fmt.Sprintf("gap %.0f", *c.CPUGapPp)
		}
		rows = append(rows, row)
	}
	left, right := 0.0, 100.0
	return drawRows(rows, rowAxes{label: "CPU, mean of a run", ticks: percentTicks(100), xMin: &left, xMax: &right})
}

// cpuTracks gives a track a component, in order of their names: its replicas,
// and the reach from the idlest to the busiest. Backends name a replica by its
// component and a number.
func cpuTracks(usages []replicaUsage) [][]dot {
	byComponent := map[string][]dot{}
	for _, u := range usages {
		component := strings.TrimRight(u.replica, "0123456789")
		byComponent[component] = append(byComponent[component], plainDot(u.mean))
	}
	var tracks [][]dot
	for _, component := range slices.Sorted(maps.Keys(byComponent)) {
		track := byComponent[component]
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, d := range track {
			lo, hi = math.Min(lo, d.x), math.Max(hi, d.x)
		}
		track[0].lo, track[0].hi = lo, hi
		tracks = append(tracks, track)
	}
	return tracks
}

// nodeColours tell nodes apart; they are no policy's.
var nodeColours = []color.RGBA{rgb(0x1F78C8), rgb(0xD9480F), rgb(0x00916E), rgb(0xC98A00), rgb(0xB65FA4), rgb(0x7A828C), rgb(0x8250DF), rgb(0x9A6324)}

// sharesFigure shows how a policy moved load between nodes, a panel a
// component; nil when its shares never changed.
func sharesFigure(c Cell) ([]byte, error) {
	series := c.sharesOverTime()
	if !moves(series) {
		return nil, nil
	}
	components := slices.Sorted(maps.Keys(series))
	nodes := map[string]bool{}
	for _, byNode := range series {
		for node := range byNode {
			nodes[node] = true
		}
	}
	names := slices.Sorted(maps.Keys(nodes))
	const panel, key = 92, 22
	height := vg.Length(len(components)*panel + key + 26)
	return render(figureWidth, height, func(dc draw.Canvas) {
		drawKey(dc, names, nodeColours)
		for i, component := range components {
			p := newPlot("", component)
			if i == len(components)-1 {
				p.X.Label.Text = "seconds since the start of the warm-up"
			}
			var lines []line
			top := 0.0
			for j, node := range names {
				if pts := series[component][node]; len(pts) > 0 {
					lines = append(lines, line{colour: nodeColours[j%len(nodeColours)], points: steps(pts)})
					for _, pt := range pts {
						top = math.Max(top, pt.y)
					}
				}
			}
			var xs []float64
			for _, l := range lines {
				for _, pt := range l.points {
					xs = append(xs, pt.x)
				}
			}
			setAxis(&p.X, xs, false, nil)
			if i < len(components)-1 {
				p.X.Tick.Marker = plot.ConstantTicks{}
			}
			p.Y.Min, p.Y.Max = 0, math.Max(top*1.05, 1)
			p.Y.Tick.Marker = percentTicks(top)
			p.Add(gridLines{}, lineSeries(lines))
			bottom := vg.Length((len(components) - 1 - i) * panel)
			if i < len(components)-1 {
				bottom += 26
			}
			p.Draw(draw.Crop(dc, 0, 0, bottom, -vg.Length(key+i*panel)))
		}
	})
}

// sharesOverTime gives percent by component and node, medians over the runs.
func (c Cell) sharesOverTime() map[string]map[string][]linePoint {
	type at struct {
		component, node string
		seconds         float64
	}
	values := map[at][]float64{}
	for _, r := range c.runs {
		for _, s := range r.SharesOverTime {
			k := at{s.Component, s.Node, s.AtSeconds}
			values[k] = append(values[k], 100*s.Share)
		}
	}
	series := map[string]map[string][]linePoint{}
	for k, v := range values {
		if series[k.component] == nil {
			series[k.component] = map[string][]linePoint{}
		}
		series[k.component][k.node] = append(series[k.component][k.node], plain(k.seconds, estimate(v).Median))
	}
	for _, byNode := range series {
		for _, pts := range byNode {
			slices.SortFunc(pts, func(a, b linePoint) int { return cmp.Compare(a.x, b.x) })
		}
	}
	return series
}

// moves is true when a share changes by more than half a point.
func moves(series map[string]map[string][]linePoint) bool {
	for _, byNode := range series {
		for _, pts := range byNode {
			lo, hi := math.Inf(1), math.Inf(-1)
			for _, pt := range pts {
				lo, hi = math.Min(lo, pt.y), math.Max(hi, pt.y)
			}
			if hi-lo > 0.5 {
				return true
			}
		}
	}
	return false
}

// steps makes points hold until the next one: a table is in force until it is
// replaced.
func steps(pts []linePoint) []linePoint {
	out := make([]linePoint, 0, 2*len(pts))
	for i, pt := range pts {
		if i > 0 {
			out = append(out, plain(pt.x, pts[i-1].y))
		}
		out = append(out, pt)
	}
	return out
}

// stageOrder is the order of a step's stages; `total` is their sum and left
// out of the stack.
var stageOrder = []string{"collect", "predict", "filter", "flow", "apply"}

var stageColours = []color.RGBA{rgb(0x9AA4AF), rgb(0xC98A00), rgb(0xB65FA4), rgb(0x1F78C8), rgb(0x00916E)}

func stagesFigure(cells []Cell) ([]byte, error) {
	var rows []stackRow
	for _, c := range cells {
		seconds := c.stageSeconds()
		if len(seconds) == 0 {
			continue
		}
		row := stackRow{name: c.Policy, parts: make([]float64, len(stageOrder))}
		sum := 0.0
		for i, stage := range stageOrder {
			row.parts[i] = 1000 * seconds[stage]
			sum += row.parts[i]
		}
		row.note = formatMs(sum) + " ms"
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return drawStacks(rows, stageOrder, stageColours, "ms")
}

// scaleFigure shows scheduling time over the number of replicas.
func scaleFigure(points []ScalePoint, colours palette) ([]byte, error) {
	var lines []line
	var sizes []float64
	for _, policy := range scalePolicies(points) {
		l := line{name: policy, colour: colours[policy], marks: true}
		for _, p := range scaleOf(points, policy) {
			l.points = append(l.points, plain(float64(p.Replicas), p.Ms))
			if !slices.Contains(sizes, float64(p.Replicas)) {
				sizes = append(sizes, float64(p.Replicas))
			}
		}
		lines = append(lines, l)
	}
	return drawLines(lines, lineAxes{xLabel: "replicas", yLabel: "one step, ms", xLog: true, yLog: true, xTicks: atValues(sizes, axisNumber)})
}

// claimsFigure sets each published latency beside the measured one.
func claimsFigure(judgements []Judgement) ([]byte, error) {
	var rows []dotRow
	for _, j := range judgements {
		if j.Kind != "latency" || j.Measured == nil {
			continue
		}
		rows = append(rows, dotRow{
			name: strings.TrimPrefix(strings.TrimPrefix(j.ID, "heart-"), "lata-"), colour: verdictColours[j.Verdict], note: formatRatio(*j.Measured / j.Published),
			tracks: [][]dot{{
				{x: *j.Measured, lo: math.Min(*j.Measured, j.Published), hi: math.Max(*j.Measured, j.Published)},
				{x: j.Published, lo: math.NaN(), hi: math.NaN(), hollow: true},
			}},
		})
	}
	return drawRows(rows, rowAxes{label: "ms; ring = published, dot = here", log: true})
}

var verdictColours = map[ClaimVerdict]color.RGBA{
	Reproduced: rgb(0x00916E), Direction: rgb(0xC98A00), NotReproduced: rgb(0xC92A2A), NotComparable: rgb(0x7A828C),
}
