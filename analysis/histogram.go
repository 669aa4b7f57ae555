package analysis

import (
	"bytes"
	"fmt"
	"os"

	"github.com/HdrHistogram/hdrhistogram-go"

	"heartbed/experiments"
)

// histogram merges the latency histograms (µs) of the runs of a cell; nil
// when no run has one. Merging counts is the one exact way to join
// distributions: the quantiles of runs cannot be averaged.
func (s Set) histogram(c Cell) (*hdrhistogram.Histogram, error) {
	var merged *hdrhistogram.Histogram
	for _, run := range c.runs {
		path, ok := s.histograms[run.Trial.ID]
		if !ok {
			continue
		}
		h, err := readHistogram(path)
		if err != nil {
			return nil, err
		}
		if merged == nil {
			merged = h
			continue
		}
		if dropped := merged.Merge(h); dropped > 0 {
			return nil, fmt.Errorf("%w: %s: %d latencies do not fit the range of the other runs' histograms", experiments.ErrInput, path, dropped)
		}
	}
	return merged, nil
}

// readHistogram reads a .hlog file, its intervals merged.
func readHistogram(path string) (*hdrhistogram.Histogram, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: read histogram: %w", experiments.ErrInput, err)
	}
	log := hdrhistogram.NewHistogramLogReader(bytes.NewReader(data))
	var merged *hdrhistogram.Histogram
	for {
		h, err := log.NextIntervalHistogram()
		if err != nil {
			return nil, fmt.Errorf("%w: read histogram %s: %w", experiments.ErrInput, path, err)
		}
		if h == nil {
			break
		}
		if merged == nil {
			merged = hdrhistogram.New(h.LowestTrackableValue(), h.HighestTrackableValue(), int(h.SignificantFigures()))
		}
		if dropped := merged.Merge(h); dropped > 0 {
			return nil, fmt.Errorf("%w: read histogram %s: %d latencies beyond the range of the first interval", experiments.ErrInput, path, dropped)
		}
	}
	if merged == nil {
		return nil, fmt.Errorf("%w: read histogram %s: found no interval in it", experiments.ErrInput, path)
	}
	return merged, nil
}
