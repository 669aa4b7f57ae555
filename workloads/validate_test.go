package workloads

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// valid is an application that nothing is wrong with.
func valid() Application {
	return Application{
		Name: "shop", Entry: "front",
		Components: []Component{
			{Name: "front", Replicas: 2, Steps: []Step{{CPUMs: 1}, {Call: []string{"cart", "cart"}, Probability: 0.5}}},
			{Name: "cart", Replicas: 1, Steps: []Step{{Choose: map[string]float64{"east": 0.25, "west": 0.75}}}},
			{Name: "east", Replicas: 1, Steps: []Step{{CPUMs: 0.1}}},
			{Name: "west", Replicas: 1, Steps: []Step{{CPUMs: 0.1}}},
		},
		ServiceTime: Distribution{Kind: "lognormal", CV: 0.7},
		Server:      Server{Threads: 1, LimitCores: 0.5, Period: seconds(0.1)},
	}
}

// All faults of an application are said at once and in a fixed order.
func TestValidateSaysAllFaultsOfAnApplication(t *testing.T) {
	require.NoError(t, valid().Validate())
	a := Application{
		Name: "bad", Entry: "nowhere",
		Components: []Component{
			{Name: "a", Replicas: 0, Steps: nil},
			{Name: "a", Replicas: -1, Steps: []Step{
				{},
				{CPUMs: 1, Call: []string{"a"}, Choose: map[string]float64{"a": 1}},
				{CPUMs: -2},
				{CPUMs: math.NaN()},
				{CPUMs: math.Inf(1)},
				{CPUMs: 1, Probability: 0.5},
			}},
			{Name: "", Replicas: 1, Steps: []Step{
				{Call: []string{"gone"}, Probability: math.NaN()},
				{Call: []string{"a"}, Probability: -0.1},
				{Choose: map[string]float64{"x": 0.5, "a": math.NaN(), "w": 2, "b": -1}},
			}},
		},
		ServiceTime: Distribution{Kind: "weibull"},
		Server:      Server{Slots: -1, Threads: math.NaN(), LimitCores: -0.5},
	}
	want := []string{
		`components: "a" is listed twice`,
		`components: found one without a name`,
		`entry: found "nowhere", expected one of the components`,
		`components.a.replicas: found 0, expected 1 or more`,
		`components.a.steps: found none, expected CPU work or a call`,
		`components.a.replicas: found -1, expected 1 or more`,
		`components.a.steps[0]: found 0 of cpuMs, call and choose, expected exactly one`,
		`components.a.steps[1]: found 3 of cpuMs, call and choose, expected exactly one`,
		`components.a.steps[2].cpuMs: found -2, expected a number above 0`,
		`components.a.steps[3].cpuMs: found NaN, expected a number above 0`,
		`components.a.steps[4].cpuMs: found +Inf, expected a number above 0`,
		`components.a.steps[5].probability: found 0.5 on CPU work, expected it on a call only`,
		`components..steps[0].probability: found NaN, expected 0 to 1`,
		`components..steps[0].call: component "gone" is not listed`,
		`components..steps[1].probability: found -0.1, expected 0 to 1`,
		`components..steps[2].choose: the probabilities add up to NaN, expected 1`,
		`components..steps[2].choose.a: found NaN, expected 0 to 1`,
		`components..steps[2].choose: component "b" is not listed`,
		`components..steps[2].choose.b: found -1, expected 0 to 1`,
		`components..steps[2].choose: component "w" is not listed`,
		`components..steps[2].choose.w: found 2, expected 0 to 1`,
		`components..steps[2].choose: component "x" is not listed`,
		`components: the call graph has a cycle a -> a, expected none`,
		`serviceTime.kind: found "weibull", expected deterministic, exponential or lognormal`,
		`server.slots: found -1, expected 0 (no limit) or more`,
		`server.threads: found NaN, expected a number above 0`,
		`server.limitCores: found -0.5, expected a number of 0 or more`,
	}
	for range 20 { // maps are walked in order
		require.Equal(t, want, texts(a.Validate(), `application "bad": `))
	}
}

// texts lists joined errors, each less its prefix.
func texts(err error, prefix string) []string {
	var all []string
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		all = append(all, e.Error()[len(prefix):])
	}
	return all
}

