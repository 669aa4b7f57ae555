package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// target is a namespace of a cluster that can be asked.
type target struct {
	kubeconfig string // paths, as in $KUBECONFIG
	context    string
	namespace  string
	cluster    string // its name in the kubeconfig
	config     *rest.Config
	client     kubernetes.Interface
}

// input marks a fault of an option; doctor takes it for something missing.
func input(option, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w%w", ErrInput, option, fmt.Errorf(format, args...), missing{})
}

// missing says errors.ErrUnsupported without a word.
type missing struct{}

func (missing) Error() string        { return "" }
func (missing) Is(target error) bool { return target == errors.ErrUnsupported }

// target reads the kubeconfig. It asks nobody.
func (o Options) target() (target, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	t := target{kubeconfig: strings.Join(rules.Precedence, string(filepath.ListSeparator)), namespace: o.namespace()}
	if o.Kubeconfig != "" {
		path, err := filepath.Abs(o.Kubeconfig)
		if err != nil {
			return t, input("kubeconfig", "%w", err)
		}
		t.kubeconfig = path
	}
	if faults := validation.IsDNS1123Label(t.namespace); len(faults) > 0 {
		return t, input("namespace", "found %q, expected a name that Kubernetes takes: %s", t.namespace, strings.Join(faults, "; "))
	}
	return t, t.load(o.Context)
}

// targetAt is the target that a journal names.
func targetAt(kubeconfig, context, namespace string) (target, error) {
	t := target{kubeconfig: kubeconfig, namespace: namespace}
	return t, t.load(context)
}

func (t *target) load(context string) error {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(t.kubeconfig), WarnIfAllMissing: false}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	raw, err := loader.RawConfig()
	if err != nil {
		return input("kubeconfig", "%w", err)
	}
	if len(raw.Contexts) == 0 {
		return input("kubeconfig", "found no context in %s, expected one", t.kubeconfig)
	}
	if t.context = context; context == "" {
		t.context = raw.CurrentContext
	}
	named, known := raw.Contexts[t.context]
	if !known {
		return input("context", "found %q, expected one of %s", t.context, strings.Join(contexts(raw), ", "))
	}
	t.cluster = named.Cluster
	if t.config, err = loader.ClientConfig(); err != nil {
		return input("kubeconfig", "context %s: %w", t.context, err)
	}
	t.config.QPS, t.config.Burst = 50, 100
	t.config.WarningHandler = rest.NoWarnings{} // of fields that we do not set
	if t.client, err = kubernetes.NewForConfig(t.config); err != nil {
		return input("kubeconfig", "context %s: %w", t.context, err)
	}
	return nil
}

func contexts(c api.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// checkName refuses what is named like a production cluster.
func (t target) checkName(yes bool) error {
	if yes {
		return nil
	}
	for _, name := range []struct{ what, is string }{{"context", t.context}, {"cluster", t.cluster}, {"namespace", t.namespace}} {
		for _, sign := range []string{"prod", "prd"} {
			if strings.Contains(strings.ToLower(name.is), sign) {
				return input(name.what, "found %q, which is named like production: an experiment loads its nodes; expected another one, or --yes", name.is)
			}
		}
	}
	return nil
}

// ask says whether the API server answers.
func (t target) ask(ctx context.Context) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	if err := t.client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return fmt.Errorf("API server %s of context %s does not answer: %w%w", t.config.Host, t.context, err, missing{})
	}
	return nil
}
