package flow_test

import (
	"fmt"

	"heartbed/heart/flow"
)

// Two caller groups send 60 and 40 percent of the requests, three callee groups
// are to receive 30, 45 and 25 percent; the costs are delays in milliseconds.
func Example() {
	n := flow.New(5, 6)
	for _, share := range []int64{60, 40, -30, -45, -25} {
		n.AddNode(share)
	}
	for i, row := range [][]int64{{1, 10, 4}, {8, 2, 6}} {
		for j, ms := range row {
			n.AddArc(i, 2+j, flow.Unlimited, ms)
		}
	}
	var solver flow.Solver
	s, err := solver.Solve(n)
	fmt.Println(s.Flow, s.Cost, err, flow.Verify(n, s))

	n.SetCap(0, 0) // take the first link out
	s, err = solver.Solve(n)
	fmt.Println(s.Flow, s.Cost, err, flow.Verify(n, s))
	// Output:
	// [30 5 25 0 40 0] 260 <nil> <nil>
	// [0 35 25 30 10 0] 710 <nil> <nil>
}
