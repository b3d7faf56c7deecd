package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric

	"github.com/berth-dev/berth/cmd/berth-scheduler/app"
)

func main() { os.Exit(cli.Run(app.NewCommand())) }
