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
	arc      int32 // index of the arc in Solver.arcs, or one of the marks above
	size     int32 // number of nodes of its subtree
	last     int32 // last node of its subtree in the thread
	back     int32 // the node before it in the thread
}

// tree is a rooted spanning tree with node potentials. The last node is the
// root. The thread visits all nodes in preorder and returns to the root, so
// that a subtree is a stretch of it, from its top to top.last.
type tree struct {
	nodes     []treeNode
	thread    []int32 // the node after each, apart from nodes because shift needs nothing else
	potential []int64
}

// reset makes a tree in which n nodes hang on the root. Their arcs and
// potentials are left to the caller.
func (t *tree) reset(n int) {
	if cap(t.nodes) < n+1 {
		t.nodes = make([]treeNode, n+1)
		t.thread = make([]int32, n+1)
		t.potential = make([]int64, n+1)
	}
	t.nodes, t.thread, t.potential = t.nodes[:n+1], t.thread[:n+1], t.potential[:n+1]
	root := int32(n)
	t.nodes[n] = treeNode{parent: none, arc: none, size: root + 1, last: root}
	t.potential[n] = 0
	t.join(root, root)
	for v := range root {
		t.nodes[v] = treeNode{parent: root, arc: none, size: 1, last: v}
		t.join(t.nodes[n].last, v)
		t.nodes[n].last = v
	}
	t.join(t.nodes[n].last, root)
}

func (t *tree) root() int32 { return int32(len(t.nodes) - 1) }

// join makes w follow v in the thread.
func (t *tree) join(v, w int32) {
	t.thread[v] = w
	t.nodes[w].back = v
}

// rehang cuts off the subtree of top and hangs it under parent by its node
// first, with the arc and residuals given. The arcs on the path from first up
// to top change direction.
func (t *tree) rehang(first, top, parent, arc int32, up, down int64) {
	t.cut(top)
	t.overturn(first, top)
	node := &t.nodes[first]
	node.parent, node.arc, node.up, node.down = parent, arc, up, down
	t.graft(first, parent)
}

// cut takes the subtree of top out of the thread and of its ancestors.
func (t *tree) cut(top int32) {
	size, last, before := t.nodes[top].size, t.nodes[top].last, t.nodes[top].back
	t.join(before, t.thread[last])
	for v := t.nodes[top].parent; v != none; {
		node := &t.nodes[v]
		node.size -= size
		if node.last == last {
			node.last = before
		}
		v = node.parent
	}
}

// graft puts the cut subtree of top into the thread right after parent, and
// into its ancestors.
func (t *tree) graft(top, parent int32) {
	size, last := t.nodes[top].size, t.nodes[top].last
	t.join(last, t.thread[parent])
	t.join(parent, top)
	for v := parent; v != none; {
		node := &t.nodes[v]
		node.size += size
		if node.last == parent {
			node.last = last
		}
		v = node.parent
	}
}

// overturn makes first the top of the cut subtree of top. Each node on the path
// between them keeps its subtree but for the branch to first, which precedes
// it in the new thread: that node's stretch is what came before the branch and
// what came after it.
func (t *tree) overturn(first, top int32) {
	total, end := t.nodes[top].size, t.nodes[first].last
	after := t.thread[end]  // what followed the branch
	child := t.nodes[first] // as it was
	t.nodes[first].size = total
	for v := first; v != top; {
		w := child.parent
		old := t.nodes[w]
		t.join(end, w)
		if end = child.back; child.last != old.last {
			t.join(end, after)
			end = old.last
			after = t.thread[end]
		}
		node := &t.nodes[w]
		node.parent, node.arc, node.up, node.down = v, child.arc, child.down, child.up
		node.size = total - child.size
		child, v = old, w
	}
	for v := top; v != first; v = t.nodes[v].parent {
		t.nodes[v].last = end
	}
	t.nodes[first].last = end
}

// shift adds by to the potentials of the subtree of top.
func (t *tree) shift(top int32, by int64) {
	last := t.nodes[top].last
	for v := top; ; v = t.thread[v] {
		t.potential[v] += by
		if v == last {
			return
		}
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
	for u != v { // an ancestor has a larger subtree, so the smaller one goes up
		a, b := &t.nodes[u], &t.nodes[v]
		if a.size < b.size {
			if a.down < down {
				down, downAt = a.down, u
			}
			u = a.parent
		} else {
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