// One change to a valid application, one fault.
func TestValidateApplication(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Application)
		want   string
	}{
		{"no components", func(a *Application) { a.Components = nil }, "components: found none, expected at least one"},
		{"cycle of two", func(a *Application) { a.Components[2].Steps = []Step{{Call: []string{"cart"}}} },
			"components: the call graph has a cycle cart -> east -> cart, expected none"},
		{"cycle that only chance closes", func(a *Application) { a.Components[3].Steps = []Step{{Call: []string{"front"}, Probability: 0.001}} },
			"components: the call graph has a cycle front -> cart -> west -> front, expected none"},
		{"cycle away from the entry", func(a *Application) {
			a.Components = append(a.Components, Component{Name: "loop", Replicas: 1, Steps: []Step{{Call: []string{"loop"}}}})
		}, "components: the call graph has a cycle loop -> loop, expected none"},
		{"probabilities below one", func(a *Application) { a.Components[1].Steps[0].Choose["west"] = 0.5 },
			"components.cart.steps[0].choose: the probabilities add up to 0.75, expected 1"},
		{"cv", func(a *Application) { a.ServiceTime.CV = math.NaN() }, "serviceTime.cv: found NaN, expected a number of 0 or more"},
		{"infinite threads", func(a *Application) { a.Server.Threads = math.Inf(1) }, "server.threads: found +Inf, expected a number above 0"},
		{"burst without a quota", func(a *Application) { a.Server = Server{Threads: 1, Burst: 1} },
			"server.limitCores: found 0 with a period or burst, expected a quota"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := valid()
			c.change(&a)
			require.Equal(t, []string{c.want}, texts(a.Validate(), `application "shop": `))
		})
	}
	a := valid()
	a.Components[1].Steps[0].Choose = map[string]float64{"east": 1. / 3, "west": 2. / 3}
	require.NoError(t, a.Validate(), "thirds add up to 1 as floats do")
}

func TestValidateLoad(t *testing.T) {
	wrk2 := Load{Schedule: "wrk2", Threads: 4, Connections: 10}
	open := Load{Schedule: "open", Arrivals: "poisson"}
	for _, c := range []struct {
		name   string
		load   Load
		change func(*Load)
		want   []string
	}{
		{"wrk2", wrk2, func(*Load) {}, nil},
		{"open", open, func(l *Load) { l.Profile = []RatePoint{{0, 1}, {1, 0}} }, nil},
		{"recorded", open, func(l *Load) { l.Recorded = &Recorded{Interval: 1, RPS: []float64{0, 1}} }, nil},
		{"nothing", Load{}, func(*Load) {}, []string{`schedule: found "", expected wrk2 or open`}},
		{"wrk2 with what open has", wrk2, func(l *Load) {
			l.Arrivals, l.Threads, l.Connections, l.Recorded = "even", 0, 0, &Recorded{Interval: 1, RPS: []float64{1}}
		}, []string{
			"threads: found 0, expected 1 or more", "connections: found 0, expected at least one a thread (0)",
			"profile: found one with the wrk2 schedule, expected none: wrk2 keeps one rate (use open)",
			`arrivals: found "even" with the wrk2 schedule, expected none`,
		}},
		{"fewer connections than threads", wrk2, func(l *Load) { l.Connections = 3 }, []string{"connections: found 3, expected at least one a thread (4)"}},
		{"arrivals", open, func(l *Load) { l.Arrivals = "bursty" }, []string{`arrivals: found "bursty", expected even or poisson`}},
		{"profile", open, func(l *Load) {
			l.Profile = []RatePoint{{seconds(1), -1}, {seconds(1), math.NaN()}, {seconds(0.5), math.Inf(1)}}
		}, []string{
			"profile[0].factor: found -1, expected a number of 0 or more", "profile[0].at: found 1s, expected 0s",
			"profile[1].factor: found NaN, expected a number of 0 or more", "profile[1].at: found 1s, expected later than 1s",
			"profile[2].factor: found +Inf, expected a number of 0 or more", "profile[2].at: found 500ms, expected later than 1s",
		}},
		{"recorded rates", open, func(l *Load) {
			l.Profile, l.Recorded = []RatePoint{{0, 1}}, &Recorded{RPS: []float64{-1, math.NaN()}}
		}, []string{
			"recorded: found one beside a profile, expected one of the two", "recorded.interval: found 0, expected a number above 0",
			"recorded.rps[0]: found -1, expected a number of 0 or more", "recorded.rps[1]: found NaN, expected a number of 0 or more",
			"sum of recorded.rps: found NaN, expected a number above 0",
		}},
		{"recorded nothing", open, func(l *Load) { l.Recorded = &Recorded{Interval: 1} }, []string{"sum of recorded.rps: found 0, expected a number above 0"}},
		{"recorded for centuries", open, func(l *Load) { l.Recorded = &Recorded{Interval: Duration(farthest), RPS: []float64{1, 1}} },
			[]string{fmt.Sprintf("recorded.interval: found %v for 2 rates, expected at most %v in all", farthest, farthest)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change(&c.load)
			require.Equal(t, c.want, texts(c.load.Validate(), "load."))
		})
	}
}
