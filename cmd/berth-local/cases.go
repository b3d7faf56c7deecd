package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth-local/cases"
)

func newCasesCommand() *cobra.Command {
	var options cases.Options
	var one string
	cmd := &cobra.Command{
		Use:   "cases DIR",
		Short: "Run every case file of a directory end to end; exits 1 when one fails",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case one != "":
				return cases.RunOne(cmd.Context(), cmd.OutOrStdout(), one, options.Timeout)
			case len(args) == 1:
				return cases.Run(cmd.Context(), cmd.OutOrStdout(), args[0], options)
			default:
				return errors.New("cases needs a directory with case files")
			}
		},
	}
	cmd.Flags().DurationVar(&options.Timeout, "timeout", 120*time.Second, "how long one case may take")
	cmd.Flags().StringVar(&options.Logs, "logs", "", "existing directory for what the clusters of the cases log")
	cmd.Flags().StringVar(&one, "one", "", "run this case file in this process and print its result as JSON")
	return cmd
}
