package experiments

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/sim"

	"heartbed/heart/policy"
	"heartbed/workloads"
)

func TestTrialsFormBlocks(t *testing.T) {
	s, err := Load("LAN")
	require.NoError(t, err)
	trials, err := s.Trials("sim")
	require.NoError(t, err)
	methods := len(s.Compare)
	require.Len(t, trials, s.Repetitions*6*methods)
	ids, orders, seeds := map[string]bool{}, map[string]bool{}, map[uint64]bool{}
	for block := range slices.Chunk(trials, methods) {
		seen := map[string]bool{}
		order := ""
		for _, p := range block {
			require.Equal(t, block[0].App, p.App)
			require.Equal(t, block[0].RPS, p.RPS)
			require.Equal(t, block[0].Rep, p.Rep)
			require.Equal(t, p.Seed, p.Plan.Seed)
			require.Equal(t, block[0].Plan.Seed, p.Plan.Seed, "a block has the same arrivals")
			require.Equal(t, block[0].Plan.Load, p.Plan.Load)
			require.False(t, seen[p.Policy])
			seen[p.Policy], ids[p.ID] = true, true
			order += p.Policy + " "
		}
		orders[order], seeds[block[0].Seed] = true, true
	}
	require.Len(t, ids, len(trials), "every trial has an ID of its own")
	require.Len(t, seeds, len(trials)/methods, "every block has arrivals of its own")
	require.Greater(t, len(orders), 10, "methods are shuffled inside the blocks")
	require.Equal(t, 1, trials[len(trials)/s.Repetitions-1].Rep, "a repetition is complete before the next begins")

	again, err := s.Trials("sim")
	require.NoError(t, err)
	require.Equal(t, trials, again)
}

