package brute_test

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/brute"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

var (
	tinyCount = flag.Int("tiny", 200, "tiny clusters of TestNothingLeftPending")
	tinyShow  = flag.Float64("tiny-show", 0, "name the seeds of plans that cost this many times the optimum")
	tinySeed  = flag.Int("tiny-seed", -1, "look at this seed only, and say more")
)

// tiny makes a cluster of at most six pods, three types, two zones to buy in and two nodes, without
// anything that may rightly make a plan dearer than it must be: weights, wishes, minValues.
func tiny(seed uint64, o gen.Options) solver.Problem {
	o.MaxPods = 6
	p := gen.Problem(seed, o)
	types := p.Pools[0].Types
	for len(types) > 3 {
		drop := int(seed) % len(types) //nolint:gosec // an index
		types = slices.Delete(slices.Clone(types), drop, drop+1)
	}
	for i, it := range types {
		small := *it
		small.Offerings = slices.DeleteFunc(slices.Clone(it.Offerings), func(o catalog.Offering) bool { return o.Zone == gen.Zones[2] })
		types[i] = &small
	}
	// Half of the clusters have one pool: with several, the order of pools comes before the price.
	p.Pools = p.Pools[:min(len(p.Pools), 1+int(seed/2%2))] //nolint:gosec // 1 or 2
	for i := range p.Pools {
		p.Pools[i].Types = types
		spec := &p.Pools[i].NodePool.Spec
		spec.Weight = nil
		for j := range spec.Template.Spec.Requirements {
			r := &spec.Template.Spec.Requirements[j]
			r.MinValues = nil
			if r.Key == "team" { // not one whose value the launch would make up
				r.Operator, r.Values = corev1.NodeSelectorOpIn, []string{"a", "b"}
			}
		}
		for j := range spec.Template.Spec.Taints {
			if spec.Template.Spec.Taints[j].Effect == corev1.TaintEffectPreferNoSchedule {
				spec.Template.Spec.Taints[j].Effect = corev1.TaintEffectNoSchedule
			}
		}
	}
	p.Snapshot.Nodes = p.Snapshot.Nodes[:min(len(p.Snapshot.Nodes), 2)]
	for _, d := range p.Snapshot.Daemons { // whose labels a launch may still choose, to keep a daemon off
		d.Spec.Affinity = nil
	}
	for _, pod := range p.Pods {
		pod.Spec.TopologySpreadConstraints = slices.DeleteFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.WhenUnsatisfiable == corev1.ScheduleAnyway
		})
		if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
		if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
	}
	return p
}

// once are seeds of clusters in which pods were left pending before.
var once = []uint64{775, 1853, 2063, 4535, 7441}

type outcome struct {
	seed           uint64
	pools          int
	placed, pods   int
	price          float64
	best, more     brute.Best
	faults, reason []string
}

func tryOne(t *testing.T, seed uint64, o gen.Options, states int) outcome {
	t.Helper()
	p := tiny(seed, o)
	plan := solver.Solve(t.Context(), p, nil)
	out := outcome{seed: seed, pools: len(p.Pools), pods: len(p.Pods), placed: len(p.Pods) - len(plan.Unfit), faults: check.Plan(p, plan), best: brute.Search(tiny(seed, o), states), more: brute.Extend(p, plan, states)}
	for _, c := range plan.Claims {
		out.price += c.Cheapest.Price + p.NodeCost
	}
	for _, u := range plan.Unfit {
		out.reason = append(out.reason, fmt.Sprintf("%s: %v", u.Pod.Name, u.Reasons))
	}
	return out
}

