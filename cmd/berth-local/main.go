// Command berth-local runs a whole cluster in one process: etcd, kube-apiserver, controllers, simulated
// kubelets, a simulated EC2 and the Berth scheduler. It is the demo, the test bed and the way to try a
// NodePool before production.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth-local/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth-local:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "berth-local",
		Short:         "A whole cluster with Berth and a simulated EC2 in one process",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(newUpCommand(), newDemoCommand(), newCasesCommand())
	return cmd
}

func newDemoCommand() *cobra.Command {
	var options demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job end to end; exits 0 only when every step was seen through the API",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), cmd.OutOrStdout(), options)
		},
	}
	options.Cluster.AddFlags(cmd.Flags())
	cmd.Flags().IntVar(&options.Burst, "burst", 500, "pods that the load step makes pending at once; -1 leaves it out")
	return cmd
}
