// Command custom-plugin is berth-scheduler with one more Filter plugin.
//
// Place in the flow: a composition root of its own, as somebody outside this repository would write it.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/berth-dev/berth/cmd/berth-scheduler/app"
	"github.com/berth-dev/berth/examples/custom-plugin/racktested"
)

func main() {
	os.Exit(cli.Run(app.NewCommand(app.WithPlugin(racktested.Name, racktested.New))))
}
