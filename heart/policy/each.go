package policy

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// parallelWork is the number of links or replicas from which a stage, which then
// takes some ten milliseconds, is worth a second core. Below, waiting for a busy
// core may cost more than it brings.
const parallelWork = 100_000

// each calls do for 0 to n-1, at the same time where the work is large enough.
// Calls write to places of their own, so that the outcome does not depend on
// their order.
func each(n, work int, do func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if work < parallelWork || workers < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}
