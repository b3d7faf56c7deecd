// Command scenarios writes the planning benchmark: scenario files for `berth simulate -f FILE`. The same
// seed gives the same bytes.
//
//	go run ./hack/scenarios DIR [--seed N] [--only NAME,...]
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/provisioner/testing/scenario/bench"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scenarios:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := pflag.NewFlagSet("scenarios DIR", pflag.ContinueOnError)
	seed := flags.Int("seed", 1, "seed of the random pods")
	only := flags.StringSlice("only", nil, "scenarios to write: "+strings.Join(bench.Names(), ", "))
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name the folder to write to")
	}
	return bench.Write(flags.Arg(0), *seed, *only...)
}
