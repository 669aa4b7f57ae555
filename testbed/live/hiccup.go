package live

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// noiseFloor is the warning that travels with the result.
func noiseFloor(h *hdrhistogram.Histogram) string {
	ms := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return fmt.Sprintf("noise floor: waiting on this machine took %.1f ms longer than asked at P99 beside the run (P99.9 %.1f, max %.1f); smaller differences of a P99 say nothing",
		ms(99), ms(99.9), float64(h.Max())/1000)
}
