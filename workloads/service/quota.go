package service

import "math"

// Procs is GOMAXPROCS for a machine of so many cores under quotas in cores,
// of which 0 is none. As in the Go runtime it is never below 2 where there
// are 2 cores: one thread burns, the other takes requests.
func Procs(cores int, quotas ...float64) int {
	n := cores
	for _, q := range quotas {
		if q > 0 {
			n = min(n, max(2, int(math.Ceil(q))))
		}
	}
	return n
}
