package live

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"heartbed/heart"
	"heartbed/workloads/service"
)

// told is the balancer that each caller was last told, by caller replica and
// component called.
type told map[[2]string]heart.Balancer

// tellBalancers tells the callers which balancer their routes have now, where
// it is not what they know: their channels and so their counters and pinned
// connections depend on it.
func (s *Session) tellBalancers(ctx context.Context, table heart.RoutingTable) error {
	callers := map[string][]string{}
	for _, g := range table.Groups {
		callers[g.Name] = g.Replicas
	}
	news := told{}
	for _, r := range table.Routes {
		for _, caller := range callers[r.From] {
			if key := [2]string{caller, r.To}; s.told[key] != r.Balancer {
				news[key] = r.Balancer
			}
		}
	}
	replicas := map[string]Replica{}
	for _, r := range s.Layout.Replicas {
		replicas[r.Name] = r
	}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for key, balancer := range news {
		all.Go(func() {
			err := s.tell(ctx, replicas[key[0]], service.BalancerPath+key[1], string(balancer))
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); err == nil {
				s.told[key] = balancer
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tell the callers their balancers: %w", err)
	}
	return nil
}
