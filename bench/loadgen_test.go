package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A generator that lost requests has not shown a rate.
func TestNewAttackRefusesFailedRequests(t *testing.T) {
	for _, n := range [][2]int64{{0, 0}, {10, 1}} {
		_, err := newAttack(n[0], n[1], new(os.ProcessState))
		require.ErrorContains(t, err, "expected all answered")
	}
}
