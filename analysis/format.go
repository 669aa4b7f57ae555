package analysis

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// formatMs writes a latency in ms with about three digits: 0.42, 8.3, 82.4,
// 293, 30,620.
func formatMs(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return formatCount(v)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.0995 || a == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// formatCount writes a whole number with commas between thousands.
func formatCount(v float64) string {
	digits := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	var b strings.Builder
	if v < 0 && digits != "0" {
		b.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// formatRate writes a request rate: 100, 12.5.
func formatRate(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// formatRatio writes a factor: x0.05, x1.51, x61.
func formatRatio(v float64) string {
	switch {
	case v >= 9.95:
		return "×" + formatCount(v)
	case v >= 0.0995:
		return "×" + strconv.FormatFloat(v, 'f', 2, 64)
	}
	return "×" + strconv.FormatFloat(v, 'g', 2, 64)
}

// formatValue writes a published or measured figure with its unit.
func formatValue(v float64, unit string) string {
	switch unit {
	case "ms":
		return formatMs(v) + " ms"
	case "%":
		return trimZero(v) + " %"
	case "points":
		return trimZero(v) + " points"
	case "x":
		return formatRatio(v)
	case "rank":
		return "rank " + trimZero(v)
	}
	return trimZero(v) + " " + unit
}

func trimZero(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// interval writes the bounds of an estimate, or why there are none.
func (e Estimate) interval() string {
	if e.Lo == nil {
		return fmt.Sprintf("n = %d, no interval", e.N)
	}
	return fmt.Sprintf("%s to %s", formatMs(*e.Lo), formatMs(*e.Hi))
}
