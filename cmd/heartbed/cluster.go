package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heartbed/cmd/internal/cli"
	"heartbed/testbed/cluster"
)

// ownCluster is kept from trial to trial; close removes what is ours in it.
var ownCluster = &cluster.Backend{}

// clusterFlags are those of the backend cluster.
func clusterFlags() *pflag.FlagSet {
	o := &ownCluster.Options
	f := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "cluster: file that says how to reach it (default as kubectl)")
	f.StringVar(&o.Context, "context", "", "cluster: context of the kubeconfig (default its current one)")
	f.StringVar(&o.Namespace, "namespace", cluster.DefaultNamespace, "cluster: namespace, which is made if it does not exist")
	f.StringVar(&o.Image, "image", "", "cluster: image of our programs, see 'heartbed image programs'")
	f.BoolVar(&o.Yes, "yes", false, "cluster: run although it is named like production")
	return f
}

// checkClusterFlags refuses them where they would say nothing.
func checkClusterFlags(cmd *cobra.Command, backend string) error {
	if backend == clusterBackend {
		return nil
	}
	var fault error
	clusterFlags().VisitAll(func(f *pflag.Flag) {
		if fault == nil && cmd.Flags().Changed(f.Name) {
			fault = fmt.Errorf("%w: --%s means nothing with --backend %s, expected --backend %s", cli.ErrUsage, f.Name, backend, clusterBackend)
		}
	})
	return fault
}
