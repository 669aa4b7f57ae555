package main

import (
	"fmt"

	"github.com/spf13/cobra"
	registrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"heartbed/cmd/internal/cli"
)

const kubeconfigHelp = "how to reach the cluster (default: that of the pod this runs in, else the user's own)"

func preflightCommand() *cobra.Command {
	var kubeconfig, service string
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Say whether the API of custom metrics is free, before an installation",
		Long: `Preflight reads the APIServices of custom.metrics.k8s.io. A cluster has one
adapter of this API. It fails when one belongs to another Service than that of
activescale, and says how that one is uninstalled. It changes nothing.`,
		Example: "  activescale preflight\n  activescale preflight --service monitoring/activescale",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			own, err := parseService(service)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			config, err := clusterConfig(kubeconfig)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrInput, err)
			}
			client, err := registrationclient.NewForConfig(config)
			if err != nil {
				return err
			}
			all, err := readAPIs(cmd.Context(), client.APIServices())
			if err != nil {
				return err
			}
			if err := foreign(all, own); err != nil {
				return err
			}
			for _, a := range all {
				fmt.Fprintln(cmd.OutOrStdout(), standing(a))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", kubeconfigHelp)
	cmd.Flags().StringVar(&service, "service", "", "the Service of an activescale that is installed, NAMESPACE/NAME")
	return cmd
}

// standing tells of one's own registration in a line.
func standing(a api) string {
	switch {
	case a.owner == "":
		return a.name + ": free"
	case a.available:
		return fmt.Sprintf("%s: ours, through Service %s, available", a.name, a.owner)
	}
	return fmt.Sprintf("%s: ours, through Service %s, not available: %s", a.name, a.owner, a.reason)
}
