package prom

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// enough is how many scrapes a window should hold: with fewer, one that fails
// makes a replica absent.
const enough = 4

// counters reads a source's counters of the replicas. The range reaches further
// back than the window by MaxAge, so that a source that lags can be told from
// one that is not there.
func (r *round) counters(ctx context.Context, s source) (map[string][]counter, error) {
	query := fmt.Sprintf("%s[%s]", s.selector, r.config.Window+r.config.MaxAge)
	in := r.newIntake(s)
	of, err := in.read(ctx, query, r.at)
	if err != nil {
		return nil, err
	}
	if in.found+in.without == 0 && in.other == "" {
		return nil, r.nothing(ctx, s, query)
	}
	return of, in.err(query)
}

// fresh gives the time of the newest sample of a source's counters and checks
// how it fits the window.
func (r *round) fresh(s source, of map[string][]counter) (model.Time, error) {
	newest, every := rhythm(of)
	if age := r.at.Sub(newest); age > time.Duration(r.config.MaxAge) {
		return 0, r.fault(s, s.selector, "the newest sample is %v old, maxAge is %v: does Prometheus still scrape? See %s/targets", age, r.config.MaxAge, r.client.address)
	}
	r.every[s.name] = every
	if every*enough > time.Duration(r.config.Window) {
		r.warn("%s: a window of %v holds fewer than %d samples, which come every %v: make the window longer or scrape more often", s.name, r.config.Window, enough, every.Round(time.Millisecond))
	}
	return newest, nil
}

// rhythm is the time of the newest sample and the shortest time that there is
// on average between the samples of a counter; 0 = no counter has two.
func rhythm(of map[string][]counter) (newest model.Time, every time.Duration) {
	for _, counters := range of {
		newest = max(newest, newestOf(counters))
		for _, c := range counters {
			n := len(c.points)
			if n < 2 {
				continue
			}
			gap := c.points[n-1].Timestamp.Sub(c.points[0].Timestamp) / time.Duration(n-1)
			if every == 0 || gap < every {
				every = gap
			}
		}
	}
	return newest, every
}

// amounts asks the user's PromQL for what the window holds, at its end.
func (r *round) amounts(ctx context.Context, s source) (map[string][]grown, error) {
	query := strings.ReplaceAll(s.promql, windowVariable, r.config.Window.String())
	vector, err := r.vector(ctx, s, query, r.window.last)
	if err != nil {
		return nil, err
	}
	known := r.join(s, "replica", s.labels.Replica)
	of, seen := map[string][]grown{}, map[string]labels{}
	faulty := map[string]string{} // reason, by replica
	for _, sample := range vector {
		l := labelsOf(sample.Metric)
		replica, ok := known.name(l)
		if !ok {
			continue
		}
		key := string(l.text([]byte(replica+"\xff"), s.counts))
		if other, twice := seen[key]; twice {
			faulty[replica] = fmt.Sprintf("two series count the same (%s)", differences(other, l))
		}
		if !possible(model.SamplePair{Value: sample.Value}) {
			faulty[replica] = "below zero or no finite number"
		}
		seen[key] = l
		of[replica] = append(of[replica], grown{
			caller: r.caller(s, l), cpu: s.name == r.cpu.name, amount: float64(sample.Value), seen: r.window,
		})
	}
	if err := known.err(query); err != nil {
		return nil, err
	}
	for _, replica := range r.topology.Replicas {
		if of[replica.Name] == nil {
			faulty[replica.Name] = "no series"
		}
		if reason := faulty[replica.Name]; reason != "" {
			r.absent.add(s.name+": "+reason, replica.Name)
			delete(of, replica.Name)
		}
	}
	return of, nil
}

// vector asks for one value a series. None is an error.
func (r *round) vector(ctx context.Context, s source, query string, at model.Time) (model.Vector, error) {
	value, err := r.ask(ctx, query, at)
	if err != nil {
		return nil, err
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, r.fault(s, query, "found a %v, expected a vector", value.Type())
	}
	if len(vector) == 0 {
		return nil, r.nothing(ctx, s, query)
	}
	for _, sample := range vector {
		if sample.Histogram != nil {
			return nil, r.fault(s, query, "%s is a histogram, expected a number", sample.Metric)
		}
	}
	return vector, nil
}

func (r *round) fault(s source, query, format string, args ...any) error {
	return fmt.Errorf("%s: query %s at %s: %s", s.name, query, r.client.address, fmt.Sprintf(format, args...))
}

// nothing says why an answer is empty: labels that are missing are another
// fault than a metric that nobody scrapes.
func (r *round) nothing(ctx context.Context, s source, query string) error {
	if s.metric != "" {
		n, err := r.count(ctx, s.metric)
		if err != nil {
			return err
		}
		if n > 0 {
			return r.fault(s, query, "there are %d series of %s, but none has the labels asked for: "+
				"correct match, or see why the exporter gives no such labels (docs/prometheus.md)", n, s.metric)
		}
	}
	targets, err := r.count(ctx, "up")
	if err != nil {
		return err
	}
	down, err := r.count(ctx, "up == 0")
	if err != nil {
		return err
	}
	return r.fault(s, query, "no series; Prometheus has %d targets, %d of them down: see %s/targets", targets, down, r.client.address)
}

// count is how many series there are now.
func (r *round) count(ctx context.Context, what string) (int, error) {
	value, err := r.ask(ctx, "count("+what+")", r.at)
	if err != nil {
		return 0, err
	}
	if vector, ok := value.(model.Vector); ok && len(vector) == 1 {
		return int(vector[0].Value), nil
	}
	return 0, nil
}
