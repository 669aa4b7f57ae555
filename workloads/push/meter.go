package push

import (
	"sync/atomic"
	"time"
)

// Meter counts requests; its zero value is ready. Its methods may be called
// concurrently.
type Meter struct {
	begun, ended atomic.Uint64
	nanos        atomic.Int64
}

// Begin counts a request that has arrived.
func (m *Meter) Begin() { m.begun.Add(1) }

// End counts one that was answered, after so long.
func (m *Meter) End(took time.Duration) {
	m.nanos.Add(int64(took))
	m.ended.Add(1)
}

// Read gives the counts. Those of one moment may differ by requests that end
// meanwhile.
func (m *Meter) Read() Requests {
	ended := m.ended.Load() // before begun: a request is in flight rather than ended and never begun
	begun := m.begun.Load()
	return Requests{Active: int64(begun - ended), Begun: begun, Ended: ended, Time: time.Duration(m.nanos.Load())}
}
