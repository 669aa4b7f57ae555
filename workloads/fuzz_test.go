package workloads

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzArrivals: whatever load validates, its due times are sorted and not
// before the start, and as many fall due as the integral of the rate says:
// exactly for even arrivals, within eight standard deviations for Poisson.
// rates are taken as a recorded load, or as a profile of the same lengths.
func FuzzArrivals(f *testing.F) {
	f.Add(100.0, false, false, uint64(1), int64(time.Second), []byte{30, 0, 15})
	f.Add(0.3, true, true, uint64(2), int64(time.Minute), []byte{1, 0})
	f.Add(1e-12, true, false, uint64(3), int64(1), []byte{})
	f.Add(5000.0, false, true, uint64(4), int64(math.MaxInt64), []byte{0, 255, 1})
	f.Fuzz(func(t *testing.T, rps float64, poisson, profile bool, seed uint64, interval int64, rates []byte) {
		l := Load{Schedule: "open", Arrivals: "even"}
		if poisson {
			l.Arrivals = "poisson"
		}
		switch {
		case len(rates) > 0 && profile:
			for i, r := range rates {
				l.Profile = append(l.Profile, RatePoint{At: Duration(int64(i) * interval), Factor: float64(r)})
			}
		case len(rates) > 0:
			l.Recorded = &Recorded{Interval: Duration(interval)}
			for _, r := range rates {
				l.Recorded.RPS = append(l.Recorded.RPS, float64(r))
			}
		}
		if l.Validate() != nil || !(rps > 0) || math.IsInf(rps, 0) {
			return
		}
		a := NewArrivals(l, rps, rand.New(rand.NewPCG(seed, 0)))
		const most = 2000
		count, last := 0, time.Duration(0)
		for range most {
			at, more := a.Next()
			if !more {
				break
			}
			require.GreaterOrEqual(t, at, last)
			last = at
			count++
		}
		if rps < 1e-3 || rps > 1e4 || last > 1000*time.Hour {
			return // beyond what nanoseconds and float64 tell apart
		}
		factors := make([]float64, len(rates))
		mean := 0.0
		for i, r := range rates {
			factors[i] = float64(r)
			mean += float64(r) / float64(len(rates))
		}
		if l.Recorded != nil {
			for i := range factors {
				factors[i] /= mean
			}
		}
		expected := integral(factors, time.Duration(interval), last) * rps
		within := 1e-3 + 1e-9*expected
		if poisson { // the last arrival is the count-th: a gamma variable
			within = 8*math.Sqrt(float64(count)) + 20
		}
		require.InDelta(t, count, expected, within)
	})
}

// integral of the factor from 0 to the end, each holding for the interval and
// the last from then on; none = 1.
func integral(factors []float64, interval, end time.Duration) float64 {
	if len(factors) == 0 {
		return end.Seconds()
	}
	sum, left := 0.0, end
	for _, factor := range factors[:len(factors)-1] {
		span := min(left, interval)
		sum += factor * span.Seconds()
		left -= span
	}
	return sum + factors[len(factors)-1]*left.Seconds()
}
