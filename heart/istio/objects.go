package istio

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is written or labelled. Version v1 is served since Istio 1.22.
var (
	virtualServices  = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
	destinationRules = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}
	pods             = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

var kinds = map[schema.GroupVersionResource]string{
	virtualServices: "VirtualService", destinationRules: "DestinationRule", pods: "Pod",
}

// virtualService is the part of a VirtualService's spec that is written.
type virtualService struct {
	Hosts []string    `json:"hosts"`
	HTTP  []httpRoute `json:"http"`
}

// httpRoute also routes gRPC. Istio takes the first that matches.
type httpRoute struct {
	Name  string        `json:"name"`
	Match []match       `json:"match,omitempty"` // none = every caller
	Route []destination `json:"route"`
}

type match struct {
	SourceLabels map[string]string `json:"sourceLabels"`
}

type destination struct {
	Destination target `json:"destination"`
	Weight      int    `json:"weight,omitempty"` // per cent; left out for a sole destination without a choice
}

type target struct {
	Host   string `json:"host"`
	Subset string `json:"subset,omitempty"`
}

// destinationRule is the part of a DestinationRule's spec that is written.
type destinationRule struct {
	Host          string         `json:"host"`
	TrafficPolicy *trafficPolicy `json:"trafficPolicy,omitempty"`
	Subsets       []subset       `json:"subsets,omitempty"`
}

type subset struct {
	Name          string            `json:"name"`
	Labels        map[string]string `json:"labels,omitempty"` // none = all pods of the host
	TrafficPolicy trafficPolicy     `json:"trafficPolicy"`
}

// sort gives the subsets an order that does not depend on the shares.
func (r *destinationRule) sort() {
	slices.SortFunc(r.Subsets, func(a, b subset) int { return cmp.Compare(a.Name, b.Name) })
}

type trafficPolicy struct {
	LoadBalancer loadBalancer `json:"loadBalancer"`
}

type loadBalancer struct {
	Simple            string           `json:"simple"`
	LocalityLbSetting *localitySetting `json:"localityLbSetting,omitempty"`
}

type localitySetting struct {
	Enabled    bool         `json:"enabled"`
	Distribute []distribute `json:"distribute,omitempty"`
}

// distribute says which localities the callers in From send to, in per cent.
type distribute struct {
	From string         `json:"from"`
	To   map[string]int `json:"to"`
}

// object is something to be applied.
type object struct {
	resource schema.GroupVersionResource
	name     string
	spec     map[string]any
}

// newObject brings a spec into the form in which the API server gives it back.
func newObject(resource schema.GroupVersionResource, name string, spec any) (object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return object{}, fmt.Errorf("encode %s %s: %w", kinds[resource], name, err)
	}
	return object{resource, name, content}, nil
}

// decode reads the spec of an object into one of the structs above. Fields
// that they lack are ignored.
func decode(o unstructured.Unstructured, spec any) error {
	content, _, err := unstructured.NestedMap(o.Object, "spec")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, spec)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}
