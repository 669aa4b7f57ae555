package live

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What sets a run up does not wait for ever, and says what it waited for.
func TestStageGivesUp(t *testing.T) {
	waits := Stage{"wait for the replicas", time.Millisecond, func(ctx context.Context) error {
		return Pause(ctx, time.Minute)
	}}
	require.ErrorContains(t, waits.run(t.Context()), "wait for the replicas: gave up after 1ms")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := waits.run(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "gave up")
}
