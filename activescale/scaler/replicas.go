package scaler

import (
	"math"
	"time"
)

// Kubernetes' defaults for CPU of pods that have just started.
const (
	cpuInitialization = 5 * time.Minute
	initialReadiness  = 30 * time.Second
)

// sample is a pod's metric as the HPA gets it.
type sample struct {
	milli  int64 // requests or cores, thousandths
	at     time.Duration
	window time.Duration // the value is a mean over; only CPU has one
}

// ratio is the HPA's arithmetic (k8s.io/kubernetes, pkg/controller/
// podautoscaler/replica_calculator.go, v1.34.4): from usage over target to a
// number of replicas.
type ratio struct{ tolerance float64 }

func (r ratio) within(usage float64) bool {
	return 1-r.tolerance <= usage && usage <= 1+r.tolerance
}

// grouped is the pods by how their metric counts.
type grouped struct {
	ready            int
	unready, missing int
	sum              int64 // of the metrics of ready pods
}

// group sorts the pods. CPU of a pod that starts is not representative, so it
// counts as unready; another metric counts as soon as it is there. An endpoint
// that is being deleted is not in the view at all.
func group(v View, samples map[int]sample, cpu bool) grouped {
	var g grouped
	for _, p := range v.Pods {
		s, found := samples[p.ID]
		switch {
		case p.Pending:
			g.unready++
		case !found:
			g.missing++
		case cpu && starting(v.Now, p, s):
			g.unready++
		default:
			g.ready++
			g.sum += s.milli
		}
	}
	return g
}

// starting says whether the CPU of a pod is left out: it is young and not
// ready, or not for a whole window of the metric; or it was never ready.
func starting(now time.Duration, p Pod, s sample) bool {
	if p.Created+cpuInitialization > now {
		return !p.Ready || s.at < p.Changed+s.window
	}
	return !p.Ready && p.Created+initialReadiness > p.Changed
}

// perPod gives the replicas for a metric of pods. usage maps the sum over n
// pods to usage over target; a missing pod counts as missing (thousandths)
// when that damps a scale-in and as zero when it damps a scale-out.
func (r ratio) perPod(current int, g grouped, usage func(sum int64, n int) float64, missing int64) (int, bool) {
	if g.ready == 0 {
		return 0, false
	}
	before := usage(g.sum, g.ready)
	outWithUnready := g.unready > 0 && before > 1
	if !outWithUnready && g.missing == 0 {
		if r.within(before) {
			return current, true
		}
		return int(math.Ceil(before * float64(g.ready))), true
	}
	sum, n := g.sum, g.ready
	switch {
	case before < 1:
		sum, n = sum+int64(g.missing)*missing, n+g.missing
	case before > 1:
		n += g.missing
	}
	if outWithUnready {
		n += g.unready
	}
	after := usage(sum, n)
	if r.within(after) || before < 1 && after > 1 || before > 1 && after < 1 {
		return current, true
	}
	replicas := int(math.Ceil(after * float64(n)))
	if after < 1 && replicas > current || after > 1 && replicas < current {
		return current, true
	}
	return replicas, true
}

// active gives the replicas for requests in flight (Pods, AverageValue).
func (r ratio) active(v View, samples map[int]sample, target float64) (int, bool) {
	milli := int64(math.Round(target * 1000))
	usage := func(sum int64, n int) float64 { return float64(sum/int64(n)) / float64(milli) }
	return r.perPod(v.Replicas, group(v, samples, false), usage, milli)
}

// cpu gives the replicas for CPU utilisation (Resource, Utilization): target
// in percent of a request.
func (r ratio) cpu(v View, samples map[int]sample, target int, requestCores float64) (int, bool) {
	request := int64(math.Round(requestCores * 1000))
	usage := func(sum int64, n int) float64 {
		return float64(sum*100/(request*int64(n))) / float64(target)
	}
	return r.perPod(v.Replicas, group(v, samples, true), usage, request*int64(max(100, target))/100)
}

// external gives the replicas for a total (External, AverageValue): ready pods
// play no part.
func (r ratio) external(current int, total, target int64) int {
	if r.within(float64(total) / (float64(target) * float64(current))) {
		return current
	}
	return int(math.Ceil(float64(total) / float64(target)))
}
