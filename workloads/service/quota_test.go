package service

import (
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

func TestProcs(t *testing.T) {
	for _, c := range []struct {
		cores   int
		threads float64
		quotas  []float64
		want    int
	}{
		{8, 1, nil, 8},
		{8, 1, []float64{0}, 8},
		{8, 1, []float64{3.2}, 4},
		{8, 1, []float64{0, 2.5}, 3},
		{8, 1, []float64{5, 3}, 3},
		{8, 1, []float64{0.5}, 2}, // one to burn, one to take requests
		{8, 2.5, []float64{0.5}, 4},
		{1, 1, nil, 2},
		{2, 1, []float64{6}, 2},
	} {
		require.Equal(t, c.want, Procs(c.cores, workloads.Server{Threads: c.threads}, c.quotas...), "%+v", c)
	}
}
