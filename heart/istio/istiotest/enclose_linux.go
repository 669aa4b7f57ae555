package istiotest

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// enclosed marks the process that Enclose has started.
const enclosed = "HEARTBED_ISTIOTEST_ENCLOSED"

// Enclose runs the calling test in a network namespace of its own, in which
// every address of Pods is this machine's: istiod takes endpoints with the
// same address for one. It returns true there, and false outside once the test
// has ended. An error of CheckEnclose comes first.
func Enclose(t *testing.T) bool {
	t.Helper()
	if os.Getenv(enclosed) != "" {
		for _, args := range [][]string{{"link", "set", "lo", "up"}, {"route", "add", "local", Pods.String(), "dev", "lo"}} {
			if said, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("ip %v: %v: %s", args, err, said)
			}
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), enclosed+"=1")
	cmd.SysProcAttr = namespace()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("in a network namespace: %v", err)
	}
	return false
}

// Pods are the addresses that pods may have in a test that Enclose runs.
var Pods = netip.MustParsePrefix("10.1.0.0/16")

// CheckEnclose says whether Enclose can work here: an error wraps
// errors.ErrUnsupported.
func CheckEnclose() error {
	cmd := exec.Command("ip", "link", "set", "lo", "up")
	cmd.SysProcAttr = namespace()
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: a network namespace of one's own (needs root or user namespaces, and iproute2): %w: %s", errors.ErrUnsupported, err, said)
	}
	return nil
}

// namespace gives a child a network of its own, where it is root.
func namespace() *syscall.SysProcAttr {
	a := diesWithUs()
	a.Cloneflags = syscall.CLONE_NEWNET
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}
