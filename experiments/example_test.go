package experiments

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// HEART, motivation: filtering one link lowers the critical path from 100 to
// 80 ms.
func TestWorkedExamples(t *testing.T) {
	got, err := WorkedExamples()
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"criticalPathAllLinksMs": 100, "criticalPathFilteredMs": 80}, got)
}
