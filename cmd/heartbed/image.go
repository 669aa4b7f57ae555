package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/testbed/kind/image"
)

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Short:   "Make the images that Kubernetes runs",
		Example: "  heartbed image build\n  heartbed image programs --output programs.tar",
	}
	cmd.AddCommand(imageBuildCommand(), imageProgramsCommand(), imageOfCommand(), imagePrometheusCommand(), imageMetricsServerCommand())
	return cmd
}

func imageBuildCommand() *cobra.Command {
	var o image.Options
	var online, install bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the node image from Debian packages and Go modules",
		Long: `Builds the image of a Kubernetes node and loads it into Docker: Debian by
mmdebstrap, with containerd and runc; Kubernetes, etcd, CoreDNS and the network
plugins compiled from their Go modules. No registry is asked, and every version
is pinned in testbed/kind/image/versions.yaml.

From empty caches expect ten to twenty minutes on two cores, and up to 7 GB of
disk; the steps still to do are listed with an estimate. Finished steps are kept in the cache folder (HEARTBED_CACHE, else
heartbed in the user's cache folder), so that a second build, or one after an
interruption, does only what is missing. The first build needs root.

With --online Docker fetches kind's published image instead, pinned by its
digest. It brings kind's own network and the registry's images, under names
other than ours.

With --newest it is the newest Kubernetes that these packages carry, made for
hosts with cgroup v2; 'heartbed run --node-image' takes it.

The name of the image is printed on stdout.`,
		Example: `  heartbed image build
  heartbed image build --newest
  heartbed image build --install
  heartbed image build --output node.tar
  heartbed image build --online`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			build := func() (string, error) { return image.Build(cmd.Context(), o) }
			if online {
				if o.Output != "" || o.Mirror != "" || o.Newest || install {
					return fmt.Errorf("%w: --online builds nothing, so --output, --mirror, --newest and --install mean nothing with it", cli.ErrUsage)
				}
				build = func() (string, error) { return image.Pull(cmd.Context()) }
			}
			if install {
				if err := image.Install(cmd.Context()); err != nil {
					return err
				}
			}
			name, err := build()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&online, "online", false, "fetch kind's published image instead of building one")
	f.BoolVar(&o.Newest, "newest", false, "the newest Kubernetes instead of the one that also starts on cgroup v1")
	f.BoolVar(&install, "install", false, "install mmdebstrap with apt-get if it is missing")
	f.StringVar(&o.Mirror, "mirror", "", "Debian mirror (default: that of mmdebstrap)")
	f.StringVar(&o.Output, "output", "", "also write the image to this file, for 'docker load' on another machine")
	return cmd
}

func imageProgramsCommand() *cobra.Command {
	var output, program string
	cmd := &cobra.Command{
		Use:   "programs --output FILE",
		Short: "Write the image of our own programs, for a registry of yours",
		Long: `Writes the image that the backend cluster runs, one static program and no
more, as a docker archive. Bring it to where the nodes of your cluster get
their images from with a tool of yours (docker load, tag and push, or skopeo
copy), and name it there with 'heartbed run --image'. Its name in the archive
is printed on stdout; the same program gives the same name.`,
		Example: "  heartbed image programs --output programs.tar",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return errNoOutput
			}
			archive, err := programs(cmd.Context(), program)
			if err != nil {
				return err
			}
			return handOver(archive, output, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "file that gets the image")
	cmd.Flags().StringVar(&program, "program", "", "the workload program (default: beside heartbed, else built from the source tree)")
	return cmd
}

// copyFile writes a copy that everybody may run.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
