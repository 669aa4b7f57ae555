//go:build ignore

package podautoscaler

import (
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

type Ev struct {
	Ago    time.Duration
	Change int32
}

func evs(now time.Time, in []Ev) (out []timestampedScaleEvent) {
	for _, e := range in {
		out = append(out, timestampedScaleEvent{e.Change, now.Add(-e.Ago), false})
	}
	return out
}

// Normalize runs the real normalization on a given history.
func Normalize(b *autoscalingv2.HorizontalPodAutoscalerBehavior, recs, up, down []Ev, min, max, current, desired int32) int32 {
	now := time.Now()
	a := &HorizontalController{
		recommendations: map[string][]timestampedRecommendation{}, scaleUpEvents: map[string][]timestampedScaleEvent{"k": evs(now, up)},
		scaleDownEvents: map[string][]timestampedScaleEvent{"k": evs(now, down)}, downscaleStabilisationWindow: 5 * time.Minute,
	}
	for _, r := range recs {
		a.recommendations["k"] = append(a.recommendations["k"], timestampedRecommendation{r.Change, now.Add(-r.Ago)})
	}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	hpa.Spec.Behavior = b
	hpa.Spec.MaxReplicas = max
	hpa.Spec.MinReplicas = &min
	if b == nil {
		return a.normalizeDesiredReplicas(hpa, "k", current, desired, min)
	}
	return a.normalizeDesiredReplicasWithBehaviors(hpa, "k", current, desired, min)
}

// Within makes the tolerances of one number.
func Within(t float64) Tolerances { return Tolerances{t, t} }
