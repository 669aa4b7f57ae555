package prom

import (
	"context"
	"slices"

	"github.com/prometheus/common/model"
)

// intake makes counters of the series of a source. What many series have in
// common is kept once.
type intake struct {
	*join
	subjects map[string]*subject
	origins  map[string]*origin
	text     []byte
	spoilt   int // samples that no counter can have
}

func (r *round) newIntake(s source) *intake {
	return &intake{join: r.join(s, "replica", s.labels.Replica), subjects: map[string]*subject{}, origins: map[string]*origin{}}
}

// read asks for counters and gives those of every replica.
func (in *intake) read(ctx context.Context, query string, at model.Time) (map[string][]counter, error) {
	of, histogram, r := map[string][]counter{}, "", in.round
	value, warnings, err := r.client.stream(ctx, query, at.Time(), func(x series) {
		if x.histogram {
			histogram = x.labels.String()
		}
		if replica, ok := in.name(x.labels); ok {
			of[replica] = append(of[replica], in.counter(x))
			in.spoilt += len(x.points) - len(usable(x.points))
		}
	})
	r.warnings = append(r.warnings, warnings...)
	if err != nil {
		return nil, err
	}
	if matrix, ok := value.(model.Matrix); !ok || len(matrix) > 0 {
		return nil, r.fault(in.source, query, "found a %v, expected samples of counters, after their type", value.Type())
	}
	if histogram != "" {
		return nil, r.fault(in.source, query, "%s is a histogram, expected a counter", histogram)
	}
	return of, nil
}

// err is the join's. Samples that were left out are a warning.
func (in *intake) err(query string) error {
	if in.spoilt > 0 {
		in.round.warn("%s: left out %d samples that are below zero or no finite number", in.source.name, in.spoilt)
	}
	return in.join.err(query)
}

func (in *intake) counter(x series) counter {
	in.text = x.labels.text(in.text[:0], in.counts)
	what, known := in.subjects[string(in.text)]
	if !known {
		what = &subject{
			key: in.source.name + "\xff" + string(in.text), caller: in.round.caller(in.source, x.labels), cpu: in.source.name == in.round.cpu.name,
		}
		in.subjects[string(in.text)] = what
	}
	others := func(name string) bool { return !in.counts(name) }
	in.text = x.labels.text(in.text[:0], others)
	from, known := in.origins[string(in.text)]
	if !known {
		from = &origin{labels: x.labels.only(others), target: string(x.labels.text(nil, isOfTarget))}
		in.origins[string(in.text)] = from
	}
	return counter{subject: what, from: from, points: slices.Clone(x.points)}
}

// caller is the component that the series' requests come from.
func (r *round) caller(s source, l labels) string {
	if s.labels.CallerComponent != "" {
		return l.get(s.labels.CallerComponent)
	}
	return r.component[l.get(s.labels.CallerReplica)]
}

// counts says whether the label tells what the series counts, apart from the
// replica.
func (s source) counts(name string) bool {
	switch {
	case name == s.labels.Replica:
		return false
	case name == s.labels.CallerReplica, name == s.labels.CallerComponent:
		return true
	case s.distinct != nil:
		return slices.Contains(s.distinct, name)
	}
	return !isOfTarget(name)
}
