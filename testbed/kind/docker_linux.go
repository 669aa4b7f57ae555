package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"heartbed/testbed/live"
)

// Kinds of changes to the host.
const (
	kindFolder    live.Kind = "folder"    // kubeconfig and the link named docker
	kindFile      live.Kind = "file"      // kubeconfig where the user wants it
	kindNetwork   live.Kind = "network"   // of Docker
	kindCluster   live.Kind = "cluster"   // the containers of its nodes with their volumes
	kindContainer live.Kind = "container" // beside the cluster
)

// namePrefix begins the name of everything that is made in Docker, and of the
// folder of a run.
const namePrefix = "heartbed-"

// clusterLabel is the label by which kind marks the containers of a cluster.
const clusterLabel = "io.x-k8s.kind.cluster"

// docker runs the docker command and gives what it printed.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// container is a running container of the run.
type container struct {
	name, id string
	pid      int // of its first process, on the host
	addr     netip.Addr
}

// namespace is the path of the container's network namespace.
func (c container) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", c.pid) }

func inspect(ctx context.Context, name string) (container, error) {
	c := container{name: name}
	text, err := docker(ctx, "container", "inspect", "--format", "{{.Id}} {{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)
	if err != nil {
		return c, err
	}
	field := strings.Fields(text)
	if len(field) != 3 {
		return c, fmt.Errorf("container %s: found %q, expected its number, process and address", name, text)
	}
	c.id = field[0]
	var pidErr, addrErr error
	c.pid, pidErr = strconv.Atoi(field[1])
	c.addr, addrErr = netip.ParseAddr(field[2])
	return c, errors.Join(pidErr, addrErr)
}

// remove undoes one change. What is gone already is no error. Names that this
// backend never gives are refused, so that a damaged journal removes nothing
// of somebody else's.
func remove(ctx context.Context, e live.Entry) error {
	if e.Kind == kindFolder {
		if !filepath.IsAbs(e.Name) || !strings.HasPrefix(filepath.Base(e.Name), namePrefix) {
			return fmt.Errorf("found %q, expected a folder %s*", e.Name, namePrefix)
		}
		return os.RemoveAll(e.Name)
	}
	if e.Kind == kindFile {
		if !filepath.IsAbs(e.Name) || filepath.Base(e.Name) != kubeconfigName {
			return fmt.Errorf("found %q, expected a file %s", e.Name, kubeconfigName)
		}
		return ignoreMissing(os.Remove(e.Name))
	}
	if len(e.Name) <= len(namePrefix) || !strings.HasPrefix(e.Name, namePrefix) {
		return fmt.Errorf("found %q, expected a name %s*", e.Name, namePrefix)
	}
	switch e.Kind {
	case kindCluster:
		return removeContainers(ctx, "label="+clusterLabel+"="+e.Name)
	case kindContainer:
		return removeContainers(ctx, "name=^/?"+e.Name+"$")
	case kindNetwork:
		ids, err := docker(ctx, "network", "ls", "--quiet", "--filter", "name=^"+e.Name+"$")
		if err != nil || ids == "" {
			return err
		}
		_, err = docker(ctx, append([]string{"network", "rm"}, strings.Fields(ids)...)...)
		return err
	}
	return errors.New("kind is unknown")
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeContainers removes those that match a filter, with their volumes.
func removeContainers(ctx context.Context, filter string) error {
	ids, err := docker(ctx, "ps", "--all", "--quiet", "--filter", filter)
	if err != nil || ids == "" {
		return err
	}
	_, err = docker(ctx, append([]string{"rm", "--force", "--volumes"}, strings.Fields(ids)...)...)
	return err
}