// The ID changes with everything that determines the outcome.
func TestTrialIDDependsOnAllInput(t *testing.T) {
	id := func(change func(*Scenario)) string {
		s, err := Load("A")
		require.NoError(t, err)
		change(&s)
		s.Compare, s.Repetitions = []string{"heart"}, 1
		trials, err := s.Trials("sim")
		require.NoError(t, err)
		return trials[0].ID
	}
	same := id(func(*Scenario) {})
	require.Regexp(t, "^[0-9a-f]{16}$", same)
	require.Equal(t, same, id(func(s *Scenario) { s.Title = "other words"; s.Provenance = Provenance{}; s.Repetitions = 99 }))
	seen := map[string]string{same: "nothing"}
	app := func(s *Scenario, change func(*App)) {
		a := s.Apps["dag"]
		change(&a)
		s.Apps["dag"] = a
	}
	changes := map[string]func(*Scenario){
		"seed":     func(s *Scenario) { s.Seed++ },
		"name":     func(s *Scenario) { s.Name = "other" },
		"slowness": func(s *Scenario) { s.Nodes[1].Slowness = 1.01 },
		"rtt":      func(s *Scenario) { s.RTTScale = 1.01 },
		"sidecar":  func(s *Scenario) { s.Network.Sidecar++ },
		"gateway":  func(s *Scenario) { s.Entry.Gateway = "w2" },
		"load":     func(s *Scenario) { s.Load.Connections++ },
		"duration": func(s *Scenario) { s.Timing.Duration++ },
		"window":   func(s *Scenario) { s.Control.Window++ },
		"cpu":      func(s *Scenario) { app(s, func(a *App) { a.CPUMs++ }) },
		"rps":      func(s *Scenario) { app(s, func(a *App) { a.RPS = []float64{1} }) },
		"server":   func(s *Scenario) { app(s, func(a *App) { a.Server = &workloads.Server{Threads: 2} }) },
		"params": func(s *Scenario) {
			s.Methods = map[string]Method{"heart": {Policy: "heart", Params: map[string]string{"filter": "off"}}}
		},
		"placement": func(s *Scenario) { s.Apps["dag"].Placements["one-a-node"].Given["a"][0] = "w2" },
		"replicas": func(s *Scenario) {
			app(s, func(a *App) { a.Replicas = map[string]int{"a": 1} })
			s.Apps["dag"].Placements["one-a-node"].Given["a"] = []string{"w1"}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		got := id(changes[name])
		require.Emptyf(t, seen[got], "%s does not show in the ID", name)
		seen[got] = name
	}
}

func TestSelect(t *testing.T) {
	s, err := Load("A")
	require.NoError(t, err)
	minute := time.Minute
	got, err := s.Select(Selection{Apps: []string{"pair"}, Methods: []string{"heart", "all", "heart"}, RPS: []float64{12.5}, Repetitions: 3, Duration: &minute})
	require.NoError(t, err)
	require.Equal(t, []string{"pair"}, slices.Collect(maps.Keys(got.Apps)))
	require.Equal(t, "heart", got.Compare[0], "the order given is kept, each method once")
	require.ElementsMatch(t, policy.Names(), got.Compare)
	require.Equal(t, []float64{12.5}, got.Apps["pair"].RPS)
	require.Equal(t, workloads.Duration(minute), got.Timing.Duration)
	require.Equal(t, s.Timing.Warmup, got.Timing.Warmup)
	require.Len(t, s.Apps, 2, "the scenario itself is unchanged")

	quick, err := s.Select(Selection{Quick: true})
	require.NoError(t, err)
	require.Equal(t, quickRepetitions, quick.Repetitions)
	require.Less(t, quick.Timing.Duration, s.Timing.Duration)
	require.Contains(t, quick.Warnings()[0], "quick run")

	short, err := s.Select(Selection{Short: true, Repetitions: 2})
	require.NoError(t, err)
	require.Equal(t, s.Short.Timing, short.Timing)
	require.Equal(t, s.Short.Control, short.Control)
	require.Equal(t, 2, short.Repetitions, "a flag overrides it")
	trials, err := short.Trials("sim")
	require.NoError(t, err)
	for _, p := range trials {
		form := s.Short.Apps[p.App]
		require.Equal(t, form.Scale, p.Scale)
		require.Contains(t, form.RPS, p.RPS)
		require.Equal(t, p.RPS/form.Scale, p.Plan.RPS)
	}
	require.Contains(t, short.Warnings()[0], "quick run")
	again, err := short.Select(Selection{Scale: 6})
	require.NoError(t, err)
	require.Zero(t, again.Apps["pair"].Scale, "one factor for all apps")
	_, err = again.Select(Selection{Short: true})
	require.ErrorContains(t, err, "short: found no short form in scenario A")

	negative := -time.Second
	_, err = s.Select(Selection{Apps: []string{"shop"}, Methods: []string{"magic"}, RPS: []float64{0, math.NaN(), math.Inf(1)}, Repetitions: -1, Warmup: &negative})
	require.ErrorIs(t, err, ErrInput)
	for _, want := range []string{
		`app: found "shop", expected one of dag, pair`,
		`policy: found "magic", expected one of heart,`,
		"rps: found 0, expected a number above 0", "rps: found NaN", "rps: found +Inf",
		"reps: found -1", "warmup: found -1s",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestPlacementRuleWithoutRoomIsAFault(t *testing.T) {
	s, err := Load("LAN")
	require.NoError(t, err)
	a := s.Apps["pair"]
	a.Placements = map[string]Placement{"tight": {Rule: "spread", CPU: 5, MemoryMB: 1}}
	a.Placement = "tight"
	s.Apps["pair"] = a
	_, err = s.Experiment(Selection{}, "sim")
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "apps.pair.placements.tight: ")
	a.Placements["tight"] = Placement{Rule: "spread", CPU: 0.5, MemoryMB: 1}
	e, err := s.Experiment(Selection{Apps: []string{"pair"}}, "sim")
	require.NoError(t, err)
	require.Equal(t, "w1", e.Trials[0].Plan.Replicas[0].Node)
}

// A scale of 4 leaves a quarter of the CPU and of the load; what the trial is
// called, the round-trip times and a request's CPU time stay. Utilisation is
// what it was: asserted by running both in the simulator.
func TestScaledPlan(t *testing.T) {
	s, err := Load("LAN")
	require.NoError(t, err)
	busy := map[float64]float64{}
	for _, scale := range []float64{1, 4} {
		e, err := s.Experiment(Selection{Apps: []string{"dag"}, Methods: []string{"heart"}, RPS: []float64{200}, Repetitions: 1, Scale: scale}, "sim")
		require.NoError(t, err)
		require.Equal(t, 200.0, e.Trials[0].RPS)
		require.Equal(t, 200/scale, e.Trials[0].Plan.RPS)
		require.Equal(t, 8/scale, e.Trials[0].Plan.Nodes[0].Cores)
		require.Equal(t, 8.0, e.Scenario.Nodes[0].Cores, "the scenario itself is not changed")
		out, err := e.Run(t.Context(), sim.Backend{}, Options{Dir: t.TempDir(), Workers: 1})
		require.NoError(t, err)
		busy[scale] = out.Results[0].CPU["c1"].Mean
		if scale > 1 {
			require.Contains(t, out.Results[0].Warnings[0], "scaled by 4")
		}
	}
	require.InDelta(t, busy[1], busy[4], 0.02)
	_, err = s.Experiment(Selection{Scale: 0.5}, "sim")
	require.ErrorContains(t, err, "scale: found 0.5, expected a number of 1 or more")
}
