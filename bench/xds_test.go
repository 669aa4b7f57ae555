package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestXDSBench(t *testing.T) {
	b, err := newXDSBench(t.Context())
	require.NoError(t, err)
	defer b.close()
	times, err := b.tables(t.Context())
	require.NoError(t, err)
	require.Len(t, times, xdsTables)
	require.True(t, slices.IsSorted(times))
	require.Positive(t, times[0], "an ack takes time")
	require.NoError(t, closedLoop(t.Context(), b.clients[0]))
	for _, ack := range b.server.Acks() {
		require.True(t, ack.Accepted, ack.Replica)
	}
}

func TestRank(t *testing.T) {
	sorted := []time.Duration{1000, 2000, 3000, 4000, 5000}
	require.Equal(t, []time.Duration{1000, 3000, 4000, 5000}, []time.Duration{rank(sorted, 0), rank(sorted, .5), rank(sorted, .9), rank(sorted, 1)})
}
