package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

// Request n of a run costs what its draws say (workloads.RequestDraws): the
// load generator sends the same on a live backend.
func TestRequestsCostWhatTheirDrawsSay(t *testing.T) {
	for _, schedule := range []string{"open", "wrk2"} {
		for _, warmup := range []float64{0, 1000} {
			t.Run(fmt.Sprintf("%s, warm-up of %v ms", schedule, warmup), func(t *testing.T) {
				p := solo(2, workloads.Server{Threads: 1000})
				p.Nodes[0].Cores = 1000
				p.App.ServiceTime = workloads.Distribution{Kind: "exponential"}
				p.Load = workloads.Load{Schedule: schedule, Threads: 2, Connections: 10, Arrivals: "even"}
				p.RPS, p.Seed = 10, 5
				p.Timing.Duration, p.Timing.Warmup = ms(4950), ms(warmup)
				w := build(t, p)
				m := play(t, w)
				require.GreaterOrEqual(t, m.Answered, int64(48))
				require.Zero(t, m.CutOff, "which would count in part")

				run, sum := workloads.MeasuredRun(warmup > 0), 0.0
				sampler := workloads.NewSampler(p.App.ServiceTime)
				for serial := range uint64(m.Answered) {
					d := workloads.RequestDraws(p.Seed, run, serial+1)
					sum += 2000 * sampler.Factor(&d)
				}
				require.InEpsilon(t, sum, w.client.occupied/1e3, 1e-6)
			})
		}
	}
}
