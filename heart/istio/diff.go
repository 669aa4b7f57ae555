package istio

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// around is how many lines that stay are shown around a change.
const around = 3

// lines writes a value as YAML; none for nil.
func lines(value any) []string {
	if value == nil {
		return nil
	}
	text, err := yaml.Marshal(value)
	if err != nil { // only for values that are no data, which no spec holds
		return []string{err.Error()}
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// diff shows how b comes from a by a longest common subsequence, in
// O(len(a) * len(b)). Lines far from a change are left out.
func diff(a, b []string) string {
	marked := mark(a, b)
	var out strings.Builder
	shown := true
	for i, line := range marked {
		if line[0] == ' ' && !near(marked, i) {
			if shown {
				out.WriteString("  ...\n")
			}
			shown = false
			continue
		}
		shown = true
		out.WriteString(line + "\n")
	}
	return out.String()
}

func near(marked []string, i int) bool {
	for j := max(0, i-around); j < min(len(marked), i+around+1); j++ {
		if marked[j][0] != ' ' {
			return true
		}
	}
	return false
}

// mark lists the lines of both with "- ", "+ " or "  " before each.
func mark(a, b []string) []string {
	common := make([][]int, len(a)+1) // common[i][j]: of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var marked []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			marked = append(marked, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			marked = append(marked, "- "+a[i])
			i++
		default:
			marked = append(marked, "+ "+b[j])
			j++
		}
	}
	return marked
}
