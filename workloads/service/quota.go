package service

import (
	"math"

	"heartbed/workloads"
)

// Procs is GOMAXPROCS for a server on a machine of so many cores under quotas
// in cores, of which 0 is none. It leaves a thread to take requests while the
// server's own threads burn, or a busy replica would see its calls only when
// the Go runtime preempts it, every 10 ms.
func Procs(cores int, s workloads.Server, quotas ...float64) int {
	n := cores
	for _, q := range quotas {
		if q > 0 {
			n = min(n, int(math.Ceil(q)))
		}
	}
	return max(n, int(math.Ceil(s.Threads))+1)
}
