package loadgen

import (
	"encoding/json"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Config and a Result can go over the wire as JSON: what is a function stays
// behind, and histograms are in the encoding of HdrHistogram logs.

type plainResult Result // without the methods

// wireResult hides the histograms of a result behind their encodings.
type wireResult struct {
	*plainResult
	Latency, Lateness, Hiccups string `json:",omitempty"`
}

// MarshalJSON keeps all that the result holds.
func (r Result) MarshalJSON() ([]byte, error) {
	w := wireResult{plainResult: (*plainResult)(&r)}
	for _, h := range []struct {
		from *hdrhistogram.Histogram
		to   *string
	}{{r.Latency, &w.Latency}, {r.Lateness, &w.Lateness}, {r.Hiccups, &w.Hiccups}} {
		if h.from == nil {
			continue
		}
		text, err := h.from.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			return nil, fmt.Errorf("encode histogram: %w", err)
		}
		*h.to = string(text)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Result) UnmarshalJSON(raw []byte) error {
	w := wireResult{plainResult: (*plainResult)(r)}
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	for _, h := range []struct {
		from string
		to   **hdrhistogram.Histogram
	}{{w.Latency, &r.Latency}, {w.Lateness, &r.Lateness}, {w.Hiccups, &r.Hiccups}} {
		if *h.to = nil; h.from == "" {
			continue
		}
		var err error
		if *h.to, err = hdrhistogram.Decode([]byte(h.from)); err != nil {
			return fmt.Errorf("decode histogram: %w", err)
		}
	}
	return nil
}
