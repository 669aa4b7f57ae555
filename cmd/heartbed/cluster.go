package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heartbed/cmd/internal/cli"
	"heartbed/testbed/cluster"
)

// ownCluster is kept from trial to trial; close removes what is ours in it.
var ownCluster = &cluster.Backend{}

// ownerKey annotates a flag of only one backend.
const ownerKey = "heartbed_backend"

// backendFlags are the flags of only one backend.
func backendFlags(flags *pflag.FlagSet) {
	o := &ownCluster.Options
	own := pflag.NewFlagSet(clusterBackend, pflag.ContinueOnError)
	own.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that says how to reach the cluster (default as kubectl)")
	own.StringVar(&o.Context, "context", "", "context of the kubeconfig (default its current one)")
	own.StringVar(&o.Namespace, "namespace", cluster.DefaultNamespace, "namespace in the cluster, which is made if it does not exist")
	own.StringVar(&o.Image, "image", "", "image of our programs, see 'heartbed image programs'")
	own.BoolVar(&o.Shape, "shape", false, "delay packets at the plan's nodes to its round trips, by pods in the nodes' network")
	own.BoolVar(&o.Yes, "yes", false, "run although the cluster is named like production")
	inKind := pflag.NewFlagSet(kindBackend, pflag.ContinueOnError)
	inKind.StringVar(&inDocker.Options.Image, "node-image", "", "image of the nodes (default: what 'heartbed image build' makes)")
	inKind.BoolVar(&inDocker.Options.LoadPod, "load-pod", false, "offer the load from a pod instead of from this process")
	for owner, set := range map[string]*pflag.FlagSet{clusterBackend: own, kindBackend: inKind} {
		set.VisitAll(func(f *pflag.Flag) {
			f.Usage = owner + ": " + f.Usage
			f.Annotations = map[string][]string{ownerKey: {owner}}
		})
		flags.AddFlagSet(set)
	}
}

// checkBackendFlags refuses a flag of one backend with another, where it would
// say nothing.
func checkBackendFlags(cmd *cobra.Command, backend string) error {
	var faults []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if owner := f.Annotations[ownerKey]; owner != nil && owner[0] != backend {
			faults = append(faults, fmt.Errorf("%w: --%s means nothing with --backend %s, expected --backend %s", cli.ErrUsage, f.Name, backend, owner[0]))
		}
	})
	return errors.Join(faults...)
}
