//go:build !linux

package service

// hasThreadClock says whether threadCPU works.
const hasThreadClock = false

func threadCPU() (thread int, ns int64) { return 0, 0 }

func processCPU() float64 { return 0 } // no service starts without threadCPU
