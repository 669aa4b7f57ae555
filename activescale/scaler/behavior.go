package scaler

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Behavior is an HPA's own limits.
type Behavior struct{ Up, Down Rules }

// Rules of one direction.
type Rules struct {
	// Stabilization is how far back recommendations count: out takes the least
	// of them, in the greatest.
	Stabilization time.Duration
	Policies      []Policy
	// Least takes the policy that changes least instead of most.
	Least bool
}

// Policy limits the change within a period: by Pods or, where that is 0, by
// Percent of the replicas at its start.
type Policy struct {
	Pods, Percent int
	Period        time.Duration
}

// Kubernetes' limits for an HPA without behavior.
const (
	legacyStabilization = 5 * time.Minute
	legacyUpFactor      = 2
	legacyUpMinimum     = 4
)

func (r Rules) validate() error {
	var faults []error
	if len(r.Policies) == 0 {
		faults = append(faults, errors.New("found no policy, expected at least one"))
	}
	for i, p := range r.Policies {
		if p.Period <= 0 || p.Pods < 0 || p.Percent < 0 || (p.Pods == 0) == (p.Percent == 0) {
			faults = append(faults, fmt.Errorf("policies[%d]: found %d pods, %d percent in %v, expected one of both above 0 and a period", i, p.Pods, p.Percent, p.Period))
		}
	}
	if r.Stabilization < 0 {
		faults = append(faults, fmt.Errorf("stabilization: found %v, expected 0s or more", r.Stabilization))
	}
	return errors.Join(faults...)
}

// limits is what an HPA does to a proposal: it steadies it by what was proposed
// before and bounds how fast the replicas change. It remembers; the HPA
// controller loses that memory when it restarts.
type limits struct {
	min, max int
	behavior *Behavior // nil = Kubernetes' rules without one
	proposed []change  // earlier proposals
	out, in  []change  // earlier changes of replicas
}

// change is a number of replicas and when it was proposed, added or removed.
type change struct {
	at       time.Duration
	replicas int
}

// apply turns a proposal into the replicas to ask for and remembers both.
func (l *limits) apply(now time.Duration, current, proposed int) int {
	if l.behavior == nil {
		return l.legacy(now, current, proposed)
	}
	replicas := l.bound(now, current, l.stabilize(now, current, proposed))
	switch {
	case replicas > current:
		l.out = append(l.out, change{now, replicas - current})
	case replicas < current:
		l.in = append(l.in, change{now, current - replicas})
	}
	return replicas
}

// legacy is the rule without a behavior: the highest proposal of five minutes,
// at most the double of now or four.
func (l *limits) legacy(now time.Duration, current, proposed int) int {
	steady := proposed
	for _, c := range l.proposed {
		if c.at >= now-legacyStabilization {
			steady = max(steady, c.replicas)
		}
	}
	l.proposed = append(l.proposed, change{now, proposed})
	upper := min(l.max, max(legacyUpFactor*current, legacyUpMinimum))
	return min(max(steady, l.min), upper)
}

// stabilize keeps the replicas between the least and the greatest proposal of
// the two windows.
func (l *limits) stabilize(now time.Duration, current, proposed int) int {
	least, greatest := proposed, proposed
	for _, c := range l.proposed {
		if c.at > now-l.behavior.Up.Stabilization {
			least = min(least, c.replicas)
		}
		if c.at > now-l.behavior.Down.Stabilization {
			greatest = max(greatest, c.replicas)
		}
	}
	l.proposed = append(l.proposed, change{now, proposed})
	return min(max(current, least), greatest)
}

// bound limits the change by the policies, then by the HPA's replicas.
func (l *limits) bound(now time.Duration, current, steady int) int {
	switch {
	case steady > current:
		upper := max(current, l.limit(now, current, l.behavior.Up, func(start int, p Policy) int {
			if p.Pods > 0 {
				return start + p.Pods
			}
			return int(math.Ceil(float64(start) * (1 + float64(p.Percent)/100)))
		}, l.behavior.Up.Least))
		return min(steady, upper, l.max)
	case steady < current:
		lower := min(current, l.limit(now, current, l.behavior.Down, func(start int, p Policy) int {
			if p.Pods > 0 {
				return start - p.Pods
			}
			return int(float64(start) * (1 - float64(p.Percent)/100))
		}, !l.behavior.Down.Least))
		return max(steady, lower, l.min)
	}
	return steady
}

// limit takes the lowest or highest number that the policies allow, each from
// the replicas at the start of its period.
func (l *limits) limit(now time.Duration, current int, r Rules, allow func(start int, p Policy) int, lowest bool) int {
	result := 0
	for i, p := range r.Policies {
		start := current - within(l.out, now-p.Period) + within(l.in, now-p.Period)
		allowed := allow(start, p)
		if i == 0 || lowest && allowed < result || !lowest && allowed > result {
			result = allowed
		}
	}
	return result
}

// within adds up the changes after a moment.
func within(changes []change, after time.Duration) int {
	sum := 0
	for _, c := range changes {
		if c.at > after {
			sum += c.replicas
		}
	}
	return sum
}
