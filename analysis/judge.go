package analysis

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// ClaimVerdict is what the results say about a published figure.
type ClaimVerdict string

const (
	Reproduced    ClaimVerdict = "reproduced"
	Direction     ClaimVerdict = "direction" // right sign or order, outside the tolerance
	NotReproduced ClaimVerdict = "not-reproduced"
	// NotComparable is a verdict of its own: nothing was measured that could
	// agree or disagree.
	NotComparable ClaimVerdict = "not-comparable"
)

// ClaimVerdicts in the order in which they are counted.
var ClaimVerdicts = []ClaimVerdict{Reproduced, Direction, NotReproduced, NotComparable}

// Judgement is a claim, what was measured and the verdict.
type Judgement struct {
	ID        string       `json:"id"`
	Paper     string       `json:"paper"`
	Says      string       `json:"says"`
	Kind      string       `json:"kind"`
	Published float64      `json:"published"`
	Measured  *float64     `json:"measured"` // nil = not comparable
	Unit      string       `json:"unit"`
	Verdict   ClaimVerdict `json:"verdict"`
	Reason    string       `json:"reason"`
	Source    Source       `json:"source,omitempty"`
	Note      string       `json:"note,omitempty"`

	scenarios, apps []string // of the cells it is bound to
}

// backendOrder is which backend's cells judge the claims where several were
// joined: one figure cannot come from two.
var backendOrder = []string{"sim", "netns", "kind", "cluster", BackendWrk2}

// Judge gives a verdict on every claim. A claim is judged on the first
// backend, from the simulator to real clusters, that has all it needs.
func Judge(s Set, claims Claims) []Judgement {
	labs := newLabs(s)
	judgements := make([]Judgement, len(claims.Claims))
	for i, c := range claims.Claims {
		j := Judgement{
			ID: c.ID, Paper: c.Paper, Says: c.Says, Kind: c.Kind, Published: c.Published, Unit: c.Unit, Note: strings.TrimSpace(c.Note),
			scenarios: c.Measure.Of.Scenario, apps: c.Measure.Of.App,
		}
		switch m := c.Measure; {
		case m.Undefined != "":
			j.notComparable("undefined: " + m.Undefined)
		case m.Vector != "":
			j.vector(s, claims.Tolerances[c.Kind], m.Vector)
		case m.Scale != nil:
			j.growth(s, claims.Tolerances[c.Kind], *m.Scale)
		default:
			j.cells(labs, claims, c)
		}
		judgements[i] = j
	}
	return judgements
}

func newLabs(s Set) []lab {
	cells := map[string]map[Key]Cell{}
	for _, c := range s.Cells() {
		if cells[c.Backend] == nil {
			cells[c.Backend] = map[Key]Cell{}
		}
		cells[c.Backend][c.Key] = c
	}
	var labs []lab
	for _, backend := range backendOrder {
		if byKey, ok := cells[backend]; ok {
			labs = append(labs, lab{s, byKey, backend})
		}
	}
	return labs
}

func (j *Judgement) notComparable(reason string) { j.Verdict, j.Reason = NotComparable, reason }

// vector judges a worked example: the figure itself, computed here.
func (j *Judgement) vector(s Set, t Tolerance, name string) {
	v, ok := s.Vectors[name]
	if !ok {
		j.notComparable("the worked example was not computed: no " + name + " in " + vectorsFile)
		return
	}
	j.Measured = &v
	j.Verdict = NotReproduced
	j.Reason = fmt.Sprintf("the computed example gives %s", formatValue(v, j.Unit))
	if t.holds(v, j.Published) {
		j.Verdict = Reproduced
	}
}

