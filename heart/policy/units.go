package policy

import (
	"cmp"
	"math"
	"slices"
)

// flowUnits is the whole a route or a component is divided into: shares are
// integers of one ten-thousandth, so that the flow problems are exact.
const flowUnits = 10_000

// apportion divides total units in proportion to the amounts by the method of
// largest remainder; of equal remainders the first wins. Amounts are not
// negative and not all zero.
func apportion(amounts []float64, total int64) []int64 {
	sum := 0.0
	for _, a := range amounts {
		sum += a
	}
	units, order := make([]int64, len(amounts)), make([]int, len(amounts))
	remainder := make([]float64, len(amounts))
	rest := total
	for i, a := range amounts {
		exact := a / sum * float64(total)
		units[i], order[i] = int64(exact), i
		remainder[i] = math.Round((exact - float64(units[i])) * 1e6) // equal but for rounding = equal
		rest -= units[i]
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(remainder[j], remainder[i]) })
	for _, i := range order[:rest] {
		units[i]++
	}
	return units
}

// apportionAll is apportion with at least one unit for everyone, taken from
// the largest: a group without traffic would never be measured again, and a
// caller without supply would have no route. The total is no less than the
// number of amounts.
func apportionAll(amounts []float64, total int64) []int64 {
	units := apportion(amounts, total)
	for i := range units {
		if units[i] == 0 {
			largest := slices.Index(units, slices.Max(units))
			units[i]++
			units[largest]--
		}
	}
	return units
}
