package main

import (
	"context"
	"os"
	"path/filepath"

	"heartbed/testbed/kind/image"
	"heartbed/testbed/live"
)

// programs is the image of the workload program, under the name it has there.
func programs(ctx context.Context, named string) (image.Archive, error) {
	folder, err := os.MkdirTemp("", "heartbed-")
	if err != nil {
		return image.Archive{}, err
	}
	defer os.RemoveAll(folder)
	found, err := live.Workload(ctx, named, func() (string, error) { return folder, nil })
	if err != nil {
		return image.Archive{}, err
	}
	program := filepath.Join(folder, "workload")
	if err := copyFile(found, program); err != nil {
		return image.Archive{}, err
	}
	return image.Programs("", program)
}
