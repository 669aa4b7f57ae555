package service

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

// opened makes a station for the test.
func opened(t *testing.T, s workloads.Server) *station {
	st, err := newStation(s)
	require.NoError(t, err)
	return st
}

// serve takes a slot, burns and leaves.
func (s *station) serve(ctx context.Context, cpu time.Duration) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.burn(ctx, int64(cpu))
}

// TestBurnUsesWhatItSays compares the thread's clock with the CPU time that
// the kernel books to the whole process, whatever else the machine does.
func TestBurnUsesWhatItSays(t *testing.T) {
	st := opened(t, workloads.Server{Threads: 1})
	const each, n = 5 * time.Millisecond, 20
	before := processCPU()
	for range n {
		require.NoError(t, st.burn(t.Context(), int64(each)))
	}
	used := processCPU() - before
	want := (n * each).Seconds()
	require.GreaterOrEqual(t, used, want*0.99)
	require.LessOrEqual(t, used, want*1.3, "what burning itself costs")
}

// TestThreadsBoundTheCores lets four jobs run at once on one thread: together
// they cannot be faster than their CPU time.
func TestThreadsBoundTheCores(t *testing.T) {
	st := opened(t, workloads.Server{Threads: 1})
	started := time.Now()
	var jobs sync.WaitGroup
	for range 4 {
		jobs.Go(func() { _ = st.serve(t.Context(), 10*time.Millisecond) })
	}
	jobs.Wait()
	require.GreaterOrEqual(t, time.Since(started), 40*time.Millisecond)
}

// TestSlotsDecideTheOrder starts a long and then a short job: one slot is a
// queue, no limit is processor sharing.
func TestSlotsDecideTheOrder(t *testing.T) {
	for name, c := range map[string]struct {
		slots int
		first string
	}{
		"one slot": {1, "long"},
		"no limit": {0, "short"},
		"two":      {2, "short"},
	} {
		t.Run(name, func(t *testing.T) {
			st := opened(t, workloads.Server{Threads: 1, Slots: c.slots})
			ends := make(chan string, 2)
			go func() { _ = st.serve(t.Context(), 60*time.Millisecond); ends <- "long" }()
			require.Eventually(t, func() bool {
				st.slots.mu.Lock()
				defer st.slots.mu.Unlock()
				return st.slots.entered == 1
			}, time.Second, 100*time.Microsecond)
			go func() { _ = st.serve(t.Context(), 2*time.Millisecond); ends <- "short" }()
			require.Equal(t, c.first, <-ends)
			<-ends
		})
	}
}

// TestGivingUpFreesThePlace lets the middle one of three give up while it
// waits: the third gets the slot, and none is lost.
func TestGivingUpFreesThePlace(t *testing.T) {
	st := opened(t, workloads.Server{Threads: 1, Slots: 1})
	require.NoError(t, st.enter(t.Context()))
	impatient, giveUp := context.WithCancel(t.Context())
	second, third := make(chan error, 1), make(chan error, 1)
	waits := func(n int) func() bool {
		return func() bool {
			st.slots.mu.Lock()
			defer st.slots.mu.Unlock()
			return len(st.slots.waiting) == n
		}
	}
	go func() { second <- st.enter(impatient) }()
	require.Eventually(t, waits(1), time.Second, 100*time.Microsecond)
	go func() { third <- st.enter(t.Context()) }()
	require.Eventually(t, waits(2), time.Second, 100*time.Microsecond)
	giveUp()
	require.ErrorIs(t, <-second, context.Canceled)
	st.leave()
	require.NoError(t, <-third)
	st.leave()
	require.Zero(t, st.slots.entered)
}

func TestBurnEndsWithItsContext(t *testing.T) {
	st := opened(t, workloads.Server{Threads: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, st.burn(ctx, int64(time.Hour)), context.DeadlineExceeded)
	require.NoError(t, st.burn(t.Context(), int64(time.Millisecond)), "the thread is free again")
}
