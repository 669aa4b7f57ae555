package prom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// absent holds the names that were not observed, by reason.
type absent map[string][]string

func (a absent) add(reason, name string) { a[reason] = append(a[reason], name) }

// list gives a line a reason, in a fixed order.
func (a absent) list() []string {
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(a)) {
		lines = append(lines, fmt.Sprintf("%s: %s", reason, some(a[reason])))
	}
	return lines
}

// some names the first of many.
func some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
