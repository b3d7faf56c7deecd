// Command berth is for people: it plans, explains and checks without changing anything.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/check"
	"github.com/berth-dev/berth/cmd/berth/explain"
	"github.com/berth-dev/berth/cmd/berth/instancetypes"
	"github.com/berth-dev/berth/cmd/berth/nodes"
	"github.com/berth-dev/berth/cmd/berth/simulate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "berth",
		Short:         "Plan, explain and check what Berth would do",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(simulate.NewCommand(), instancetypes.NewCommand(), check.NewCommand(), nodes.NewCommand(), explain.NewCommand())
	return cmd
}
