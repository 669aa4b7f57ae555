//go:build !linux

package istiotest

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// Pods are the addresses that pods may have in a test that Enclose runs.
var Pods netip.Prefix

// Enclose fails: other systems than Linux have no network namespaces.
func Enclose(t *testing.T) bool {
	t.Helper()
	t.Fatal(CheckEnclose())
	return false
}

// CheckEnclose says why Enclose cannot work here.
func CheckEnclose() error {
	return fmt.Errorf("%w: network namespaces need Linux", errors.ErrUnsupported)
}
