package netns

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"heartbed/testbed/live"
)

// Kinds of changes to the host. Links and bridges have no entry because they
// live and die with their namespace; processes have none because they start
// inside a namespace, by which they are found whatever their number.
const (
	kindFolder    live.Kind = "folder"    // files of the run: programs, configurations, logs
	kindCPUGroup  live.Kind = "cpu-group" // and the processes in it
	kindNamespace live.Kind = "namespace" // and the processes and links in it
)

// DefaultJournals is where journals are kept: below /run, which is empty after
// a boot as the namespaces are, or else in the user's cache folder.
func DefaultJournals() string {
	if info, err := os.Stat("/run"); err == nil && info.IsDir() && os.Geteuid() == 0 {
		return "/run/heartbed"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "heartbed", "journals")
}

func (o Options) journals() string { return journalsIn(o.Journals) }

func journalsIn(dir string) string { return cmp.Or(dir, DefaultJournals()) }

// CheckClean fails if there is something of a run that ended without undoing
// it, which could skew the next. dir is the folder of the journals, empty =
// DefaultJournals().
func CheckClean(dir string) error { return live.CheckClean(journalsIn(dir)) }

// Down undoes what runs that have ended without cleaning up changed on this
// host. It can be repeated. dir is the folder of the journals, empty =
// DefaultJournals().
func Down(ctx context.Context, dir string) ([]live.Removed, error) {
	return live.Down(ctx, journalsIn(dir), remove)
}
