package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocal(t *testing.T) {
	contract(t, func(testing.TB) Store { return NewLocal(ttl) })
}

// Pods come and go for as long as a replica runs.
func TestLocalForgetsPodsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewLocal(ttl)
		for i := range 10_000 {
			put(t, s, Pod{"ns", fmt.Sprint(i)}, sample(1, 1))
			time.Sleep(ttl / 100)
			require.LessOrEqual(t, len(s.kept), 201)
		}
	})
}

// BenchmarkLocal: 5,000 pods that push and one query of 100 pods for every 15
// puts, as 1,000 HPAs every 15 s ask beside them every 5 s.
func BenchmarkLocal(b *testing.B) {
	s := NewLocal(time.Minute)
	pods := make([]Pod, 5000)
	for i := range pods {
		pods[i] = Pod{"namespace", fmt.Sprintf("deployment-5c689d88bb-%05d", i)}
		put(b, s, pods[i], sample(1, 1))
	}
	var n atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			i := n.Add(1)
			if i%16 == 0 {
				start := i % 4900
				if found, err := s.Get(b.Context(), pods[start:start+100]); err != nil || len(found) != 100 {
					b.Errorf("%d samples, error %v", len(found), err)
				}
				continue
			}
			if err := s.Put(b.Context(), pods[i%5000], sample(1, 1+i)); err != nil {
				b.Error(err)
			}
		}
	})
}
