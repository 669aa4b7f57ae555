package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/testbed/kind/image"
)

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Short:   "Make the images that the backend kind runs on",
		Example: "  heartbed image build",
	}
	cmd.AddCommand(imageBuildCommand())
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

The name of the image is printed on stdout.`,
		Example: `  heartbed image build
  heartbed image build --install
  heartbed image build --output node.tar
  heartbed image build --online`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			build := func() (string, error) { return image.Build(cmd.Context(), o) }
			if online {
				if o.Output != "" || o.Mirror != "" || install {
					return fmt.Errorf("%w: --online builds nothing, so --output, --mirror and --install mean nothing with it", cli.ErrUsage)
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
	f.BoolVar(&install, "install", false, "install mmdebstrap with apt-get if it is missing")
	f.StringVar(&o.Mirror, "mirror", "", "Debian mirror (default: that of mmdebstrap)")
	f.StringVar(&o.Output, "output", "", "also write the image to this file, for 'docker load' on another machine")
	return cmd
}
