// Package cachedir says where the results of long builds are kept.
package cachedir

import (
	"fmt"
	"os"
	"path/filepath"
)

// Find gives the folder: HEARTBED_CACHE, or heartbed in the user's cache
// folder. It need not exist yet.
func Find() (string, error) {
	if dir := os.Getenv("HEARTBED_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (HEARTBED_CACHE would name one): %w", err)
	}
	return filepath.Join(dir, "heartbed"), nil
}
