package policy

import "math"

// alphaRule decides how much the newest load of a group moves its EWMA.
type alphaRule struct {
	kind     string // cv, trigg-leach, fixed or last
	min, max float64
	fixed    float64
	down     bool // a volatile load lowers the weight
	window   int
	cvRef    float64
	phi      float64
}

// update takes in a load and returns the new trend and the weight it had. The
// first load of a group is its first estimate.
func (r alphaRule) update(t trend, load float64) (trend, float64) {
	first := t.ewma == 0
	t.loads = append(append(make([]float64, 0, len(t.loads)+1), t.loads...), load)
	t.loads = t.loads[max(0, len(t.loads)-r.window):]
	if first {
		t.ewma = load
		return t, 1
	}
	miss := load - t.ewma
	t.bias = r.phi*miss + (1-r.phi)*t.bias
	t.scatter = r.phi*math.Abs(miss) + (1-r.phi)*t.scatter
	weight := r.weight(t)
	t.ewma = weight*load + (1-weight)*t.ewma
	return t, weight
}

func (r alphaRule) weight(t trend) float64 {
	switch r.kind {
	case "last":
		return 1
	case "fixed":
		return r.fixed
	case "trigg-leach":
		return min(max(trackingSignal(t.bias, t.scatter), r.min), r.max)
	}
	volatility := min(1, variation(t.loads)/r.cvRef)
	if r.down {
		volatility = 1 - volatility
	}
	return r.min + (r.max-r.min)*volatility
}

// trackingSignal is |S/M| of Trigg and Leach (1967): 1 while the errors go one
// way, near 0 while they cancel out.
func trackingSignal(bias, scatter float64) float64 {
	if scatter == 0 {
		return 0
	}
	return math.Abs(bias / scatter)
}

// variation is the coefficient of variation: population standard deviation
// divided by mean, of positive values.
func variation(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range values {
		sum += x
	}
	mean := sum / float64(len(values))
	for _, x := range values {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares/float64(len(values))) / mean
}
