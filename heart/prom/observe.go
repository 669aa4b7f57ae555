package prom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"heartbed/heart"
)

// TopologyFunc says what exists now: nodes, replicas and calls, and the
// round-trip times as far as they are known otherwise. RTT may be nil.
type TopologyFunc func(context.Context) (heart.Topology, error)

// Observer is a heart.Observer over Prometheus. Observe may be called
// concurrently.
type Observer struct {
	config             Config
	client             *client
	topology           TopologyFunc
	cpu, requests, rtt source
	now                func() time.Time
}

var _ heart.Observer = (*Observer)(nil)

// New returns an observer of what topology says exists. It asks Prometheus
// nothing yet.
func New(c Config, topology TopologyFunc) (*Observer, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	c = c.WithDefaults()
	client, err := newClient(c)
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	o := &Observer{
		config: c, client: client, topology: topology, now: time.Now,
		cpu:      newSource("cpu", c.CPU, cpuPresets),
		requests: newSource("requests", c.Requests, requestPresets),
		rtt:      newRTTSource(c.RTT, time.Duration(c.MaxAge)),
	}
	o.requests.mayBeSilent = c.CPU.Preset == ours && c.Requests.Preset == ours &&
		o.cpu.labels.Replica == o.requests.labels.Replica && maps.Equal(c.CPU.Match, c.Requests.Match)
	return o, nil
}

// Observe measures the newest window. It ends with the newest sample that all
// counters reach, and begins with the oldest sample within the configured
// window before that; both are times of Prometheus's clock.
func (o *Observer) Observe(ctx context.Context) (heart.Observation, error) {
	topology, err := o.topology(ctx)
	if err != nil {
		return heart.Observation{}, fmt.Errorf("topology: %w", err)
	}
	topology = withRTT(topology)
	if err := topology.Validate(); err != nil {
		return heart.Observation{}, fmt.Errorf("topology: %w", err)
	}
	if len(topology.Replicas) == 0 {
		return heart.Observation{}, errors.New("topology: no replica, nothing to observe")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.config.Timeout))
	defer cancel()
	r := newRound(o, topology)
	if err := r.clock(ctx); err != nil {
		return heart.Observation{}, err
	}
	replicas, err := r.measure(ctx)
	if err != nil {
		return heart.Observation{}, err
	}
	if err := r.roundTrips(ctx); err != nil {
		return heart.Observation{}, err
	}
	return r.observation(replicas)
}

// round is one observation in the making.
type round struct {
	*Observer
	topology  heart.Topology
	component map[string]string        // by replica
	at        model.Time               // Prometheus's now
	window    span                     // that counters are looked at in
	every     map[string]time.Duration // between two samples, by source
	absent    absent
	warnings  []string
}

func newRound(o *Observer, topology heart.Topology) *round {
	r := &round{Observer: o, topology: topology, component: map[string]string{}, absent: absent{}, every: map[string]time.Duration{}}
	for _, replica := range topology.Replicas {
		r.component[replica.Name] = replica.Component
	}
	return r
}

func (r *round) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// ask evaluates a query at a time of Prometheus's clock.
func (r *round) ask(ctx context.Context, query string, at model.Time) (model.Value, error) {
	value, warnings, err := r.client.ask(ctx, query, at.Time())
	r.warnings = append(r.warnings, warnings...)
	return value, err
}

// maxSkew is by how much Prometheus's clock may differ from this machine's
// without a warning.
const maxSkew = time.Second

// clock takes Prometheus's time: all ages count from it, since samples have it.
func (r *round) clock(ctx context.Context) error {
	asked := r.now()
	value, warnings, err := r.client.ask(ctx, "time()", time.Time{})
	r.warnings = append(r.warnings, warnings...)
	if err != nil {
		return err
	}
	scalar, ok := value.(*model.Scalar)
	if !ok {
		return fmt.Errorf("query time() at %s: found a %v, expected a scalar: is this the address of a Prometheus?", r.client.address, value.Type())
	}
	r.at = scalar.Timestamp
	behind, ahead := asked.Sub(r.at.Time()), r.at.Time().Sub(r.now())
	if skew := max(behind, ahead); skew > maxSkew {
		word := "behind"
		if ahead > behind {
			word = "ahead of"
		}
		r.warn("the clock of Prometheus at %s is %v %s this machine's: the end of an observation is in Prometheus's time", r.client.address, skew.Round(time.Millisecond), word)
	}
	return nil
}

// measure asks for CPU time and requests and gives what they grew by, by
// replica. A replica of which either is missing is absent.
func (r *round) measure(ctx context.Context) (map[string][]grown, error) {
	read := map[string]map[string][]counter{} // by source and replica
	r.window.last = r.at
	for _, s := range []source{r.cpu, r.requests} {
		if s.selector == "" || s.mayBeSilent {
			continue
		}
		counters, err := r.counters(ctx, s)
		if err != nil {
			return nil, err
		}
		newest, err := r.fresh(s, counters)
		if err != nil {
			return nil, err
		}
		read[s.name] = counters
		r.window.last = min(r.window.last, newest)
	}
	r.window.first = r.window.last.Add(-time.Duration(r.config.Window))

	cpu, requests := read[r.cpu.name], read[r.requests.name]
	if r.requests.mayBeSilent {
		return r.withSilent(ctx, cpu)
	}
	all, err := r.either(ctx, r.cpu, cpu)
	if err != nil {
		return nil, err
	}
	answered, err := r.either(ctx, r.requests, requests)
	if err != nil {
		return nil, err
	}
	for replica := range all {
		if answered[replica] == nil {
			delete(all, replica)
		} else {
			all[replica] = append(all[replica], answered[replica]...)
		}
	}
	return all, nil
}

