package live

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// NewRun names a run of this process and opens its journal in a folder.
func NewRun(dir string) (j *Journal, run string, err error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, "", fmt.Errorf("name the run: %w", err)
	}
	run = hex.EncodeToString(id[:])
	began, err := StartTime(os.Getpid())
	if err != nil {
		return nil, "", fmt.Errorf("own start time: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, "", fmt.Errorf("find folder of journals: %w", err)
	}
	j, err = OpenJournal(dir, run, os.Getpid(), began)
	return j, run, err
}
