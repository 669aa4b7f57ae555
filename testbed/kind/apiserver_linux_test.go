package kind

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

// An API server that is killed in a run is nobody's loss: pods, tables and load
// go on, and the session closes when it is back.
func TestAPIServerIsKilledInARun(t *testing.T) {
	b := liveBackend(t)
	s, err := b.Start(t.Context(), testbedtest.Plan())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Route(t.Context(), testbedtest.Table(1, 1)))
	kill := sync.OnceValue(func() error {
		_, err := docker(t.Context(), "exec", b.kept.control.name, "pkill", "-KILL", "-f", "^kube-apiserver|/kube-apiserver")
		return err
	})
	m, err := s.Run(t.Context(), func(context.Context) error { return kill() })
	require.NoError(t, err)
	require.Empty(t, m.StepErrors)
	require.Empty(t, m.Faults)
	require.Equal(t, m.Offered, m.Answered)
}
