package experiments

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"heartbed/testbed/sim"
)

// A disk that runs full ends a run with an error that says so. What was
// written before is whole, and with more room the run goes on and ends with
// the same bytes as one that always had it.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount a small disk needs root")
	}
	e := mine(t, Selection{})
	whole := t.TempDir()
	run(t, e, Options{Dir: whole})
	want := readResultFile(t, whole)
	inTheMiddle := 0
	// Every size lets it run full in another place: a histogram, a result, what
	// describes the run.
	for kb := 8; kb <= 72; kb += 4 {
		t.Run(fmt.Sprintf("%d kB", kb), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kb)))
			t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
			out, err := e.Run(t.Context(), sim.Backend{}, Options{Dir: dir})
			require.ErrorIs(t, err, unix.ENOSPC)
			require.ErrorContains(t, err, dir)
			raw, err := os.ReadFile(filepath.Join(dir, resultsFile))
			if len(out.Results) > 0 || err == nil {
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(want, string(raw)))
				require.Equal(t, len(out.Results), strings.Count(string(raw), "\n"), "whole lines")
			}
			if len(out.Results) > 0 {
				inTheMiddle++
			}
			require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=8m"))
			again := run(t, e, Options{Dir: dir})
			require.Empty(t, again.Warnings)
			require.Equal(t, len(out.Results), again.Resumed)
			require.Equal(t, want, readResultFile(t, dir))
		})
	}
	require.Positive(t, inTheMiddle)
}
