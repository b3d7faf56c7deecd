package scenario_test

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/scenario"
)

var scenarios = flag.String("scenarios", "", "pattern of more scenario files to plan and check; with -v each prints a line")

func TestLoad(t *testing.T) {
	t.Parallel()
	s, err := scenario.Load("testdata/small.json")
	require.NoError(t, err)
	p, err := s.Problem()
	require.NoError(t, err)
	require.Len(t, p.Pods, 3)
	require.Equal(t, "web-0", p.Pods[0].Name)
	require.Equal(t, corev1.NamespaceDefault, p.Pods[0].Namespace)
	require.Len(t, p.Snapshot.Daemons, 1)
	require.Len(t, p.Snapshot.Nodes, 2)
	require.Equal(t, "old-0", p.Snapshot.Nodes[0].Name)
	require.Len(t, p.Snapshot.Nodes[0].Pods, 2, "the daemon and the pod")
	require.Equal(t, int64(2), p.Snapshot.PoolUsage["general"].Get("nodes"))
	require.Equal(t, int64(4000), p.Snapshot.PoolUsage["general"].MilliCPU, "capacity counts, not allocatable")
	require.Equal(t, int64(1930), p.Pools[0].Types[0].Allocatable().MilliCPU)
}

func TestLoadRejects(t *testing.T) {
	t.Parallel()
	_, err := scenario.Load("testdata/none.json")
	require.ErrorContains(t, err, "read scenario")
	_, err = scenario.Load("scenario_test.go")
	require.ErrorContains(t, err, "parse scenario")
	s, err := scenario.Load("testdata/small.json")
	require.NoError(t, err)
	s.Nodes[0].InstanceType = "x"
	_, err = s.Problem()
	require.ErrorContains(t, err, `unknown instance type "x"`)
}

// Every scenario's plan must keep the hard rules.
func TestPlansOfScenarios(t *testing.T) {
	paths := []string{"testdata/small.json"}
	if *scenarios != "" {
		more, err := filepath.Glob(*scenarios)
		require.NoError(t, err)
		paths = append(paths, more...)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, err := scenario.Load(path)
			require.NoError(t, err)
			p, err := s.Problem()
			require.NoError(t, err)
			start := time.Now()
			plan := solver.Solve(t.Context(), p, nil)
			took := time.Since(start)
			price := 0.0
			for _, c := range plan.Claims {
				price += c.Cheapest.Price
			}
			t.Logf("%d of %d pods, %d new nodes, %.2f USD per hour, %.3f s", len(p.Pods)-len(plan.Unfit), len(p.Pods), len(plan.Claims), price, took.Seconds())
			require.Empty(t, check.Plan(p, plan))
		})
	}
}
