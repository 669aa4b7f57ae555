package workloads

import (
	"math"
	"math/rand/v2"
)

// requestStream sets the draws of requests apart from a trial's other random
// numbers (arrivals, routing, jitter).
const requestStream uint64 = 2

// Draws are the random draws of one visit: one request at one component. They
// are seeded by the visit's place in the call tree of its request, so that a
// request costs the same under every policy and on every backend (common
// random numbers).
type Draws struct {
	seed uint64
	made uint64
}

// NewDraws starts the draws of a visit whose seed came over the wire.
func NewDraws(seed uint64) Draws { return Draws{seed: seed} }

// WarmupRun is the number of a trial's warm-up.
const WarmupRun uint64 = 1

// MeasuredRun is the number of a trial's measured run: it comes after the
// warm-up and the gap, or first where there is no warm-up.
func MeasuredRun(warmedUp bool) uint64 {
	if warmedUp {
		return WarmupRun + 2
	}
	return 1
}

// RequestDraws are the draws of a client's request: the serial-th (from 1) of
// a run of the trial with this seed, in the order in which requests leave the
// client. run is WarmupRun or MeasuredRun.
func RequestDraws(trial, run, serial uint64) Draws {
	return NewDraws(Mix(Mix(trial, requestStream), Mix(run, serial)))
}

// Child are the draws of the call-th (from 0) call that a visit's step makes to
// a component, which is given by its index in the application. Calls of one
// step to the same component differ.
func (d Draws) Child(component, step, call int) Draws {
	return NewDraws(Mix(d.seed, uint64(call)<<40|uint64(component)<<8|uint64(step)))
}

// Seed is what NewDraws needs to go on elsewhere.
func (d Draws) Seed() uint64 { return d.seed }

// Sampler turns draws into service times and decisions. It is not safe for
// concurrent use.
type Sampler struct {
	kind      string
	mu, sigma float64
	rng       *rand.Rand
	src       splitmix
}

// NewSampler samples service times of distribution d.
func NewSampler(d Distribution) *Sampler {
	s := &Sampler{kind: d.Kind}
	s.rng = rand.New(&s.src)
	if d.Kind == "lognormal" {
		// a lognormal of mean 1 with the given coefficient of variation
		variance := math.Log(1 + d.CV*d.CV)
		s.mu, s.sigma = -variance/2, math.Sqrt(variance)
	}
	return s
}

// Factor is the visit's next service time relative to the mean.
func (s *Sampler) Factor(d *Draws) float64 {
	switch s.kind {
	case "lognormal":
		return math.Exp(s.mu + s.sigma*s.next(d).NormFloat64())
	case "exponential":
		return s.next(d).ExpFloat64()
	}
	return 1
}

// Happens decides whether a step of the given probability is done; 0 stands
// for always, as in Step.
func (s *Sampler) Happens(d *Draws, probability float64) bool {
	return probability <= 0 || probability >= 1 || s.next(d).Float64() < probability
}

// Choose picks an index by odds, which add up to 1.
func (s *Sampler) Choose(d *Draws, odds []float64) int {
	u, k := s.next(d).Float64(), 0
	for k < len(odds)-1 && u >= odds[k] {
		u -= odds[k]
		k++
	}
	return k
}

// next seeds the generator for the visit's next draw.
func (s *Sampler) next(d *Draws) *rand.Rand {
	d.made++
	s.src = splitmix(Mix(d.seed, d.made))
	return s.rng
}

// splitmix is the splitmix64 generator (Steele, Lea, Flood 2014): one word of
// state, so that a generator can be seeded for every draw.
type splitmix uint64

// Uint64 implements rand.Source.
func (s *splitmix) Uint64() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Mix hashes two words into one.
func Mix(a, b uint64) uint64 {
	s := splitmix(a ^ b*0xd6e8feb86659fd93)
	return s.Uint64()
}
