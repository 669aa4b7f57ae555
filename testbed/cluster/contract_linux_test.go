package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed"
	"heartbed/testbed/kind"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/testbedtest"
)

// lab is a cluster in Docker containers for all tests of this package: the two
// nodes of the contract's plan and one that is not of the plan.
var lab = &kindLab{}

type kindLab struct {
	once    sync.Once
	err     error
	folder  string
	docker  kind.Backend
	backend Backend // in its default namespace
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := lab.close(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the cluster:", err)
		code = 1
	}
	os.Exit(code)
}

func (l *kindLab) close() error {
	errs := []error{l.backend.Close(), l.docker.Close()}
	if l.folder != "" {
		errs = append(errs, os.RemoveAll(l.folder))
	}
	return errors.Join(errs...)
}

// make makes the cluster and gives its nodes our image.
func (l *kindLab) make(ctx context.Context) (err error) {
	if l.folder, err = os.MkdirTemp("", "heartbed-lab-"); err != nil {
		return err
	}
	program := filepath.Join(l.folder, "workload")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "heartbed/cmd/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	ours, err := image.Programs("", program)
	if err != nil {
		return err
	}
	p := testbedtest.Plan()
	p.Nodes = append(p.Nodes, testbed.Node{Name: "n3", Cores: 1, Slowness: 1})
	p.RTT = [][]time.Duration{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}
	kubeconfig, err := l.docker.Up(ctx, p)
	if err != nil {
		return err
	}
	l.backend.Options = Options{Kubeconfig: kubeconfig, Image: ours.Name, Journals: filepath.Join(l.folder, "journals")}
	return l.docker.Load(ctx, ours, false)
}

// liveBackend is a backend on the lab, where that can be made.
func liveBackend(t *testing.T) *Backend {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster takes minutes")
	}
	lab.once.Do(func() {
		if lab.err = lab.docker.Check(t.Context()); lab.err == nil {
			lab.err = lab.make(context.WithoutCancel(t.Context()))
		}
	})
	testbedtest.Require(t, "kind", lab.err)
	return &lab.backend
}

func nothing(context.Context) error { return nil }

func TestContract(t *testing.T) { testbedtest.Run(t, liveBackend(t)) }

// A run says what the cluster is beside the plan: the policies get the measured
// round trips, and nothing is judged.
func TestResultSaysWhatTheClusterIs(t *testing.T) {
	b := liveBackend(t)
	p := testbedtest.Plan()
	p.Timing.Duration = p.Timing.Duration / 2
	s, err := b.Start(t.Context(), p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Route(t.Context(), testbedtest.Table(1, 1)))
	o, err := s.Observe(t.Context())
	require.NoError(t, err)
	require.Less(t, o.Topology.RTT[0][1], 5*time.Millisecond, "measured; the plan has 10 ms")
	require.Equal(t, o.Topology.RTT[0][1], o.Topology.RTT[1][0])
	m, err := s.Run(t.Context(), nothing)
	require.NoError(t, err)
	require.Empty(t, m.Faults)
	require.Equal(t, m.Offered, m.Answered)
	setup := map[string]testbed.SetupCheck{}
	for _, c := range m.Setup {
		setup[c.What] = c
	}
	require.Equal(t, 10.0, setup["round trip n1 to n2"].Spec)
	require.Less(t, setup["round trip n1 to n2"].Measured, 5.0)
	require.Contains(t, setup, "round trip load generator to n2")
	text := fmt.Sprint(m.Warnings)
	require.Contains(t, text, "1 of 3 round trips are not the plan's, most of all n1 to n2")
	require.Contains(t, text, "the load generator is a pod on ")
	require.NotContains(t, text, "in each other's way", "the third node is free")
	require.Contains(t, text, "noise floor: ")
	for _, w := range m.Windows {
		require.Len(t, w.Busy, 4, "CPU time comes from the exporters")
		require.Positive(t, w.Busy["b1"])
	}
}
