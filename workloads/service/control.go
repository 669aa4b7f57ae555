package service

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	"heartbed/heart"
)

// What a replica can be told on its metrics port, by PUT.
const (
	// InflationPath takes what the CPU time of its requests is multiplied by
	// from now on: a decimal, 1 as it starts. A backend's antagonists use it.
	InflationPath = "/inflation"
	// BalancerPath, followed by the name of a component that it calls, takes
	// the heart.Balancer that its routes there have from now on: how many
	// channels there must be depends on it, and gRPC does not say.
	BalancerPath = "/balancers/"
)

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
	mux.HandleFunc("PUT "+BalancerPath+"{component}", r.balance)
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

func (r *replica) balance(w http.ResponseWriter, req *http.Request) {
	callee := r.callees[req.PathValue("component")]
	if callee == nil {
		http.Error(w, fmt.Sprintf("%s calls no component %q", r.cfg.Replica, req.PathValue("component")), http.StatusNotFound)
		return
	}
	text, err := told(req)
	known := []heart.Balancer{heart.Weighted, heart.LeastRequest, heart.PerConnection, heart.RoundRobin}
	if err != nil || !slices.Contains(known, heart.Balancer(text)) {
		http.Error(w, fmt.Sprintf("balancer: found %q, expected one of %v", text, known), http.StatusBadRequest)
		return
	}
	if err := callee.channels.use(heart.Balancer(text)); err != nil {
		http.Error(w, fmt.Sprintf("channels to %s: %v", callee.name, err), http.StatusInternalServerError)
	}
}

// told reads the word that a request carries, and no more than one is long.
func told(req *http.Request) (string, error) {
	const longest = 100
	text, err := io.ReadAll(io.LimitReader(req.Body, longest))
	return string(text), err
}