// growth judges a scheduling time by its exponent; the time itself, of another
// machine and another solver, is shown.
func (j *Judgement) growth(s Set, t Tolerance, g Growth) {
	ms, errTime := s.scaleMs(g.Policy, g.Replicas)
	own, errOwn := s.exponent(g.Policy, g.From, g.To)
	if err := joinMissing(errTime, errOwn); err != nil {
		j.notComparable(err.Error())
		return
	}
	j.Measured = &ms
	j.Source = Measured // a time on this machine, not a model of one
	published := growthExponent(g.PublishedFromMs, g.PublishedToMs, g.From, g.To)
	growth := fmt.Sprintf("grows with replicas^%.2f from %d to %d, published ^%.2f", own, g.From, g.To, published)
	if math.Abs(own-published) <= t.Exponent {
		j.Verdict, j.Reason = Reproduced, fmt.Sprintf("%s: within %.1f", growth, t.Exponent)
		return
	}
	j.Verdict, j.Reason = NotReproduced, fmt.Sprintf("%s: more than %.1f apart", growth, t.Exponent)
	rival, err := s.exponent(g.Rival, g.From, g.To)
	if err != nil {
		return
	}
	// HEART's growth is published to be the flatter one.
	if flatter := own < rival; flatter == (published < 1) {
		j.Verdict = Direction
		j.Reason += fmt.Sprintf(", but on the right side of %s (^%.2f)", g.Rival, rival)
	}
}

// cells judges a claim that is bound to cells.
func (j *Judgement) cells(labs []lab, claims Claims, c Claim) {
	var firstErr error
	for _, l := range labs {
		m, err := l.measure(c.Measure)
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		j.Measured, j.Source = &m.value, SourceOf(l.backend)
		j.weigh(l, claims, c, m)
		return
	}
	if firstErr == nil {
		firstErr = fmt.Errorf("no cell was run")
	}
	j.notComparable(firstErr.Error())
}

func (j *Judgement) weigh(l lab, claims Claims, c Claim, m measurement) {
	t := claims.Tolerances[c.Kind]
	j.Reason = fmt.Sprintf("%s %s against %s: %s", j.Source, formatValue(m.value, c.Unit), formatValue(c.Published, c.Unit), t.distance(m.value, c.Published))
	right, why := l.direction(claims, c, m)
	switch {
	case t.holds(m.value, c.Published) && (right || !c.Measure.Form.signed()):
		j.Verdict = Reproduced
	case right:
		j.Verdict = Direction
		j.Reason += "; " + why
	default:
		// A loss is no small gain, however near to one.
		j.Verdict = NotReproduced
		j.Reason += "; " + why
	}
	j.Reason += caveats(m)
}

// signed is true for forms whose sign is the claim: that something got better
// or worse.
func (f Form) signed() bool {
	return f == FormReduction || f == FormIncrease || f == FormDifference || f == FormRatio
}

// caveats are what weakens the cells that were used.
func caveats(m measurement) string {
	var text strings.Builder
	fewest, saturated := math.MaxInt, 0
	for _, cell := range m.cells {
		fewest = min(fewest, cell.N)
		if cell.Saturated > 0 {
			saturated++
		}
	}
	if m.estimate != nil && m.estimate.Lo != nil {
		fmt.Fprintf(&text, "; interval %s", m.estimate.interval())
	}
	if fewest < minRuns {
		fmt.Fprintf(&text, "; only %d runs a cell", fewest)
	}
	if saturated > 0 {
		fmt.Fprintf(&text, "; %d of %d cells saturated, so it depends on the length of the run", saturated, len(m.cells))
	}
	return text.String()
}

func (t Tolerance) holds(measured, published float64) bool {
	switch {
	case t.AtLeast && t.Points > 0:
		return measured > published
	case t.AtLeast:
		return measured >= published
	case t.AtMost:
		return measured <= published
	case t.Factor > 0:
		return published != 0 && measured/published <= t.Factor && measured/published >= 1/t.Factor
	}
	const rounding = 1e-9
	return math.Abs(measured-published) <= t.Points+rounding
}

