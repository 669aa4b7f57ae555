package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"heartbed/cmd/internal/cli"
	"heartbed/workloads/agent"
)

func agentCommand() *cobra.Command {
	var listen, answer string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Act in a cluster for a program outside",
		Long: `Agent opens and takes connections, measures round trips and offers load in its
pod for 'heartbed run --backend cluster', which reaches it by port-forward. Who
can connect to --listen can use it as a proxy: leave that to the loopback.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			control, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("agent: %w", err)
			}
			defer control.Close()
			open, err := net.Listen("tcp", answer)
			if err != nil {
				return fmt.Errorf("agent: %w", err)
			}
			defer open.Close()
			both, ctx := errgroup.WithContext(cmd.Context())
			both.Go(func() error { return agent.Serve(ctx, control) })
			both.Go(func() error { return agent.Answer(ctx, open) })
			return both.Wait()
		},
	}
	cmd.Flags().StringVar(&listen, "listen", fmt.Sprintf("127.0.0.1:%d", agent.Port), "where clients connect")
	cmd.Flags().StringVar(&answer, "answer", fmt.Sprintf(":%d", agent.AnswerPort), "open port, for others to measure the way to")
	return cmd
}
