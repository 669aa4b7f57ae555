package heart

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is an Observer and a Router that keeps the table in force.
type place struct {
	observation Observation
	observeErr  error
	routeErr    error
	inForce     RoutingTable
	routed      int
}

func (p *place) Observe(context.Context) (Observation, error) { return p.observation, p.observeErr }

func (p *place) Route(_ context.Context, table RoutingTable) error {
	if p.routeErr != nil {
		return p.routeErr
	}
	p.inForce, p.routed = table, p.routed+1
	return nil
}

func decide(table RoutingTable) Policy {
	return PolicyFunc(func(_ Observation, m *Meter) (Decision, error) {
		m.Lap("flow")
		return Decision{Table: table}, nil
	})
}

func TestStepRoutes(t *testing.T) {
	p := &place{observation: Observation{Topology: twoComponents()}}
	c := Controller{Observer: p, Policy: decide(goodTable()), Router: p}
	step, err := c.Step(t.Context())
	require.NoError(t, err)
	require.Equal(t, goodTable(), p.inForce)
	require.Equal(t, goodTable(), step.Decision.Table)
	require.Nil(t, step.Seconds, "no clock was given")
}

func TestStepTimesStages(t *testing.T) {
	var reads int64
	p := &place{observation: Observation{Topology: twoComponents()}}
	c := Controller{Observer: p, Policy: decide(goodTable()), Router: p,
		Now: func() time.Time { reads++; return time.Unix(reads*reads, 0) }}
	step, err := c.Step(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"collect": 3, "flow": 5, "validate": 7, "apply": 9}, step.Seconds)
}

// Whatever fails, the table in force stays, and the error says which stage.
func TestStepFailsStatic(t *testing.T) {
	boom := errors.New("boom")
	bad := goodTable()
	bad.Routes = nil
	cases := map[string]struct {
		change func(*place, *Controller)
		want   string
		is     error
	}{
		"observe": {func(p *place, c *Controller) { p.observeErr = boom }, "observe: boom", boom},
		"allocate": {func(p *place, c *Controller) {
			c.Policy = PolicyFunc(func(Observation, *Meter) (Decision, error) { return Decision{Table: goodTable()}, boom })
		}, "allocate: boom", boom},
		"validate": {func(p *place, c *Controller) { c.Policy = decide(bad) }, `validate table: replica "d1" has 0 routes`, nil},
		"apply":    {func(p *place, c *Controller) { p.routeErr = boom }, "apply: boom", boom},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old := RoutingTable{Groups: []Group{{Name: "old"}}}
			p := &place{observation: Observation{Topology: twoComponents()}, inForce: old}
			c := Controller{Observer: p, Policy: decide(goodTable()), Router: p}
			tc.change(p, &c)
			_, err := c.Step(t.Context())
			require.ErrorContains(t, err, tc.want)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
			require.Equal(t, old, p.inForce)
			require.Zero(t, p.routed)
		})
	}
}

// Run steps at once and then every period, goes on after errors, and ends with
// its context without leaving anything behind.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{observation: Observation{Topology: twoComponents()}}
		c := Controller{Observer: p, Policy: decide(goodTable()), Router: p}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Duration
		var failed int
		done := make(chan error)
		go func() {
			done <- c.Run(ctx, 30*time.Second, func(_ Step, err error) {
				at = append(at, time.Since(start))
				if p.observeErr = nil; len(at) == 1 {
					p.observeErr = errors.New("late scrape")
				}
				if err != nil {
					failed++
				}
			})
		}()
		time.Sleep(95 * time.Second)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Equal(t, []time.Duration{0, 30 * time.Second, 60 * time.Second, 90 * time.Second}, at)
		require.Equal(t, 1, failed)
		require.Equal(t, 3, p.routed)
	})
}

func TestMeterWithoutClock(t *testing.T) {
	var none *Meter
	none.Start()
	none.Lap("flow")
	m := &Meter{}
	m.Start()
	m.Lap("flow")
	require.Nil(t, m.Seconds)
}
