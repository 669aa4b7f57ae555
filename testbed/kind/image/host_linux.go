package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// freeBytes gives the space left on the file system of a folder.
func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// lock keeps other builds out of the cache folder, and waits until they have
// ended; waits is called when there are any. The kernel gives the lock back when
// the process ends, however it ends.
func lock(ctx context.Context, dir string, waits func()) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another image build to end: %w", context.Cause(ctx)), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// diesWithUs makes a process end when this one does, even by kill -9.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
