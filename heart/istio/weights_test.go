package istio

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		weights []uint32
		want    []int
	}{
		{[]uint32{1}, []int{100}},
		{[]uint32{1, 1, 1}, []int{34, 33, 33}},            // equal remainders: the first
		{[]uint32{1, 2}, []int{33, 67}},                   // 33.3, 66.7
		{[]uint32{5, 995}, []int{1, 99}},                  // 0.5, 99.5: equal remainders
		{[]uint32{4, 996}, []int{0, 100}},                 // 0.4, 99.6
		{[]uint32{1 << 31, 1 << 31}, []int{50, 50}},       // no overflow
		{[]uint32{166, 166, 668}, []int{17, 16, 67}},      // 16.6, 16.6, 66.8: 98 and two to give
		{[]uint32{0, 7, 0}, []int{0, 100, 0}},             // zero stays zero
		{[]uint32{0, 0}, []int{0, 0}},                     // nothing to divide
		{[]uint32{125, 125, 750}, []int{13, 12, 75}},      // 12.5, 12.5, 75
		{[]uint32{4294967295, 1, 1}, []int{100, 0, 0}},    // the sum exceeds 32 bits
		{[]uint32{3333, 3333, 3334}, []int{33, 33, 34}},   // the largest remainder is the last
		{[]uint32{10, 20, 30, 40}, []int{10, 20, 30, 40}}, // exact
	} {
		require.Equal(t, c.want, percent(c.weights), "%v", c.weights)
	}
}

func TestPercentAddsUpAndIsOffByLessThanOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint32(), 1, 200).Draw(t, "weights")
		total := 0.0
		for _, w := range weights {
			total += float64(w)
		}
		if total == 0 {
			return
		}
		sum := 0
		for i, p := range percent(weights) {
			sum += p
			require.InDelta(t, float64(weights[i])/total*100, p, 1-1e-9)
		}
		require.Equal(t, 100, sum)
	})
}
