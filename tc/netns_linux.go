package tc

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
)

// InNamespace runs f on a thread that is in the namespace, given as in
// Options.NS. Sockets that f opens stay in it; f starts no goroutine.
func InNamespace(ns string, f func() error) error {
	if ns == "" {
		return f()
	}
	target, err := openNamespace(ns)
	if err != nil {
		return err
	}
	defer target.Close()
	return onThread(func() error { return netns.Set(target) }, f)
}

// inScratch runs f in a fresh network namespace that vanishes with it.
func inScratch(f func() error) error {
	enter := func() error {
		fresh, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return fresh.Close()
	}
	return onThread(enter, f)
}

// onThread runs enter, which may change the network namespace, and then f on
// one thread of its own.
func onThread(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("this thread's network namespace: %w", err)
			return
		}
		defer home.Close()
		if err = enter(); err == nil {
			err = f()
		}
		// A thread that cannot go home must not run other goroutines: it stays
		// locked, and the runtime ends it with this one.
		if back := netns.Set(home); back == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func openNamespace(ns string) (netns.NsHandle, error) {
	open := netns.GetFromName
	if strings.Contains(ns, "/") {
		open = netns.GetFromPath
	}
	h, err := open(ns)
	if err != nil {
		return h, fmt.Errorf("network namespace %s: %w", ns, err)
	}
	return h, nil
}

// unsupported marks err as "cannot" if it is one of the answers by which the
// kernel says so.
func unsupported(err error, answers ...error) error {
	for _, a := range answers {
		if errors.Is(err, a) {
			return fmt.Errorf("%w (%w)", err, errors.ErrUnsupported)
		}
	}
	return err
}
