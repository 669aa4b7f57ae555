// Package flow solves minimum cost flow and maximum flow problems in integers.
//
// It exists for the allocation policies: how much of each caller group's
// traffic goes to each callee group is a transport problem over network
// delays. The package knows nothing of services; it sees nodes with supplies
// and arcs with capacities and costs, and it imports the standard library only.
//
// The problem, for a directed graph with arcs e = (i, j):
//
//	minimise   sum over e of cost(e) * flow(e)
//	subject to sum out of v of flow - sum into v of flow = supply(v)  for each node v
//	           0 <= flow(e) <= cap(e)                                 for each arc e
//
// Supplies add up to zero. Everything is an int64: shares are scaled by the
// caller, because only integers make the answer exact and the algorithm
// certain to end. Input that could overflow is refused before it is used.
//
// [Network.Solve] answers once, a [Solver] answers a series of problems that
// differ a little, each from the basis of the one before. [Verify] proves an
// answer optimal in linear time without a second solver.
package flow
