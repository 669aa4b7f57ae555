package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	registrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

// apiNames are the objects through which the API server finds who serves the
// API. A cluster has one of each.
var apiNames = []string{"v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io"}

// errForeign: the API belongs to somebody else.
var errForeign = errors.New("the API belongs to another adapter")

// readTime bounds a few requests to the API server.
const readTime = 10 * time.Second

// api is the registration of one version.
type api struct {
	name      string
	owner     string // the Service it points to, "" when it is not registered
	remedy    string // how its owner is uninstalled
	caBundle  []byte
	available bool
	reason    string // why it is not available
}

// readAPIs gives the registration of every version.
func readAPIs(ctx context.Context, client registrationclient.APIServiceInterface) ([]api, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var all []api
	for _, name := range apiNames {
		a, err := client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			all = append(all, api{name: name})
		case err != nil:
			return nil, fmt.Errorf("see whose the API is: get APIService %s: %w", name, err)
		default:
			all = append(all, describe(a))
		}
	}
	return all, nil
}

func describe(a *registrationv1.APIService) api {
	found := api{name: a.Name, owner: "the API server itself", caBundle: a.Spec.CABundle, remedy: "kubectl delete apiservice " + a.Name}
	if s := a.Spec.Service; s != nil {
		found.owner = s.Namespace + "/" + s.Name
	}
	if release, ok := a.Annotations["meta.helm.sh/release-name"]; ok {
		found.remedy = fmt.Sprintf("helm uninstall %s --namespace %s", release, a.Annotations["meta.helm.sh/release-namespace"])
	}
	for _, c := range a.Status.Conditions {
		if c.Type == registrationv1.Available {
			found.available, found.reason = c.Status == registrationv1.ConditionTrue, c.Message
		}
	}
	return found
}

// foreign refuses what belongs to another Service than own. Two adapters that
// both want the API would take it from each other for ever, and a
// HorizontalPodAutoscaler would find its metric now and then (keda issue 470,
// prometheus-adapter issue 367).
func foreign(all []api, own types.NamespacedName) error {
	var errs []error
	for _, a := range all {
		if a.owner == "" || a.owner == own.String() {
			continue
		}
		errs = append(errs, fmt.Errorf("%w: %s points to %s, expected %s; a cluster has one adapter of this API: uninstall that one first (%s), or keep it and do not install activescale", errForeign, a.name, a.owner, expected(own), a.remedy))
	}
	return errors.Join(errs...)
}

func expected(own types.NamespacedName) string {
	if own.Name == "" {
		return "none (--service says which one is one's own)"
	}
	return own.String()
}

// registration keeps the certificate's authority in the APIServices that are
// one's own, and knows how they stand.
type registration struct {
	client registrationclient.APIServiceInterface
	own    types.NamespacedName
	// bundle gives the authorities of the replicas' certificates; nil: somebody
	// else writes them.
	bundle func(context.Context) ([]byte, error)
	log    *slog.Logger

	mu      sync.Mutex
	faults  []string
	unknown bool // nothing is known yet
}

func newRegistration(client registrationclient.APIServiceInterface, own types.NamespacedName, bundle func(context.Context) ([]byte, error), log *slog.Logger) *registration {
	return &registration{client: client, own: own, bundle: bundle, log: log, unknown: true}
}

// keep looks after the APIServices until ctx ends: often until all is well, for
// Helm makes them last, then now and then.
func (r *registration) keep(ctx context.Context) {
	for {
		every := 30 * time.Second
		if !r.look(ctx) {
			every = 2 * time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// look does it once, and says whether all is well.
func (r *registration) look(ctx context.Context) bool {
	var faults []string
	all, err := readAPIs(ctx, r.client)
	if err != nil {
		faults = append(faults, err.Error())
	}
	bundle := []byte(nil)
	if r.bundle != nil && err == nil {
		if bundle, err = r.bundle(ctx); err != nil {
			faults = append(faults, "read the API's certificate: "+err.Error())
		}
	}
	for _, a := range all {
		if f := r.fault(ctx, a, bundle); f != "" {
			faults = append(faults, f)
		}
	}
	if ctx.Err() != nil {
		return false // what failed says nothing
	}
	r.mu.Lock()
	changed := !slices.Equal(faults, r.faults) || r.unknown
	r.faults, r.unknown = faults, false
	r.mu.Unlock()
	if changed {
		r.log.Info("registration of the API", "well", len(faults) == 0, "faults", faults)
	}
	return len(faults) == 0
}

// fault mends one registration where it can, and says what is wrong with it.
func (r *registration) fault(ctx context.Context, a api, bundle []byte) string {
	switch {
	case a.owner == "":
		return a.name + " is not registered: the chart has it"
	case a.owner != r.own.String():
		return foreign([]api{a}, r.own).Error()
	case bundle != nil && !bytes.Equal(a.caBundle, bundle):
		if err := r.write(ctx, a.name, bundle); err != nil {
			return fmt.Sprintf("write caBundle of %s: %v", a.name, err)
		}
		return a.name + " has just got its caBundle"
	case !a.available:
		return fmt.Sprintf("%s is not available: %s", a.name, a.reason)
	}
	return ""
}

func (r *registration) write(ctx context.Context, name string, bundle []byte) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": bundle}})
	if err != nil {
		return err
	}
	_, err = r.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "activescale"})
	return err
}

// degraded says what is wrong, nothing when all is well.
func (r *registration) degraded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unknown {
		return []string{"the API's registration has not been read yet"}
	}
	return slices.Clone(r.faults)
}

// parseService reads NAMESPACE/NAME.
func parseService(text string) (types.NamespacedName, error) {
	if text == "" {
		return types.NamespacedName{}, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--service: found %q, expected NAMESPACE/NAME", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
