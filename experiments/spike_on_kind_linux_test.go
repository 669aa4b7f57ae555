package experiments_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"
)

// The lowest coverage of activescale in 32 published runs of TC1, percent.
const publishedLeast = 75.88

// A spike on a real cluster: the same service twice, scaled by a real HPA on
// requests in flight through activescale and by one on CPU through a real
// metrics-server, under the same load at the same time. Then what activescale
// needs is killed in turn, and no replica may go for want of knowledge.
func TestSpikeOnKind(t *testing.T) {
	onKind(t)
	var l *spikeLab
	does := func(f func(*spikeLab, context.Context, *testing.T)) features.Func {
		return func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			f(l, ctx, t)
			return ctx
		}
	}
	underLoad := func(f func(*spikeLab, context.Context, *testing.T)) features.Func {
		return does(func(l *spikeLab, ctx context.Context, t *testing.T) {
			if l.steady == nil {
				t.Skip("there was no spike")
			}
			f(l, ctx, t)
		})
	}
	environment.Test(t, features.New("spike").
		Setup(func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			l = newSpikeLab(ctx, t, c)
			return ctx
		}).
		Assess("scales as published", does((*spikeLab).scales)).
		Assess("answers as documented", underLoad((*spikeLab).answersAsDocumented)).
		Assess("is not blinded by the loss of Redis", underLoad((*spikeLab).losesRedis)).
		Assess("is not blinded by the loss of a replica", underLoad((*spikeLab).losesReplica)).
		Assess("is not blinded by an update", underLoad((*spikeLab).isUpdated)).
		Assess("knows that it knows nothing", underLoad((*spikeLab).losesSink)).
		Teardown(does((*spikeLab).tellFaults)).Feature())
}

// ready waits until all of the lab is, and both HPAs see the base load.
func (l *spikeLab) ready(ctx context.Context, t *testing.T) {
	until(ctx, t, "servers that are ready", func() bool {
		for name, replicas := range map[string]int32{adapter: 2, "metrics-server": 1, "redis": 1, byActive: 1, byCPU: 1} {
			d, err := l.client.AppsV1().Deployments(spikeSpace).Get(ctx, name, metav1.GetOptions{})
			if err != nil || d.Status.ReadyReplicas < replicas {
				return false
			}
		}
		return true
	})
}

// settles offers the base load until both HPAs see it, and makes the one on CPU
// ask of a replica what the other one does: a target that the load, for which a
// replica is meant, is as near to. What a request costs depends on the machine
// and on what else it does, so this is measured.
func (l *spikeLab) settles(ctx context.Context, t *testing.T) {
	t.Helper()
	began := time.Now()
	var bases []*steady
	for _, name := range rivals {
		bases = append(bases, l.steadily(ctx, name, l.plan.RPS*l.plan.Load.Profile[0].Factor))
	}
	until(ctx, t, "HPAs that see the base load", func() bool {
		for _, name := range rivals {
			s, h := l.watch.now(name)
			if h.active != corev1.ConditionTrue || h.value == "" || s.wanted != 1 || s.ready != 1 {
				return false
			}
		}
		return time.Since(began) > measuring
	})
	_, active := l.watch.now(byActive)
	_, cpu := l.watch.now(byCPU)
	l.targetCPU = int(math.Round(float64(cpu.percent) * l.plan.Autoscale.TargetActive / ratedActive))
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": %d}]`, l.targetCPU)
	_, err := l.client.AutoscalingV2().HorizontalPodAutoscalers(spikeSpace).Patch(ctx, byCPU, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	t.Logf("base load: %s requests in flight (target %g), CPU %s of %d m (target from now on %d %%)", active.value, l.plan.Autoscale.TargetActive, cpu.value, requestMilli, l.targetCPU)
	for _, b := range bases {
		b.stop()
	}
	for _, b := range bases {
		b.end()
	}
}

// measuring is how long the base load lasts at least: a window of metrics-server,
// its collection, a measurement of the kubelet and a round of the HPA.
const measuring = 50 * time.Second

// scales: activescale's coverage is in the published range, and no less than
// that of CPU in the same run.
func (l *spikeLab) scales(ctx context.Context, t *testing.T) {
	l.settles(ctx, t)
	results := l.spike(ctx, t)
	table(t, results)
	active, cpu := results[byActive], results[byCPU]
	require.Equal(t, 1, active.Replicas[0].Ready, "%v", active.Replicas)
	require.GreaterOrEqual(t, active.CoveragePct, publishedLeast)
	require.GreaterOrEqual(t, active.CoveragePct, cpu.CoveragePct)
	// The other half of the machine is of no more use.
	for _, r := range l.releases {
		if r.Name == byCPU {
			require.NoError(t, r.Uninstall(ctx, l.dynamic))
		}
	}
}
