package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/testbed/kind/image"
)

func imageOfCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "of --output FILE PROGRAM...",
		Short: "Write an image of programs of this machine",
		Long: `Writes an image of programs, with the libraries that they load and nothing
else, as a docker archive. They are in its root and in its PATH under the names
of their files. The image's name is printed on stdout; the same programs give
the same name.`,
		Example: "  heartbed image of --output heart.tar ./heart",
		Args:    cli.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, programs []string) error {
			return writeImage(output, cmd.OutOrStdout(), programs...)
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "file that gets the image")
	return cmd
}

func imagePrometheusCommand() *cobra.Command {
	return imageOfModuleCommand("prometheus", "Build Prometheus from its Go module and write an image of it",
		`Builds Prometheus, of the version in testbed/kind/image/versions.yaml, with the
discovery of Kubernetes only and without its pages, and writes an image of it
for the chart deploy/prometheus where the published one cannot be had.`, image.Prometheus)
}

func imageMetricsServerCommand() *cobra.Command {
	return imageOfModuleCommand("metrics-server", "Build metrics-server from its Go module and write an image of it",
		`Builds metrics-server, of the version in testbed/kind/image/versions.yaml, and
writes an image of it, for an HPA on CPU time where the published one cannot be
had.`, image.MetricsServer)
}

// imageOfModuleCommand is the command that builds a program which is not ours.
func imageOfModuleCommand(name, short, long string, build func(context.Context, image.Options) (string, error)) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   name + " --output FILE",
		Short: short,
		Long: long + ` The program is kept
in the cache folder (HEARTBED_CACHE, else heartbed in the user's cache folder).
The image's name is printed on stdout.`,
		Example: "  heartbed image " + name + " --output " + name + ".tar",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return errNoOutput
			}
			program, err := build(cmd.Context(), image.Options{Progress: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			return writeImage(output, cmd.OutOrStdout(), program)
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "file that gets the image")
	return cmd
}

var errNoOutput = fmt.Errorf("%w: --output: found none, expected a file", cli.ErrUsage)

// writeImage writes an image of programs and prints its name.
func writeImage(output string, stdout io.Writer, programs ...string) error {
	if output == "" {
		return errNoOutput
	}
	archive, err := image.Programs("", programs...)
	if err != nil {
		return err
	}
	return handOver(archive, output, stdout)
}

// handOver copies an image to where the user wants it and prints its name.
func handOver(archive image.Archive, output string, stdout io.Writer) error {
	if err := copyFile(archive.File, output); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	_, err := fmt.Fprintln(stdout, archive.Name)
	return err
}
