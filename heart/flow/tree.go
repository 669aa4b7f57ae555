package flow

// none marks an absent node or arc.
const none int32 = -1

// Besides the arcs of the network each node may hang on the root by one
// artificial arc. They are never priced, so that one that leaves the tree is
// gone; these two marks in treeNode.arc are all there is of them.
const (
	artificialUp   int32 = -2 // node to root: takes units the node cannot send
	artificialDown int32 = -3 // root to node: brings units the node does not get
)

// treeNode is a node of the spanning tree and the arc to its parent. An arc is
// kept as two residual capacities rather than as flow and direction: how much
// more can be pushed up to the parent, and how much down from it. Walking a
// cycle then needs no arc data at all. An Unlimited residual stays Unlimited.
//
// The tree is strongly feasible (Cunningham 1976): up is positive everywhere,
// so every node can send a unit more to the root. Only such trees are visited,
// which is what rules out cycling at degenerate pivots.
type treeNode struct {
	up, down int64
	parent   int32
	depth    int32
	arc      int32 // index of the arc in Solver.arcs, or one of the marks above
	child    int32 // first child
	next     int32 // next sibling
	prev     int32 // previous sibling
}

// tree is a rooted spanning tree with node potentials. The last node is the root.
type tree struct {
	nodes     []treeNode
	potential []int64
}

// reset makes a tree of the root alone, for n nodes besides it.
func (t *tree) reset(n int) {
	if cap(t.nodes) < n+1 {
		t.nodes = make([]treeNode, n+1)
		t.potential = make([]int64, n+1)
	}
	t.nodes, t.potential = t.nodes[:n+1], t.potential[:n+1]
	t.nodes[n] = treeNode{parent: none, arc: none, child: none, next: none, prev: none}
	t.potential[n] = 0
}

func (t *tree) root() int32 { return int32(len(t.nodes) - 1) }

// attach makes v the first child of p.
func (t *tree) attach(v, p int32) {
	node, parent := &t.nodes[v], &t.nodes[p]
	node.parent, node.prev, node.next = p, none, parent.child
	if parent.child != none {
		t.nodes[parent.child].prev = v
	}
	parent.child = v
}

// detach takes v off the children of its parent.
func (t *tree) detach(v int32) {
	node := &t.nodes[v]
	if node.prev == none {
		t.nodes[node.parent].child = node.next
	} else {
		t.nodes[node.prev].next = node.next
	}
	if node.next != none {
		t.nodes[node.next].prev = node.prev
	}
}

// rehang cuts the subtree below the arc of last off and hangs it under parent
// by its node first, with the arc and residuals given. The arcs on the path
// from first up to last change direction.
func (t *tree) rehang(first, last, parent, arc int32, up, down int64) {
	for v, p := first, parent; ; {
		t.detach(v)
		node := &t.nodes[v]
		above, oldArc, oldUp, oldDown := node.parent, node.arc, node.up, node.down
		node.arc, node.up, node.down = arc, up, down
		t.attach(v, p)
		if v == last {
			return
		}
		v, p = above, v
		arc, up, down = oldArc, oldDown, oldUp
	}
}

// shift adds by to the potentials of the subtree of top and renews its depths.
func (t *tree) shift(top int32, by int64) {
	nodes, potential := t.nodes, t.potential
	depth := nodes[nodes[top].parent].depth + 1
	for v := top; ; {
		node := &nodes[v]
		node.depth = depth
		potential[v] += by
		if node.child != none {
			v = node.child
			depth++
			continue
		}
		for v != top && node.next == none {
			v = node.parent
			node = &nodes[v]
			depth--
		}
		if v == top {
			return
		}
		v = node.next
	}
}

// blocking finds what limits a push along the cycle that the arc (i, j) closes:
// up from j to the common ancestor and from there down to i. Of the arcs that
// limit it to the same amount it returns the last one in that direction,
// starting at the ancestor, which keeps the tree strongly feasible: hence "<"
// on the way down and "<=" on the way up. node is the lower end of the arc, or
// none if the arc (i, j) itself, with residual limit, is the one; below says
// that it is an ancestor of i rather than of j.
func (t *tree) blocking(i, j int32, limit int64) (delta int64, node int32, below bool, apex int32) {
	down, downAt := limit, none
	up, upAt := Unlimited, none
	u, v := i, j
	for u != v {
		a, b := &t.nodes[u], &t.nodes[v]
		d := a.depth - b.depth
		if d >= 0 {
			if a.down < down {
				down, downAt = a.down, u
			}
			u = a.parent
		}
		if d <= 0 {
			if b.up <= up {
				up, upAt = b.up, v
			}
			v = b.parent
		}
	}
	if upAt != none && up <= down {
		return up, upAt, false, u
	}
	return down, downAt, downAt != none, u
}

// push sends delta units along the cycle described at blocking.
func (t *tree) push(i, j, apex int32, delta int64) {
	for u := i; u != apex; {
		node := &t.nodes[u]
		node.down, node.up = less(node.down, delta), more(node.up, delta)
		u = node.parent
	}
	for v := j; v != apex; {
		node := &t.nodes[v]
		node.up, node.down = less(node.up, delta), more(node.down, delta)
		v = node.parent
	}
}

// less and more change a residual capacity.
func less(residual, by int64) int64 {
	if residual == Unlimited {
		return Unlimited
	}
	return residual - by
}

func more(residual, by int64) int64 {
	if residual == Unlimited {
		return Unlimited
	}
	return residual + by
}
