package policy

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// parallelWork is the number of links or replicas from which a stage is worth
// the start of goroutines, which costs some 10 µs.
const parallelWork = 10_000

// each calls do for 0 to n-1, at the same time where the work is large enough,
// and joins the errors. Calls write to places of their own, so that the
// outcome does not depend on their order.
func each(n, work int, do func(i int) error) error {
	errs := make([]error, n)
	workers := min(n, runtime.GOMAXPROCS(0))
	if work < parallelWork {
		workers = 1
	}
	if workers <= 1 {
		for i := range n {
			errs[i] = do(i)
		}
		return errors.Join(errs...)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
