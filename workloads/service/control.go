package service

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
)

// InflationPath is where a replica is told on its metrics port, by PUT, what
// the CPU time of its requests is multiplied by from now on: a decimal, 1 as
// it starts. A backend's antagonists use it.
const InflationPath = "/inflation"

// inflation is a factor that changes while requests are served; its zero value
// is 1.
type inflation struct{ bits atomic.Uint64 }

func (f *inflation) factor() float64 {
	if bits := f.bits.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// handler serves what the replica shows and what it can be told.
func (r *replica) handler(ready func() bool) http.Handler {
	mux := r.metrics.handler(ready)
	mux.HandleFunc("PUT "+InflationPath, r.inflate)
	return mux
}

func (r *replica) inflate(w http.ResponseWriter, req *http.Request) {
	text, err := told(req)
	factor, parseErr := strconv.ParseFloat(text, 64)
	if err != nil || parseErr != nil || !(factor > 0) || math.IsInf(factor, 0) {
		http.Error(w, fmt.Sprintf("inflation: found %q, expected a number above 0", text), http.StatusBadRequest)
		return
	}
	r.program.inflation.bits.Store(math.Float64bits(factor))
}

// told reads the word that a request carries, and no more than one is long.
func told(req *http.Request) (string, error) {
	const longest = 100
	text, err := io.ReadAll(io.LimitReader(req.Body, longest))
	return string(text), err
}
