package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"heartbed/tc"
	"heartbed/testbed/live"
)

const (
	groupPrefix  = "heartbed-"
	folderPrefix = "heartbed-"
)

// remove undoes one change. What is gone already is no error. Names that this
// backend never gives are refused, so that a damaged journal removes nothing
// of somebody else's.
func remove(ctx context.Context, e live.Entry) error {
	switch e.Kind {
	case kindNamespace:
		if filepath.Base(e.Name) != e.Name || !strings.HasPrefix(e.Name, namespacePrefix) {
			return fmt.Errorf("found %q, expected a namespace %s*", e.Name, namespacePrefix)
		}
		return removeNamespace(ctx, e.Name)
	case kindCPUGroup:
		if filepath.Base(e.Name) != e.Name || !strings.HasPrefix(e.Name, groupPrefix) {
			return fmt.Errorf("found %q, expected a group %s*", e.Name, groupPrefix)
		}
		return removeGroup(e.Name)
	case kindFolder:
		if !filepath.IsAbs(e.Name) || !strings.HasPrefix(filepath.Base(e.Name), folderPrefix) {
			return fmt.Errorf("found %q, expected a folder %s*", e.Name, folderPrefix)
		}
		return os.RemoveAll(e.Name)
	}
	return fmt.Errorf("kind is unknown")
}

// exists says whether there is something of that kind and name.
func exists(k live.Kind, name string) (bool, error) {
	path := name
	switch k {
	case kindCPUGroup:
		_, err := tc.OpenGroup(name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	case kindNamespace:
		path = namespacePath(name)
	}
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// removeGroup removes a CPU group and those inside it. It is made first where
// it is not there: cgroup v1 counts CPU time in a second folder, which a crash
// can have left behind alone.
func removeGroup(name string) error {
	g, err := tc.NewGroup(name, tc.CPULimit{})
	if errors.Is(err, fs.ErrExist) {
		g, err = tc.OpenGroup(name)
	}
	if err != nil {
		return err
	}
	return g.Remove()
}
