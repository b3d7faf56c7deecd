package solver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

// A bound is of use only if it is never above a plan, and close where the plan is known to be good.
func TestBoundIsNeverAboveThePlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		p := gen.Problem(seed, gen.Options{})
		plan := solver.Solve(t.Context(), p, nil)
		price := 0.0
		for _, c := range plan.Claims {
			price += c.Cheapest.Price
		}
		bound := solver.Bound(p, plan)
		require.LessOrEqual(t, bound, price+1e-9, "seed %d", seed)
		if len(plan.Claims) > 0 {
			require.Positive(t, bound, "seed %d", seed)
		}
	}
}

// Pods of one kind that fill machines without a rest cost just what the bound says.
func TestBoundIsExactWhereNothingIsWasted(t *testing.T) {
	t.Parallel()
	p := gen.Scale(5000, 1, 50)
	plan := solver.Solve(t.Context(), p, nil)
	price := 0.0
	for _, c := range plan.Claims {
		price += c.Cheapest.Price
	}
	require.InEpsilon(t, price, solver.Bound(p, plan), 0.05)
}
