package kind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"

	"heartbed/testbed"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
)

// cluster is a cluster that stands, or is being made.
type cluster struct {
	options Options
	plan    testbed.Plan // its nodes are those of the cluster
	key     string       // of the plans that it serves
	name    string       // also of its network
	folder  string
	journal *live.Journal
	release func() error // of the guard

	provider *kindcluster.Provider
	control  container   // the node of the control plane
	beside   container   // in whose network the controller stands
	workers  []container // in the order of the plan's nodes
	config   *rest.Config
	client   kubernetes.Interface
	loaded   string // the image of our programs that the workers have
	// everywhere says that the node of the control plane has it, too.
	everywhere bool
}

// newCluster opens the journal of a cluster.
func newCluster(o Options, p testbed.Plan) (*cluster, error) {
	j, run, err := live.NewRun(o.journals())
	if err != nil {
		return nil, err
	}
	release, err := startGuard(j.Folder(), run)
	if err != nil {
		return nil, errors.Join(err, j.Close(context.Background(), remove))
	}
	return &cluster{
		options: o, plan: p, key: clusterKey(p, o.image()), name: namePrefix + run, journal: j, release: release,
		folder:   filepath.Join(j.Folder(), namePrefix+run),
		provider: kindcluster.NewProvider(kindcluster.ProviderWithDocker()),
	}, nil
}

// stages make the cluster.
func (c *cluster) stages() []live.Stage {
	return []live.Stage{
		{Name: "create the folder", Limit: 10 * time.Second, Do: c.makeFolder},
		{Name: "create the cluster", Limit: 5 * time.Minute, Do: c.create},
		{Name: "create the controller's container", Limit: 30 * time.Second, Do: c.createBeside},
		{Name: "wait for the nodes", Limit: time.Minute, Do: c.awaitNodes},
		{Name: "hand out the kubeconfig", Limit: 10 * time.Second, Do: c.handOut},
		{Name: "route to the pods", Limit: 10 * time.Second, Do: c.routeToPods},
	}
}

func (c *cluster) claim(k live.Kind, name string) error {
	return c.journal.Add(live.Entry{Kind: k, Name: name})
}

func (c *cluster) makeFolder(context.Context) error {
	if err := c.claim(kindFolder, c.folder); err != nil {
		return err
	}
	return os.Mkdir(c.folder, 0o700)
}

// kubeconfigName is the name of every kubeconfig that is written.
const kubeconfigName = "kubeconfig"

func (c *cluster) kubeconfig() string { return filepath.Join(c.folder, kubeconfigName) }

// handOut writes the kubeconfig where the user asked for it. A file of that name
// that is there is somebody else's.
func (c *cluster) handOut(context.Context) error {
	if c.options.Kubeconfig == "" {
		return nil
	}
	to, err := filepath.Abs(c.options.Kubeconfig)
	if err != nil {
		return err
	}
	if filepath.Base(to) != kubeconfigName {
		return fmt.Errorf("kubeconfig: found %q, expected a file of the name %s", to, kubeconfigName)
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("found %s already: remove it, or choose another folder", to))
	}
	raw, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		return err
	}
	if err := errors.Join(c.claim(kindFile, to), os.MkdirAll(filepath.Dir(to), 0o755)); err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o600)
}

// removeLimit is how long containers may take to be removed.
const removeLimit = 2 * time.Minute

