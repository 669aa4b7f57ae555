package istio

import (
	"cmp"
	"slices"
)

// percent turns weights into whole per cent that add up to exactly 100: each
// is rounded down and the largest remainders get what is left, the first of
// equal ones. No share is off by 1 per cent or more. All zero gives all zero.
func percent(weights []uint32) []int {
	var sum uint64
	for _, w := range weights {
		sum += uint64(w)
	}
	shares := make([]int, len(weights))
	if sum == 0 {
		return shares
	}
	left := 100
	order := make([]int, len(weights))
	for i, w := range weights {
		shares[i] = int(uint64(w) * 100 / sum)
		left -= shares[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(uint64(weights[b])*100%sum, uint64(weights[a])*100%sum)
	})
	for _, i := range order[:left] {
		shares[i]++
	}
	return shares
}
