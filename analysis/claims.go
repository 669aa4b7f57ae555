package analysis

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

//go:embed claims.yaml
var claimsYAML []byte

// Claims is the published figures and how close counts as reproduced.
type Claims struct {
	Tolerances map[string]Tolerance `yaml:"tolerances"` // by kind
	// OrderMargin is how much two published figures must differ, as a
	// fraction of the smaller, before their order says anything.
	OrderMargin float64 `yaml:"orderMargin"`
	Claims      []Claim `yaml:"claims"`
}

// Tolerance is how far a measured figure may be from the published one. The
// zero value asks for the very figure.
type Tolerance struct {
	Factor   float64 `yaml:"factor"`   // of the published figure, either way; 0 = Points counts
	Points   float64 `yaml:"points"`   // in the figure's own unit, either way
	Exponent float64 `yaml:"exponent"` // of growth with the number of replicas
	AtLeast  bool    `yaml:"atLeast"`  // the published figure is a lower bound
	AtMost   bool    `yaml:"atMost"`   // the published figure is an upper bound
}

// Claim is one published figure, bound to the experiment that measures it.
type Claim struct {
	ID        string  `yaml:"id"`
	Paper     string  `yaml:"paper"`
	Says      string  `yaml:"says"` // what is published, in our words
	Published float64 `yaml:"published"`
	Unit      string  `yaml:"unit"` // ms, %, points, x, RPS or rank
	Kind      string  `yaml:"kind"` // names the tolerance
	Measure   Measure `yaml:"measure"`
	Note      string  `yaml:"note"` // what is known to contradict the figure, or was chosen freely
}

// Measure binds a claim to cells or to another output of the experiments.
type Measure struct {
	Metric    string    `yaml:"metric"`
	Form      Form      `yaml:"form"`
	Of        Selector  `yaml:"of"`
	Against   *Selector `yaml:"against"`
	Among     []string  `yaml:"among"`  // policies that are ranked
	Take      string    `yaml:"take"`   // over several cells
	Factor    float64   `yaml:"factor"` // that the metric may rise by and still be stable
	Scale     *Growth   `yaml:"scale"`
	Vector    string    `yaml:"vector"`
	Undefined string    `yaml:"undefined"`
}

// Form is what is computed from the cells.
type Form string

const (
	FormValue       Form = "value"
	FormReduction   Form = "reduction"   // 100 (1 - of / against), percent
	FormIncrease    Form = "increase"    // 100 (of / against - 1), percent
	FormRatio       Form = "ratio"       // of / against
	FormDifference  Form = "difference"  // of - against
	FormRank        Form = "rank"        // place of `of` among the policies, 1 = lowest
	FormStableFrom  Form = "stableFrom"  // lowest rate within Factor of the sweep's lowest value
	FormStableTo    Form = "stableTo"    // highest rate up to which all are within Factor of the value at the lowest rate
	FormFasterShare Form = "fasterShare" // share of the quantiles at which `of` is below `against`, percent
	FormBetterRuns  Form = "betterRuns"  // runs in which `of` covers more than `against`, percent
	FormLead        Form = "lead"        // seconds that `of` starts to scale out before `against`, taken over the runs in which both do
)

// Growth is the exponent of scheduling time over replicas.
type Growth struct {
	Policy          string  `yaml:"policy"`
	Replicas        int     `yaml:"replicas"` // of the absolute time that is shown
	From            int     `yaml:"from"`
	To              int     `yaml:"to"`
	PublishedFromMs float64 `yaml:"publishedFromMs"`
	PublishedToMs   float64 `yaml:"publishedToMs"`
	Rival           string  `yaml:"rival"` // policy whose growth is compared for the direction
}

// Selector names cells: each combination of its values.
type Selector struct {
	Scenario OneOrMore[string]  `yaml:"scenario"`
	App      OneOrMore[string]  `yaml:"app"`
	Policy   OneOrMore[string]  `yaml:"policy"`
	RPS      OneOrMore[float64] `yaml:"rps"`
}

// OneOrMore reads a YAML scalar as a list of one.
type OneOrMore[T any] []T

// UnmarshalYAML implements yaml.Unmarshaler.
func (o *OneOrMore[T]) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.SequenceNode {
		return node.Decode((*[]T)(o))
	}
	var one T
	if err := node.Decode(&one); err != nil {
		return err
	}
	*o = OneOrMore[T]{one}
	return nil
}