// create lets kind make the cluster. kind's library takes no context: when ctx
// ends its containers are removed until it gives up.
func (c *cluster) create(ctx context.Context) error {
	if err := errors.Join(c.claim(kindNetwork, c.name), c.claim(kindCluster, c.name)); err != nil {
		return err
	}
	made := make(chan error, 1)
	go func() {
		made <- withDocker(c.folder, c.name, func() error {
			return c.provider.Create(c.name,
				kindcluster.CreateWithV1Alpha4Config(clusterConfig(c.plan, c.options.image(), runtime.NumCPU())),
				kindcluster.CreateWithNodeImage(c.options.image()), kindcluster.CreateWithKubeconfigPath(c.kubeconfig()),
				kindcluster.CreateWithDisplayUsage(false), kindcluster.CreateWithDisplaySalutation(false))
		})
	}()
	select {
	case err := <-made:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), c.giveUp(made))
	}
	names := []string{c.name + "-control-plane"}
	for i := range c.plan.Nodes {
		suffix := ""
		if i > 0 {
			suffix = fmt.Sprint(i + 1)
		}
		names = append(names, c.name+"-worker"+suffix)
	}
	for i, name := range names {
		node, err := inspect(ctx, name)
		if err != nil {
			return err
		}
		if i == 0 {
			c.control = node
		} else {
			c.workers = append(c.workers, node)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400 // it is our own cluster
	c.config = config
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

// giveUp removes what the library makes until it has ended.
func (c *cluster) giveUp(made <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	for {
		if err := remove(ctx, live.Entry{Kind: kindCluster, Name: c.name}); err != nil {
			return err
		}
		select {
		case <-made: // its error is that its containers are gone
			return nil
		case <-ctx.Done():
			return fmt.Errorf("kind does not end: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// createBeside makes a container in the cluster's network that runs nothing.
func (c *cluster) createBeside(ctx context.Context) (err error) {
	name := c.name + "-controller"
	if err := c.claim(kindContainer, name); err != nil {
		return err
	}
	if _, err := docker(ctx, "run", "--detach", "--name", name, "--hostname", name, "--network", c.name, "--stop-signal", "KILL", "--entrypoint", "sleep", c.options.image(), "infinity"); err != nil {
		return err
	}
	c.beside, err = inspect(ctx, name)
	return err
}

// awaitNodes waits until Kubernetes calls all nodes ready.
func (c *cluster) awaitNodes(ctx context.Context) error {
	var waiting []string
	for {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			if waiting = kube.NotReady(nodes.Items); len(waiting) == 0 && len(nodes.Items) == len(c.workers)+1 {
				return nil
			}
		}
		if pauseErr := live.Pause(ctx, 100*time.Millisecond); pauseErr != nil {
			return errors.Join(fmt.Errorf("not ready: %s: %w", strings.Join(waiting, ", "), pauseErr), err)
		}
	}
}

// answers says whether the API server does.
func (c *cluster) answers(context.Context) error {
	_, err := c.client.Discovery().ServerVersion()
	return err
}

// routeToPods lets the controller's container reach the pods of each node.
func (c *cluster) routeToPods(ctx context.Context) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ns, err := netns.GetFromPath(c.beside.namespace())
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for _, n := range nodes.Items {
		pods, err := netip.ParsePrefix(n.Spec.PodCIDR)
		if err != nil {
			return fmt.Errorf("node %s: addresses of its pods: %w", n.Name, err)
		}
		var via net.IP
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				via = net.ParseIP(a.Address)
			}
		}
		to := &net.IPNet{IP: pods.Addr().AsSlice(), Mask: net.CIDRMask(pods.Bits(), 32)}
		if err := h.RouteReplace(&netlink.Route{Dst: to, Gw: via}); err != nil {
			return fmt.Errorf("route to the pods of node %s: %w", n.Name, err)
		}
	}
	return nil
}

// load gives the workers the image, and the node of the control plane too if
// everywhere, unless they have it.
func (c *cluster) load(ctx context.Context, a image.Archive, everywhere bool) error {
	if c.loaded == a.Name && (c.everywhere || !everywhere) {
		return nil
	}
	if err := c.loadInto(ctx, a.File, func(node string) bool { return everywhere || isWorker(node) }); err != nil {
		return err
	}
	c.loaded, c.everywhere = a.Name, everywhere
	return nil
}

// loadInto gives some nodes the image in an archive.
func (c *cluster) loadInto(ctx context.Context, archive string, wanted func(node string) bool) error {
	return withDocker(c.folder, c.name, func() error {
		nodes, err := c.provider.ListInternalNodes(c.name)
		if err != nil {
			return err
		}
		loads, ctx := errgroup.WithContext(ctx)
		loads.SetLimit(2)
		for _, node := range nodes {
			if !wanted(node.String()) {
				continue
			}
			loads.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				f, err := os.Open(archive)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := nodeutils.LoadImageArchive(node, f); err != nil {
					return fmt.Errorf("node %s: %w", node.String(), err)
				}
				return nil
			})
		}
		return loads.Wait()
	})
}

// close removes the cluster and all that its journal names.
func (c *cluster) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	return errors.Join(c.journal.Close(ctx, remove), c.release())
}
