package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	registrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"heartbed/cmd/internal/cli"
)

// errFindings: the doctor has found something wrong.
var errFindings = errors.New("something is wrong")

// doctor says of every live pod whether its load arrives.
type doctor struct {
	client         kubernetes.Interface
	registrations  registrationclient.APIServiceInterface
	service        types.NamespacedName // of activescale; empty: that of the APIService
	namespace      string
	selector       string
	istioNamespace string
	out            io.Writer
}

func doctorCommand() *cobra.Command {
	var kubeconfig, service string
	var d doctor
	cmd := &cobra.Command{
		Use:   "doctor --namespace NAMESPACE",
		Short: "Say of every pod of a namespace whether its load arrives, and what mends it",
		Long: `Doctor asks every replica of activescale, through the API server's proxy, which
streams it has, and compares them with the live pods of a namespace: is there a
stream, when was its last flush, are there requests in it or only those of
Istio's own listeners. It reads the configuration of Istio as far as it may, and
prints the command that mends it. It changes nothing, and fails when a pod's
load does not arrive.`,
		Example: "  activescale doctor --namespace shop\n  activescale doctor --namespace shop --selector app=cart",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.namespace == "" {
				return fmt.Errorf("%w: --namespace: found none, expected that of the pods", cli.ErrUsage)
			}
			if _, err := labels.Parse(d.selector); err != nil {
				return fmt.Errorf("%w: --selector: %w", cli.ErrUsage, err)
			}
			own, err := parseService(service)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			config, err := clusterConfig(kubeconfig)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrInput, err)
			}
			if d.client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			registrations, err := registrationclient.NewForConfig(config)
			if err != nil {
				return err
			}
			d.registrations, d.service, d.out = registrations.APIServices(), own, cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", kubeconfigHelp)
	cmd.Flags().StringVarP(&d.namespace, "namespace", "n", "", "namespace of the pods")
	cmd.Flags().StringVarP(&d.selector, "selector", "l", "", "labels of the pods (default: all)")
	cmd.Flags().StringVar(&service, "service", "", "the Service of activescale, NAMESPACE/NAME (default: that of the APIService)")
	cmd.Flags().StringVar(&d.istioNamespace, "istio-namespace", "istio-system", "namespace of Istio's ConfigMap")
	return cmd
}

func (d *doctor) run(ctx context.Context) error {
	wrong, err := d.registration(ctx)
	if err != nil {
		return err
	}
	replicas, err := d.replicas(ctx)
	if err != nil {
		return err
	}
	told := heard{}
	for _, r := range replicas {
		if err := d.ask(ctx, r, told); err != nil {
			wrong++
			fmt.Fprintf(d.out, "replica %s of activescale does not answer, and what it knows is missing below: %v\n", r.Name, err)
		}
	}
	list, err := d.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{LabelSelector: d.selector})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	mesh := d.mesh(ctx)
	live, ill := 0, 0
	for i := range list.Items {
		p := &list.Items[i]
		if !isLive(p) {
			continue
		}
		live++
		f := diagnose(p, told, mesh, fmt.Sprintf("%s.%s.svc:9000", d.service.Name, d.service.Namespace))
		fmt.Fprintf(d.out, "pod %s: %s\n", p.Name, f.says)
		if f.wrong {
			ill++
			fmt.Fprintf(d.out, "    %s\n", f.mend)
		}
	}
	switch {
	case live == 0:
		return fmt.Errorf("%w: no live pod in namespace %s with labels %q", errFindings, d.namespace, d.selector)
	case ill+wrong > 0:
		return fmt.Errorf("%w: the load of %d of %d pods does not arrive", errFindings, ill, live)
	}
	return nil
}

// registration tells how the API is registered, and finds the Service through
// which it is served.
func (d *doctor) registration(ctx context.Context) (wrong int, err error) {
	all, err := readAPIs(ctx, d.registrations)
	if err != nil {
		return 0, err
	}
	for _, a := range all {
		if a.owner == "" {
			wrong++
			fmt.Fprintf(d.out, "%s is not registered: install the chart\n", a.name)
			continue
		}
		if d.service.Name == "" {
			if d.service, err = parseService(a.owner); err != nil {
				return 0, foreign(all, d.service)
			}
		}
		if err := foreign([]api{a}, d.service); err != nil {
			wrong++
			fmt.Fprintln(d.out, err)
		} else if !a.available {
			wrong++
			fmt.Fprintf(d.out, "%s is not available: %s\n", a.name, a.reason)
		}
	}
	if d.service.Name == "" {
		return wrong, fmt.Errorf("%w: no APIService leads to activescale: install the chart, or name the Service with --service", errFindings)
	}
	return wrong, nil
}

// replicas are the pods behind the Service.
func (d *doctor) replicas(ctx context.Context) ([]corev1.Pod, error) {
	s, err := d.client.CoreV1().Services(d.service.Namespace).Get(ctx, d.service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: Service %s does not exist", errFindings, d.service)
	} else if err != nil {
		return nil, fmt.Errorf("find activescale: %w", err)
	}
	list, err := d.client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Spec.Selector).String()})
	if err != nil {
		return nil, fmt.Errorf("find the replicas of activescale: %w", err)
	}
	live := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isLive(&p) })
	if len(live) == 0 {
		return nil, fmt.Errorf("%w: no replica of activescale runs behind Service %s", errFindings, d.service)
	}
	return live, nil
}

// ask adds the streams of a replica to those that are known.
func (d *doctor) ask(ctx context.Context, replica corev1.Pod, told heard) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	raw, err := d.client.CoreV1().Pods(replica.Namespace).ProxyGet("http", replica.Name, httpPort(replica), "streams", nil).DoRaw(ctx)
	if err != nil {
		return err
	}
	var page streamsPage
	if err := json.Unmarshal(raw, &page); err != nil {
		return fmt.Errorf("read its streams: %w", err)
	}
	told.add(page)
	return nil
}

// httpPort is the one that a container calls http.
func httpPort(p corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == "http" {
				return strconv.Itoa(int(port.ContainerPort))
			}
		}
	}
	return "8080"
}

// heard are the newest streams by pod, NAMESPACE/NAME.
type heard map[string]streamRow

func (h heard) add(page streamsPage) {
	for _, row := range page.Streams {
		row.freshFor = page.FreshSeconds
		if old, ok := h[row.Pod]; !ok || row.FlushAge < old.FlushAge {
			h[row.Pod] = row
		}
	}
}

// mesh is the default configuration of proxies; nothing is known when it cannot
// be read.
func (d *doctor) mesh(ctx context.Context) *proxyConfig {
	m, err := d.client.CoreV1().ConfigMaps(d.istioNamespace).Get(ctx, "istio", metav1.GetOptions{})
	if err != nil {
		fmt.Fprintf(d.out, "the configuration of the mesh is not known: %v\n", err)
		return nil
	}
	config, err := parseMesh(m.Data["mesh"])
	if err != nil {
		fmt.Fprintf(d.out, "the configuration of the mesh is not known: %v\n", err)
		return nil
	}
	return config
}

// workload is what is restarted to restart a pod: KIND/NAME.
func workload(p *corev1.Pod) string {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return "pod/" + p.Name
	}
	if hash, ok := p.Labels["pod-template-hash"]; ok && owner.Kind == "ReplicaSet" {
		return "deployment/" + strings.TrimSuffix(owner.Name, "-"+hash)
	}
	return strings.ToLower(owner.Kind) + "/" + owner.Name
}

// seconds writes a time as a person would.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
