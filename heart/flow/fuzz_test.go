package flow

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzSolve builds a network from bytes, with numbers over the whole range of
// int64, solves it cold, changes it and solves it warm. Whatever is answered
// must be proven by Verify, and whatever is refused must be for a named reason
// that a second algorithm confirms.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 5, 2, 0, 1, 9, 3, 1, 0, 255, 1})
	f.Add([]byte{4, 4, 0, 0, 0, 1, 3, 1, 1, 3, 3, 1, 0, 2, 9, 5, 2, 3, 9, 5})
	f.Add([]byte{3, 250, 1, 2, 3, 4, 5, 6, 7, 127, 9, 251, 0, 1, 252, 1, 2, 253})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := source(data)
		nodes := 1 + int(in.byte()%9)
		n := New(nodes, 0)
		var last int64
		for range nodes - 1 {
			s := in.number()
			last -= s // may wrap: then the supplies do not balance, which is a case too
			n.AddNode(s)
		}
		n.AddNode(last)
		for len(in) > len(data)/3 && n.Arcs() < 60 {
			n.AddArc(int(in.byte())%nodes, int(in.byte())%nodes, in.number(), in.number())
		}
		var solver Solver
		requireSound(t, &solver, n)
		for len(in) > 0 && n.Arcs() > 0 {
			e := int(in.byte()) % n.Arcs()
			n.SetCap(e, in.number())
			n.SetCost(e, in.number())
		}
		requireSound(t, &solver, n)
	})
}

// requireSound solves n and checks answer or refusal.
func requireSound(t *testing.T, solver *Solver, n *Network) {
	s, err := solver.Solve(n)
	if err == nil {
		require.NoError(t, Verify(n, s))
		return
	}
	routed, total, routeErr := n.Routable()
	switch {
	case errors.Is(err, ErrInfeasible):
		require.NoError(t, routeErr)
		require.Less(t, routed, total)
	case errors.Is(err, ErrUnbounded):
		require.NoError(t, routeErr)
		require.Equal(t, total, routed)
		require.True(t, hasUnboundedCycle(n))
	default:
		require.True(t, errors.Is(err, ErrInvalid) || errors.Is(err, ErrOverflow), "%v", err)
	}
}

// source is fuzz input that reads as zeros when it is used up.
type source []byte

func (s *source) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

// number reads a small number from one byte, or, after one of five marks, an
// extreme or a whole int64.
func (s *source) number() int64 {
	switch b := s.byte(); b {
	case 250:
		var whole [8]byte
		*s = (*s)[copy(whole[:], *s):]
		return int64(binary.LittleEndian.Uint64(whole[:]))
	case 251:
		return Unlimited
	case 252:
		return math.MinInt64
	case 253:
		return math.MaxInt64 / 8
	case 254:
		return math.MaxInt64/8 + 1
	default:
		return int64(int8(b))
	}
}
