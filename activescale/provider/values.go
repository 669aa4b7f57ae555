package provider

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"heartbed/activescale/store"
)

// CapacityWeightedActiveRequests are a pod's inbound active requests times what
// a request costs on its node, relative to the mean over the running pods
// that the query selects. Where nodes are unequal, ten requests on a slow one are more
// work than ten on a fast one, and only with weights do their sum and an
// HPA's target speak of the same. On equal nodes it is the plain metric.
//
// The cost is the relative CPU time of a request, a positive number whose unit
// cancels out: a pod's annotation CostAnnotation, else what Options.Cost tells
// of its node, else 1. Pods that tell and pods that do not should not be mixed.
const CapacityWeightedActiveRequests = "capacity_weighted_active_requests"

// metric is how a value is read from a sample.
type metric struct {
	name string // in the sample
	// gauge says that a sample without the value means zero: Envoy sends a gauge
	// only once it was used, and the sample is the heartbeat that tells so
	// (kubernetes issue 84142: without the zero, new pods of a rolling update
	// count as missing). What is no gauge is missing then.
	gauge    bool
	weighted bool // by cost
}

func metrics(mean bool) map[string]metric {
	all := map[string]metric{
		store.InboundActiveRequests:    {name: store.InboundActiveRequests, gauge: true},
		store.OutboundActiveRequests:   {name: store.OutboundActiveRequests, gauge: true},
		store.ActiveConnections:        {name: store.ActiveConnections, gauge: true},
		CapacityWeightedActiveRequests: {name: store.InboundActiveRequests, gauge: true, weighted: true},
	}
	if mean {
		all[store.InboundMeanRequests] = metric{name: store.InboundMeanRequests}
	}
	return all
}

// values gives those of the pods that have a sample.
func (p *Provider) values(m metric, series labels.Selector, live []*corev1.Pod, samples map[store.Pod]store.Sample) []custom_metrics.MetricValue {
	weights := func(int) float64 { return 1 }
	if m.weighted {
		weights = p.weights(live)
	}
	id := identifier(m, series)
	values := make([]custom_metrics.MetricValue, 0, len(live))
	for i, pod := range live {
		s, fresh := samples[key(pod)]
		if !fresh {
			continue
		}
		v, has := s.Values[m.name]
		if !has && !m.gauge {
			continue
		}
		quantity, ok := milli(v * weights(i))
		if !ok {
			p.m.badValues.Inc()
			continue
		}
		p.m.ages.Observe(s.Age.Seconds())
		values = append(values, custom_metrics.MetricValue{
			DescribedObject: custom_metrics.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name},
			Metric:          id,
			Timestamp:       metav1.NewTime(s.At),
			Value:           quantity,
		})
	}
	return values
}

// identifier repeats the question, as the API defines it.
func identifier(m metric, series labels.Selector) custom_metrics.MetricIdentifier {
	id := custom_metrics.MetricIdentifier{Name: m.name}
	if m.weighted {
		id.Name = CapacityWeightedActiveRequests
	}
	wanted, _ := series.Requirements()
	for _, r := range wanted {
		// What series without labels match is nothing but exclusions.
		operator := metav1.LabelSelectorOpNotIn
		if r.Operator() == selection.DoesNotExist {
			operator = metav1.LabelSelectorOpDoesNotExist
		}
		if id.Selector == nil {
			id.Selector = &metav1.LabelSelector{}
		}
		id.Selector.MatchExpressions = append(id.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: r.ValuesUnsorted()})
	}
	return id
}

// milli gives a value in thousandths, the HPA's own precision. What is no
// number of requests is not ok.
func milli(v float64) (resource.Quantity, bool) {
	if !(v >= 0 && v < math.MaxInt64/1000/2) {
		return resource.Quantity{}, false
	}
	return *resource.NewMilliQuantity(int64(math.Round(v*1000)), resource.DecimalSI), true
}