// No pod may be left pending for which there is a place beside what the plan places. How often a plan that
// places all pods otherwise would have room for more, and what plans cost over the cheapest, is told.
func TestNothingLeftPending(t *testing.T) {
	t.Parallel()
	const states = 30_000
	var mu sync.Mutex
	var all []outcome
	seeds := make(chan uint64)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for seed := range seeds {
				out := tryOne(t, seed, gen.Options{Wide: seed%2 == 1}, states)
				mu.Lock()
				all = append(all, out)
				mu.Unlock()
			}
		})
	}
	if *tinySeed >= 0 {
		seeds <- uint64(*tinySeed)
	} else {
		for seed := range uint64(*tinyCount) { //nolint:gosec // not negative
			seeds <- seed
		}
		for _, seed := range once {
			if seed >= uint64(*tinyCount) { //nolint:gosec // not negative
				seeds <- seed
			}
		}
	}
	close(seeds)
	workers.Wait()
	var ratios []float64
	var wrong []string
	pods, placed, cut, beaten, best, lent := 0, 0, 0, 0, 0, 0
	for _, o := range all {
		pods, placed, best = pods+o.pods, placed+o.placed, best+o.best.Placed
		for _, fault := range o.faults {
			wrong = append(wrong, fmt.Sprintf("seed %d: %s", o.seed, fault))
		}
		if !o.best.Exhausted {
			cut++
		}
		if o.more.Placed > 0 {
			wrong = append(wrong, fmt.Sprintf("seed %d: %d of %d pods placed, %d more can be: %v: %v", o.seed, o.placed, o.pods, o.more.Placed, o.more.Where, o.reason))
		}
		switch {
		case o.best.Placed > o.placed:
			beaten++
		case o.best.Placed < o.placed && o.best.Exhausted:
			lent++ // a claim may get a label from a pod's NotIn, which brute force does not know
		case o.best.Placed == o.placed && o.best.Exhausted && o.best.Complete && o.best.Price > 0 && o.pools == 1:
			ratios = append(ratios, o.price/o.best.Price)
			if o.placed == o.pods && o.price < o.best.Price-1e-9 {
				wrong = append(wrong, fmt.Sprintf("seed %d: costs %f, brute force finds %f", o.seed, o.price, o.best.Price))
			}
			if *tinyShow > 0 && o.price/o.best.Price > *tinyShow {
				t.Logf("seed %d costs %f, %f would do", o.seed, o.price, o.best.Price)
			}
		}
		if *tinySeed >= 0 {
			t.Logf("%+v", o)
		}
	}
	slices.Sort(ratios)
	slices.Sort(wrong)
	t.Logf("%d clusters with %d pods, %d placed: in %d of them another choice of places for all pods places more, %d in all; in %d fewer; %d not searched to the end; %d faults",
		len(all), pods, placed, beaten, best, lent, cut, len(wrong))
	if n := len(ratios); n > 0 {
		sum, optimal := 0.0, 0
		for _, r := range ratios {
			sum += r
			if r < 1+1e-6 {
				optimal++
			}
		}
		at := func(q float64) float64 { return ratios[min(int(q*float64(n)), n-1)] }
		t.Logf("price over the optimum in %d plans: %d (%.1f %%) optimal, mean %.4f, p50 %.3f, p90 %.3f, p95 %.3f, p99 %.3f, max %.3f, min %.3f",
			n, optimal, 100*float64(optimal)/float64(n), sum/float64(n), at(0.5), at(0.9), at(0.95), at(0.99), ratios[n-1], ratios[0])
	}
	require.Empty(t, wrong)
}

// A search that finds nothing proves nothing: pods that a plan leaves out for no reason must be found, and
// a machine that is dearer than it must be.
func TestBadPlansAreNoticed(t *testing.T) {
	t.Parallel()
	p := gen.Scale(0, 0, 45)
	p.Pods = gen.Equal(4, "3", "6Gi")
	p.Pools[0].Types = p.Pools[0].Types[:4]
	plan := solver.Solve(t.Context(), p, nil)
	require.Empty(t, plan.Unfit)
	require.Zero(t, brute.Extend(p, plan, 1000).Placed)
	best := brute.Search(p, 10_000)
	require.True(t, best.Exhausted)
	require.True(t, best.Complete)
	require.Equal(t, 4, best.Placed)
	price := 0.0
	for _, c := range plan.Claims {
		price += c.Cheapest.Price + p.NodeCost
	}
	require.InDelta(t, price, best.Price, 1e-9)

	lost := plan.Claims[0].Pods
	plan.Claims = plan.Claims[1:]
	require.Equal(t, len(lost), brute.Extend(p, plan, 1000).Placed)
}
