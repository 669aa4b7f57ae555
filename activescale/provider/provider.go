// Package provider answers the API of custom metrics, which the HPA asks, from
// what pods last pushed. It imports the store alone of ours.
//
// It refuses to answer for what it does not know. A pod without a fresh sample
// is left out, and if there is none at all the answer is a typed 404; a store
// that cannot know is a 503. A zero is given only for a pod whose fresh sample
// says so: one whose proxy has flushed and has had no request.
//
// The timestamp of a value is when the pod's proxy took it, by the clock of the
// pod's node, in the JSON to the second; so two answers from one flush are
// equal, and a clock that is wrong shows there and does nothing else. What is
// fresh is judged by the store's clock alone. Values are gauges and have no
// window, but for InboundMeanRequests, whose window is the proxy's flush
// interval, which nobody tells.
package provider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"heartbed/activescale/store"
)

// Options say what a provider answers from.
type Options struct {
	// Store has the samples; one read a query.
	Store store.Store
	// Pods lists what an informer sees; no query asks the API server. Trim says
	// what of a pod is read.
	Pods corelisters.PodLister
	// Synced says whether Pods is complete; until then every query is a 503. Nil
	// is always.
	Synced func() bool
	// Mean serves InboundMeanRequests as well, which receivers put only if they
	// were told to.
	Mean bool
	// Cost tells what a request costs on the pod's node, see
	// CapacityWeightedActiveRequests; false is not known. Nil knows none.
	Cost func(*corev1.Pod) (float64, bool)
	// Hold answers for a silent pod, or while the store fails, with the last
	// sample that this provider has seen until that is so old: with the time of
	// the sample, so that it shows. It lengthens the store's time to live if it
	// is longer. 0 is off.
	Hold time.Duration
	// Registerer gets the provider's own metrics, if not nil.
	Registerer prometheus.Registerer
}

// Provider answers queries. Its methods may be called at the same time.
type Provider struct {
	Options
	metrics map[string]metric
	list    []provider.CustomMetricInfo
	held    *held // nil without Hold
	m       *measures
}

var _ provider.CustomMetricsProvider = (*Provider)(nil)

var pods = schema.GroupResource{Resource: "pods"}

// New panics if the metrics are registered already.
func New(o Options) *Provider {
	p := &Provider{Options: o, metrics: metrics(o.Mean), m: newMeasures(o.Registerer)}
	for name := range p.metrics {
		p.list = append(p.list, provider.CustomMetricInfo{GroupResource: pods, Namespaced: true, Metric: name})
	}
	slices.SortFunc(p.list, func(a, b provider.CustomMetricInfo) int { return cmp.Compare(a.Metric, b.Metric) })
	if o.Hold > 0 {
		p.held = newHeld(o.Hold)
	}
	return p
}

// ListAllMetrics is the same at all times, whoever pushes
// (prometheus-adapter issues 325, 77, 229).
func (p *Provider) ListAllMetrics() []provider.CustomMetricInfo { return slices.Clone(p.list) }

// GetMetricByName answers for one pod, whose capacity-weighted requests are its
// requests: a selection of one has no unequal nodes.
func (p *Provider) GetMetricByName(ctx context.Context, name types.NamespacedName, info provider.CustomMetricInfo, series labels.Selector) (*custom_metrics.MetricValue, error) {
	missing := func() *apierrors.StatusError {
		return provider.NewMetricNotFoundForError(info.GroupResource, info.Metric, name.Name)
	}
	find := func() ([]*corev1.Pod, error) {
		pod, err := p.Pods.Pods(name.Namespace).Get(name.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []*corev1.Pod{pod}, err
	}
	values, err := p.query(ctx, info, series, find, missing)
	if err != nil {
		return nil, err
	}
	return &values[0], nil
}

// GetMetricBySelector answers for the live pods of the namespace that match, in
// order of names.
func (p *Provider) GetMetricBySelector(ctx context.Context, namespace string, selector labels.Selector, info provider.CustomMetricInfo, series labels.Selector) (*custom_metrics.MetricValueList, error) {
	missing := func() *apierrors.StatusError {
		return provider.NewMetricNotFoundForSelectorError(info.GroupResource, info.Metric, "*", selector)
	}
	find := func() ([]*corev1.Pod, error) { return p.Pods.Pods(namespace).List(selector) }
	values, err := p.query(ctx, info, series, find, missing)
	if err != nil {
		return nil, err
	}
	return &custom_metrics.MetricValueList{Items: values}, nil
}

// query answers for the pods that find gives; never with nothing.
func (p *Provider) query(ctx context.Context, info provider.CustomMetricInfo, series labels.Selector,
	find func() ([]*corev1.Pod, error), missing func() *apierrors.StatusError,
) (values []custom_metrics.MetricValue, err error) {
	asked, start := result{metric: "other"}, time.Now()
	defer func() { p.m.observe(asked, err, time.Since(start)) }()
	m, known := p.metrics[info.Metric]
	if !known || !info.Namespaced || info.GroupResource != pods {
		return nil, because(provider.NewMetricNotFoundError(info.GroupResource, info.Metric),
			"only pods have metrics here, and these: %v", p.names())
	}
	asked.metric = info.Metric
	// Series here have no labels, so that a selector of series finds all of them
	// or, if it wants a label, none.
	if !series.Matches(labels.Set{}) {
		return nil, because(missing(), "its series have no labels to match %q", series)
	}
	if p.Synced != nil && !p.Synced() {
		return nil, apierrors.NewServiceUnavailable("the pods are not known yet")
	}
	found, err := find()
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list pods: %w", err))
	}
	live := alive(found)
	asked.pods = len(live)
	samples, err := p.samples(ctx, live)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	values = p.values(m, series, live, samples)
	if asked.answered = len(values); len(values) == 0 {
		return nil, because(missing(), "%d running pods match, and none of them has pushed it lately", len(live))
	}
	return values, nil
}

func because(err *apierrors.StatusError, format string, args ...any) *apierrors.StatusError {
	err.ErrStatus.Message += ": " + fmt.Sprintf(format, args...)
	return err
}

func (p *Provider) names() []string {
	var names []string
	for _, info := range p.list {
		names = append(names, info.Metric)
	}
	return names
}

// samples reads the store once, and fills up with what is held.
func (p *Provider) samples(ctx context.Context, live []*corev1.Pod) (map[store.Pod]store.Sample, error) {
	if len(live) == 0 {
		return nil, nil
	}
	ask := make([]store.Pod, len(live))
	for i, pod := range live {
		ask[i] = key(pod)
	}
	fresh, err := p.Store.Get(ctx, ask)
	if p.held == nil {
		return fresh, err
	}
	if err == nil {
		p.held.see(fresh)
	}
	all := p.held.fill(ask, fresh)
	if err != nil && len(all) < len(ask) {
		return nil, err // half of the pods are no answer
	}
	return all, nil
}
