package testbedtest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// Require lets a test go on when err is nil, but not with -short: what asks for a
// backend takes its time. An error that wraps
// errors.ErrUnsupported skips the test with its reason, unless the environment
// variable HEARTBED_REQUIRE lists the backend ("netns,kind"): then, as with
// any other error, the test fails.
func Require(t *testing.T, backend string, err error) {
	t.Helper()
	if testing.Short() {
		t.Skipf("runs on %s; run without -short", backend)
	}
	if err == nil {
		return
	}
	if errors.Is(err, errors.ErrUnsupported) && !Required(backend) {
		t.Skipf("%s cannot run here: %v", backend, err)
	}
	t.Fatalf("%s cannot run here: %v", backend, err)
}

// Required says whether HEARTBED_REQUIRE lists the backend.
func Required(backend string) bool {
	return slices.Contains(strings.Split(os.Getenv("HEARTBED_REQUIRE"), ","), backend)
}
