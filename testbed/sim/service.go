package sim

import (
	"math"
	"math/rand/v2"

	"heartbed/workloads"
)

// service draws service times. The draws of a visit are seeded by its place
// in the call tree of its request, so that a request costs the same under
// every policy (common random numbers).
type service struct {
	dist  workloads.Distribution
	seed  uint64
	mu    float64
	sigma float64
	rng   *rand.Rand
	src   splitmix
}

func newService(d workloads.Distribution, seed uint64) service {
	s := service{dist: d, seed: mix(seed, serviceStream)}
	if d.Kind == "lognormal" {
		// a lognormal of mean 1 with the given coefficient of variation
		variance := math.Log(1 + d.CV*d.CV)
		s.mu, s.sigma = -variance/2, math.Sqrt(variance)
	}
	return s
}

// factor is the visit's next service time relative to the mean.
func (s *service) factor(v *visit) float64 {
	switch s.dist.Kind {
	case "lognormal":
		return math.Exp(s.mu + s.sigma*s.draw(v).NormFloat64())
	case "exponential":
		return s.draw(v).ExpFloat64()
	}
	return 1
}

// uniform is the visit's next draw from [0, 1).
func (s *service) uniform(v *visit) float64 { return s.draw(v).Float64() }

func (s *service) draw(v *visit) *rand.Rand {
	if s.rng == nil {
		s.rng = rand.New(&s.src)
	}
	v.drawn++
	s.src = splitmix(mix(v.draws, v.drawn))
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

// mix hashes two words into one.
func mix(a, b uint64) uint64 {
	s := splitmix(a ^ b*0xd6e8feb86659fd93)
	return s.Uint64()
}