// cells lists the keys of the selector, without a backend.
func (s Selector) cells() []Key {
	var keys []Key
	for _, scenario := range s.Scenario {
		for _, app := range s.App {
			for _, policy := range s.Policy {
				for _, rps := range s.RPS {
					keys = append(keys, Key{Scenario: scenario, App: app, Policy: policy, RPS: rps})
				}
			}
		}
	}
	return keys
}

// against lists what a cell is compared with: the cell with the selector's
// fields in place of its own.
func (s Selector) against(k Key) []Key {
	overlay := Selector{OneOrMore[string]{k.Scenario}, OneOrMore[string]{k.App}, OneOrMore[string]{k.Policy}, OneOrMore[float64]{k.RPS}}
	if len(s.Scenario) > 0 {
		overlay.Scenario = s.Scenario
	}
	if len(s.App) > 0 {
		overlay.App = s.App
	}
	if len(s.Policy) > 0 {
		overlay.Policy = s.Policy
	}
	if len(s.RPS) > 0 {
		overlay.RPS = s.RPS
	}
	return overlay.cells()
}

// LoadClaims gives the published figures of HEART, LATA and activescale.
func LoadClaims() (Claims, error) { return parseClaims(claimsYAML) }

func parseClaims(data []byte) (Claims, error) {
	var c Claims
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		return Claims{}, fmt.Errorf("read claims: %w", err)
	}
	seen := map[string]bool{}
	var faults []error
	for i := range c.Claims {
		claim := &c.Claims[i]
		if claim.Measure.Form == "" {
			claim.Measure.Form = FormValue
		}
		if seen[claim.ID] {
			faults = append(faults, fmt.Errorf("%s: found twice, expected one claim an id", claim.ID))
		}
		seen[claim.ID] = true
		if err := c.check(*claim); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", claim.ID, err))
		}
	}
	if len(faults) > 0 {
		return Claims{}, fmt.Errorf("read claims: %w", errors.Join(faults...))
	}
	return c, nil
}

// check finds claims that could not be judged.
func (c Claims) check(claim Claim) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, f := range []struct{ field, value string }{{"id", claim.ID}, {"paper", claim.Paper}, {"says", claim.Says}, {"unit", claim.Unit}} {
		if f.value == "" {
			fault("%s: found nothing, expected a text", f.field)
		}
	}
	if _, ok := c.Tolerances[claim.Kind]; !ok {
		fault("kind: found %q, expected one of %v", claim.Kind, slices.Sorted(maps.Keys(c.Tolerances)))
	}
	m := claim.Measure
	if m.Undefined != "" || m.Vector != "" || m.Scale != nil {
		return errors.Join(faults...)
	}
	keys := m.Of.cells()
	if len(keys) == 0 {
		fault("measure.of: found no cell, expected scenario, app, policy and rps")
	}
	forms := map[Form]bool{ // -> is compared with other cells
		FormValue: false, FormRank: false, FormStableFrom: false, FormStableTo: false,
		FormReduction: true, FormIncrease: true, FormRatio: true, FormDifference: true, FormFasterShare: true, FormBetterRuns: true, FormLead: true,
	}
	compared, known := forms[m.Form]
	if !known {
		fault("measure.form: found %q, expected one of %v", m.Form, slices.Sorted(maps.Keys(forms)))
	}
	if compared != (m.Against != nil) {
		fault("measure.against: form %q and `against` do not fit", m.Form)
	}
	paired := m.Form == FormBetterRuns || m.Form == FormLead
	if _, ok := metrics[m.Metric]; !ok && m.Form != FormFasterShare && !paired {
		fault("measure.metric: found %q, expected one of %v", m.Metric, slices.Sorted(maps.Keys(metrics)))
	}
	if _, ok := takers[m.Take]; !ok {
		fault("measure.take: found %q, expected one of %v", m.Take, slices.Sorted(maps.Keys(takers)))
	}
	sweep := m.Form == FormStableFrom || m.Form == FormStableTo
	if several := len(keys) > 1 || (m.Against != nil && len(keys) == 1 && len(m.Against.against(keys[0])) > 1); several && !sweep && m.Take == "" {
		fault("measure.take: found nothing for several cells, expected min, max, mean or median")
	}
	return errors.Join(faults...)
}
