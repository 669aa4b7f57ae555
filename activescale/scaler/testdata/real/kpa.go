//go:build ignore

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/serving/pkg/autoscaler/aggregation"
	"knative.dev/serving/pkg/autoscaler/scaling"
)

type counter struct{ n int }

func (c *counter) ReadyCount() (int, error)    { return c.n, nil }
func (c *counter) NotReadyCount() (int, error) { return 0, nil }

type client struct{ s, p float64 }

func (c *client) StableAndPanicConcurrency(types.NamespacedName, time.Time) (float64, float64, error) {
	return c.s, c.p, nil
}
func (c *client) StableAndPanicRPS(types.NamespacedName, time.Time) (float64, float64, error) {
	return c.s, c.p, nil
}

type Tick struct {
	At       int     `json:"at"`
	Ready    int     `json:"ready"`
	Load     float64 `json:"load"`
	Replicas int     `json:"replicas"`
}

func main() {
	rng := rand.New(rand.NewPCG(9, 9))
	var runs [][]Tick
	for range 6 {
		base := time.Now().Truncate(time.Second) // New reads the clock
		st := aggregation.NewTimedFloat64Buckets(60*time.Second, time.Second)
		pn := aggregation.NewTimedFloat64Buckets(6*time.Second, time.Second)
		c, m := &counter{1 + rng.IntN(4)}, &client{}
		spec := &scaling.DeciderSpec{MaxScaleUpRate: 1000, MaxScaleDownRate: 2, ScalingMetric: "concurrency", TargetValue: 10, TotalValue: 14, TargetBurstCapacity: 0, PanicThreshold: 2, StableWindow: 60 * time.Second, Reachable: true}
		var a scaling.UniScaler
		level := 20.0
		var run []Tick
		for at := range 300 {
			now := base.Add(time.Duration(at) * time.Second)
			if rng.IntN(40) == 0 {
				level = []float64{0, 5, 20, 60, 150, 300}[rng.IntN(6)]
			}
			load := float64(int(level * (0.8 + 0.4*rng.Float64())))
			if at == 100 {
				load = 0
				level = 0
			}
			st.Record(now, load)
			pn.Record(now, load)
			t := Tick{At: at, Ready: c.n, Load: load, Replicas: -1}
			if at%2 == 0 {
				if a == nil {
					a = scaling.New(attribute.NewSet(), noop.NewMeterProvider(), "n", "r", m, c, spec)
				}
				m.s, m.p = st.WindowAverage(now), pn.WindowAverage(now)
				r := a.Scale(zap.NewNop().Sugar(), now)
				t.Replicas = int(r.DesiredPodCount)
				if rng.IntN(3) > 0 {
					c.n = max(0, min(30, t.Replicas))
				}
			}
			run = append(run, t)
		}
		runs = append(runs, run)
	}
	fmt.Println("[")
	for i, r := range runs {
		b, _ := json.Marshal(r)
		if i > 0 {
			fmt.Println(",")
		}
		fmt.Print(string(b))
	}
	fmt.Println("\n]")
}
