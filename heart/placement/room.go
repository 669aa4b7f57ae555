package placement

import "math"

// room is what is free on each node.
type room struct {
	cores, memory []float64
}

func newRoom(nodes []Node) room {
	var r room
	for _, n := range nodes {
		r.cores = append(r.cores, orUnlimited(n.Cores))
		r.memory = append(r.memory, orUnlimited(n.MemoryMB))
	}
	return r
}

func orUnlimited(capacity float64) float64 {
	if capacity == 0 {
		return math.Inf(1)
	}
	return capacity
}

// fits tells whether node n has room. Requests such as 0.1 cores do not add up
// exactly, so a thousandth of a unit may be missing.
func (r room) fits(n int, cpu, memory float64) bool {
	const slack = 1e-3
	return cpu <= r.cores[n]+slack && memory <= r.memory[n]+slack
}

func (r room) take(n int, cpu, memory float64) {
	r.cores[n] -= cpu
	r.memory[n] -= memory
}
