package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/component-base/cli"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	"github.com/berth-dev/berth/cmd/berth-scheduler/app"
)

// asScheduler makes the test binary act as berth-scheduler, so that tests can run and kill one.
const asScheduler = "BERTH_TEST_AS_SCHEDULER"

// shared is the cluster of all tests: a process can run one control plane. It has no scheduler of its
// own; each test runs one as a process.
var shared *allinone.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		os.Exit(cli.Run(app.NewCommand()))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background()) // the cluster ends with it
	defer cancel()
	var err error
	shared, err = allinone.Start(ctx, allinone.Options{NoScheduler: true, BootDelay: time.Second, SystemNodes: 1})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the shared cluster:", err)
		return 1
	}
	code := m.Run()
	stopCtx, stop := context.WithTimeout(context.Background(), 15*time.Second)
	defer stop()
	if err := shared.Stop(stopCtx); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared cluster:", err)
		return 1
	}
	return code
}
