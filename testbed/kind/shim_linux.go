package kind

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// kind starts its nodes with docker run --privileged. Where root itself lacks
// CAP_SYS_RESOURCE, as in some containers and virtual machines, Docker cannot
// give it and refuses. kind runs the docker that it finds in PATH; so it finds
// this program there, by a symbolic link, which asks the real docker for all
// that is to be had.

// dockerEnv holds the path of the real docker and says to play docker.
const dockerEnv = "HEARTBED_DOCKER"

// An init, so that any program that imports this package can be started so,
// tests included.
func init() {
	if real := os.Getenv(dockerEnv); real != "" && filepath.Base(os.Args[0]) == "docker" {
		err := syscall.Exec(real, append([]string{"docker"}, lessPrivileged(os.Args[1:], exists)...), os.Environ())
		fmt.Fprintln(os.Stderr, "docker:", err)
		os.Exit(1)
	}
}

// lessPrivileged replaces --privileged by what it stands for without
// CAP_SYS_RESOURCE. An exec has the capabilities of its container anyway.
func lessPrivileged(args []string, exists func(string) bool) []string {
	i := slices.Index(args, "--privileged")
	if i < 0 {
		return args
	}
	var instead []string
	if args[0] == "run" {
		instead = []string{
			"--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "systempaths=unconfined",
			"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
			"--device-cgroup-rule", "a *:* rwm",
		}
		for _, device := range []string{"/dev/kmsg", "/dev/net/tun", "/dev/fuse"} {
			if exists(device) {
				instead = append(instead, "--device", device)
			}
		}
	}
	return slices.Concat(args[:i], instead, args[i+1:])
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lacksResource says whether this process, and so any container that it could
// start, lacks CAP_SYS_RESOURCE.
func lacksResource() (bool, error) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	return has == 0, err
}

// withDocker runs f while kind finds the right docker, and its network by name.
// It changes this process's environment, so only one f runs at a time.
func withDocker(folder, network string, f func() error) (err error) {
	environment <- struct{}{}
	defer func() { <-environment }()
	set := map[string]string{"KIND_EXPERIMENTAL_DOCKER_NETWORK": network}
	lacks, err := lacksResource()
	if err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	if lacks {
		real, err := exec.LookPath("docker")
		if err != nil {
			return err
		}
		bin := filepath.Join(folder, "bin")
		self, err := os.Executable()
		if err != nil {
			return err
		}
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(self, filepath.Join(bin, "docker")); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		set[dockerEnv], set["PATH"] = real, bin+string(os.PathListSeparator)+os.Getenv("PATH")
	}
	for name, value := range set {
		before, was := os.LookupEnv(name)
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		defer func() {
			if was {
				err = errors.Join(err, os.Setenv(name, before))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
	}
	return f()
}

// environment is held by who changes it.
var environment = make(chan struct{}, 1)