// batch is of how many replicas requests are asked for at once. Where each
// component calls the next, 400 replicas show 25,000 counters.
const batch = 40

// withSilent adds the requests to the CPU time of the same processes, a few
// replicas at a time, so that what is held at once does not grow with their
// number. Only the window is asked for, and the millisecond before, since
// Prometheus 3 leaves out the sample that a range begins with.
func (r *round) withSilent(ctx context.Context, cpu map[string][]counter) (map[string][]grown, error) {
	s, reach := r.requests, r.config.Window+model.Duration(time.Millisecond)
	in, all := r.newIntake(s), map[string][]grown{}
	for replicas := range slices.Chunk(r.topology.Replicas, batch) {
		counters, err := in.read(ctx, fmt.Sprintf("%s[%s]", s.of(replicas), reach), r.window.last)
		if err != nil {
			return nil, err
		}
		for _, replica := range replicas {
			if len(cpu[replica.Name]) > 0 {
				counters[replica.Name] = append(counters[replica.Name], cpu[replica.Name]...)
			} else {
				delete(counters, replica.Name)
			}
		}
		maps.Copy(all, r.grow(r.cpu, replicas, counters, "cpu and requests"))
	}
	nameless := s.with(s.labels.Replica + `=""`)
	n, err := r.count(ctx, fmt.Sprintf("count_over_time(%s[%s])", nameless, r.config.Window+r.config.MaxAge))
	if err != nil {
		return nil, err
	}
	in.without = n
	return all, in.err(nameless)
}

// either gives a source's amounts by replica, from its counters or by the
// user's PromQL.
func (r *round) either(ctx context.Context, s source, counters map[string][]counter) (map[string][]grown, error) {
	if s.promql != "" {
		return r.amounts(ctx, s)
	}
	return r.grow(s, r.topology.Replicas, counters, s.name), nil
}

// grow is what the counters of every replica grew by in the window. Replicas
// without a result are noted with the reason.
func (r *round) grow(s source, replicas []heart.Replica, of map[string][]counter, what string) map[string][]grown {
	all := map[string][]grown{}
	oldest := r.at.Add(-time.Duration(r.config.MaxAge))
	for _, replica := range replicas {
		counters := of[replica.Name]
		if len(counters) == 0 {
			r.absent.add(what+": no series", replica.Name)
			continue
		}
		if newest := newestOf(counters); newest < oldest {
			r.absent.add(fmt.Sprintf("%s: no sample within %v (maxAge)", what, r.config.MaxAge), replica.Name)
			continue
		}
		if d := duplicate(counters, r.window); d != "" {
			r.absent.add(fmt.Sprintf("%s: two series count the same (%s); select one of them by match", what, d), replica.Name)
			continue
		}
		grew := apart
		if s.together {
			grew = together
		}
		got := grew(counters, r.window)
		if len(got) == 0 {
			r.absent.add(fmt.Sprintf("%s: fewer than two samples in a window of %v%s", what, r.config.Window, r.rhythm(s)), replica.Name)
			continue
		}
		all[replica.Name] = got
	}
	return all
}

// rhythm says how often there are samples, for a message.
func (r *round) rhythm(s source) string {
	if every := r.every[s.name]; every > 0 {
		return fmt.Sprintf(" (they come every %v)", every.Round(time.Millisecond))
	}
	return ""
}

func newestOf(counters []counter) model.Time {
	var newest model.Time
	for _, c := range counters {
		if n := len(c.points); n > 0 {
			newest = max(newest, c.points[n-1].Timestamp)
		}
	}
	return newest
}

// observation extrapolates what counters grew by to the time from the first
// sample of any of them to the end of the window.
func (r *round) observation(replicas map[string][]grown) (heart.Observation, error) {
	for _, reason := range r.absent.list() {
		r.warn("absent: %s", reason)
	}
	if len(replicas) == 0 {
		return heart.Observation{}, fmt.Errorf("no replica was observed at %s: %s", r.client.address, strings.Join(r.absent.list(), "; "))
	}
	first := r.window.last
	for _, all := range replicas {
		for _, g := range all {
			first = min(first, g.seen.first)
		}
	}
	whole := r.window.last.Sub(first)
	o := heart.Observation{
		Topology: r.topology, End: r.window.last.Time().UTC(), Window: whole,
		Replicas: map[string]heart.Sample{}, Calls: map[heart.Call]float64{}, Warnings: r.warnings,
	}
	callers := r.requests.labels.CallerReplica != "" || r.requests.labels.CallerComponent != ""
	for _, replica := range r.topology.Replicas { // in order: sums of fractions depend on it
		all, observed := replicas[replica.Name]
		if !observed {
			continue
		}
		var sample heart.Sample
		by := map[string]float64{} // requests by caller component
		for _, g := range all {
			amount := g.amount * float64(whole) / float64(g.seen.last.Sub(g.seen.first))
			if g.cpu {
				sample.CPUSeconds += amount
				continue
			}
			sample.Requests += amount
			by[g.caller] += amount
		}
		o.Replicas[replica.Name] = sample
		for _, call := range r.topology.Calls {
			if callers && call.To == replica.Component {
				o.Calls[call] += by[call.From] // 0 is an observation, too
			}
		}
	}
	return o, nil
}
