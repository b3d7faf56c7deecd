package solver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

// properties is how many random problems each property is tried on.
const properties = 200

// text renders a plan completely enough that different plans differ.
func text(plan solver.Plan) string {
	out := ""
	for _, c := range plan.Claims {
		out += fmt.Sprintf("claim %s %v %s", c.Pool, c.Cheapest, c.Requirements.Signature())
		for _, it := range c.Types {
			out += " " + it.Name
		}
		for _, pod := range c.Pods {
			out += " " + pod.Name
		}
		out += "\n"
	}
	for _, p := range plan.Existing {
		out += p.Node.Key() + " " + p.Pod.Name + "\n"
	}
	for _, u := range plan.Unfit {
		out += fmt.Sprintln(u.Pod.Name, u.Reasons)
	}
	return out
}

func TestPlansKeepEveryHardRule(t *testing.T) {
	t.Parallel()
	for seed := range uint64(properties) {
		p := gen.Problem(seed, gen.Options{})
		require.Empty(t, check.Plan(p, solve(t, p)), "seed %d", seed)
	}
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(properties) {
		p := gen.Problem(seed, gen.Options{})
		want := text(solve(t, p))
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(p.Pods), func(i, j int) { p.Pods[i], p.Pods[j] = p.Pods[j], p.Pods[i] })
		rng.Shuffle(len(p.Pools), func(i, j int) { p.Pools[i], p.Pools[j] = p.Pools[j], p.Pools[i] })
		require.Equal(t, want, text(solve(t, p)), "seed %d", seed)
	}
}

// cost is what the plan's claims cost in an hour, nodes included.
func cost(p solver.Problem, plan solver.Plan) float64 {
	sum := 0.0
	for _, c := range plan.Claims {
		sum += c.Cheapest.Price + p.NodeCost
	}
	return sum
}

func TestNeverDearerThanANodeForEachPod(t *testing.T) {
	t.Parallel()
	for seed := range uint64(properties) {
		p := gen.Problem(seed, gen.Options{Plain: true, Empty: true})
		for _, pool := range p.Pools {
			pool.NodePool.Spec.Limits = nil
		}
		together, apart := cost(p, solve(t, p)), 0.0
		for _, pod := range p.Pods {
			alone := p
			alone.Pods = []*corev1.Pod{pod}
			apart += cost(p, solve(t, alone))
		}
		require.LessOrEqual(t, together, apart+1e-9, "seed %d", seed)
	}
}

// With nothing to fill up and no limits, a pod that fits alone must fit among others too.
func TestNoPodIsForgotten(t *testing.T) {
	t.Parallel()
	for seed := range uint64(properties) {
		p := gen.Problem(seed, gen.Options{Plain: true, Empty: true})
		for _, pool := range p.Pools {
			pool.NodePool.Spec.Limits = nil
		}
		unfit := map[string]bool{}
		for _, u := range solve(t, p).Unfit {
			unfit[u.Pod.Name] = true
		}
		for _, pod := range p.Pods {
			alone := p
			alone.Pods = []*corev1.Pod{pod}
			if unfit[pod.Name] {
				require.Len(t, solve(t, alone).Unfit, 1, "seed %d: %s fits alone", seed, pod.Name)
			}
		}
	}
}

// FuzzSolve looks further than the seeds of the properties above.
func FuzzSolve(f *testing.F) {
	f.Add(uint64(1), false, false)
	f.Fuzz(func(t *testing.T, seed uint64, plain, empty bool) {
		p := gen.Problem(seed, gen.Options{Plain: plain, Empty: empty})
		require.Empty(t, check.Plan(p, solver.Solve(t.Context(), p, nil)))
	})
}

func TestASolveThatRunsOutOfTimeSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := gen.Scale(100, 5, 20)
	plan := solver.Solve(ctx, p, nil)
	require.Empty(t, check.Plan(p, plan))
	require.Len(t, plan.Unfit, 100)
	require.Contains(t, plan.Unfit[0].Reasons[0].Reason, "out of time")
}
