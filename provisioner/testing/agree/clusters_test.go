package agree_test

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

var clusterCount = flag.Int("clusters", 500, "random clusters of TestRandomClusters")

// onceWide are seeds of clusters for which the filters or the checker objected before.
var onceWide = []uint64{563, 578, 755, 936, 985, 1088, 1115, 1136, 1188, 1337, 1390, 1407, 1440, 1580, 1830, 1840, 2344, 2462, 5569, 5882}

// figures are what the clusters add up to.
type figures struct {
	clusters, nodes, pods, onNodes, onClaims, claims, unfit, disagreements, violations int
	faults                                                                             []string
}

func (f *figures) add(seed uint64, p solver.Problem, plan solver.Plan, faults []string) {
	f.clusters++
	f.nodes += len(p.Snapshot.Nodes)
	f.pods += len(p.Pods)
	f.onNodes += len(plan.Existing)
	f.claims += len(plan.Claims)
	for _, c := range plan.Claims {
		f.onClaims += len(c.Pods)
	}
	f.unfit += len(plan.Unfit)
	f.disagreements += len(plan.Disagreements)
	f.violations += len(faults)
	for _, d := range plan.Disagreements {
		faults = append(faults, fmt.Sprintf("%s on %s: %s: %s", d.Pod.Name, d.Target, d.Plugin, d.Reason))
	}
	for _, fault := range faults {
		f.faults = append(f.faults, fmt.Sprintf("seed %d: %s", seed, fault))
	}
}

// Over clusters with every kind of rule, no plan may break a rule, and the filters must accept what the
// algebra plans.
func TestRandomClusters(t *testing.T) {
	t.Parallel()
	start := time.Now()
	seeds := make(chan uint64)
	var mu sync.Mutex
	var sum figures
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		f := filters(t)
		workers.Go(func() {
			for seed := range seeds {
				p := gen.Problem(seed, gen.Options{Wide: true})
				plan := solver.Solve(t.Context(), p, f)
				faults := check.Plan(p, plan)
				mu.Lock()
				sum.add(seed, p, plan, faults)
				mu.Unlock()
			}
		})
	}
	for seed := range uint64(*clusterCount) { //nolint:gosec // not negative
		seeds <- seed
	}
	for _, seed := range onceWide {
		if seed >= uint64(*clusterCount) { //nolint:gosec // not negative
			seeds <- seed
		}
	}
	close(seeds)
	workers.Wait()
	slices.Sort(sum.faults)
	t.Logf("%d clusters with %d nodes and %d pods: %d pods placed on nodes, %d on %d claims, %d fit nowhere; %d disagreements, %d violations; %.1f s",
		sum.clusters, sum.nodes, sum.pods, sum.onNodes, sum.onClaims, sum.claims, sum.unfit, sum.disagreements, sum.violations, time.Since(start).Seconds())
	require.Empty(t, sum.faults)
}
