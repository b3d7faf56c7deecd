package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
)

// stopTimeout is how long an orderly end may take.
const stopTimeout = 10 * time.Second

func newUpCommand() *cobra.Command {
	var options allinone.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, print KUBECONFIG= and AWS_* lines, then READY; ends on SIGTERM",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return up(cmd, options) },
	}
	options.AddFlags(cmd.Flags())
	return cmd
}

func up(cmd *cobra.Command, options allinone.Options) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	cluster, err := allinone.Start(ctx, options)
	if err != nil {
		return err
	}
	for _, line := range cluster.Environment() {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out, "READY")
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-cluster.Failed():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := cluster.Stop(stopCtx); err != nil {
		return fmt.Errorf("stop the cluster: %w", err)
	}
	return failure
}