// distance says how far the figure is and how far it may be.
func (t Tolerance) distance(measured, published float64) string {
	switch {
	case t.AtLeast:
		return "the published figure is a lower bound"
	case t.AtMost:
		return "the published figure is an upper bound"
	case t.Factor > 0 && measured > 0 && published > 0:
		return fmt.Sprintf("%s, tolerance ×%s", formatRatio(measured/published), trimZero(t.Factor))
	case t.Factor > 0:
		return fmt.Sprintf("other sign, tolerance ×%s", trimZero(t.Factor))
	case t.Points > 0:
		return fmt.Sprintf("%+.2f points, tolerance %s", measured-published, trimZero(t.Points))
	}
	return "must be equal"
}

// direction says whether a figure outside its tolerance has the right sign or
// the right order among its peers.
func (l lab) direction(claims Claims, c Claim, m measurement) (bool, string) {
	measured := m.value
	signed := func(neutral float64, what string) (bool, string) {
		switch {
		case (measured > neutral) != (c.Published > neutral) || measured == neutral:
			return false, "wrong " + what
		case m.effect != nil && m.effect.N >= minRuns && !excludesOne(*m.effect):
			return false, "not distinguishable from no effect"
		}
		return true, "right " + what
	}
	t := claims.Tolerances[c.Kind]
	switch c.Measure.Form {
	case FormReduction, FormIncrease, FormDifference:
		return signed(0, "sign")
	case FormRatio:
		return signed(1, "side of 1")
	case FormFasterShare, FormBetterRuns:
		return signed(50, "side of one half")
	case FormLead:
		return signed(0, "sign")
	case FormRank:
		if 2*measured < float64(len(c.Measure.Among)+1) {
			return true, "still in the better half"
		}
		return false, "not in the better half"
	case FormStableTo:
		if lowest := slices.Min(c.Measure.Of.RPS); measured > lowest {
			return true, fmt.Sprintf("stable from %s to %s RPS", formatRate(lowest), formatRate(measured))
		}
		return false, "not stable beyond the lowest rate"
	}
	if t.AtLeast || t.AtMost {
		if math.Abs(measured-c.Published) <= t.Points {
			return true, fmt.Sprintf("not beyond the bound, but within %s of it", formatValue(t.Points, "points"))
		}
		return false, "on the wrong side of the bound"
	}
	return l.order(claims, c, m)
}

// order compares a plain figure with the others that were published for the
// same scenario, application and metric.
func (l lab) order(claims Claims, c Claim, own measurement) (bool, string) {
	peers := 0
	for _, p := range claims.Claims {
		if !isPeer(c, p) || !differ(c.Published, p.Published, claims.OrderMargin) {
			continue
		}
		peer, err := l.measure(p.Measure)
		if err != nil {
			continue
		}
		peers++
		if (own.value < peer.value) != (c.Published < p.Published) || own.value == peer.value {
			return false, fmt.Sprintf("wrong order against %s (%s)", p.ID, formatValue(peer.value, p.Unit))
		}
		if overlap(own.estimate, peer.estimate) {
			return false, fmt.Sprintf("not distinguishable from %s (%s)", p.ID, formatValue(peer.value, p.Unit))
		}
	}
	if peers == 0 {
		return false, "no other published figure to compare its order with"
	}
	return true, fmt.Sprintf("right order against %s", plural(peers, "other published figure"))
}

// overlap is true when both have an interval and these have a value in common.
func overlap(a, b *Estimate) bool {
	if a == nil || b == nil || a.Lo == nil || b.Lo == nil {
		return false
	}
	return *a.Lo <= *b.Hi && *b.Lo <= *a.Hi
}

func isPeer(c, p Claim) bool {
	a, b := c.Measure, p.Measure
	return p.ID != c.ID && p.Paper == c.Paper && b.Form == FormValue && a.Metric == b.Metric &&
		slices.Equal(a.Of.Scenario, b.Of.Scenario) && slices.Equal(a.Of.App, b.Of.App)
}

func differ(a, b, margin float64) bool {
	return math.Abs(a-b) > margin*math.Min(math.Abs(a), math.Abs(b))
}
