package method_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/disruption/method"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
)

// shrink judges whether a spot node of the given type may be replaced, when its pool may choose among the
// types of case-013 and wants minValues of them.
func shrink(from string, minValues int) method.Verdict {
	sold := map[string]float64{"t-16": 0.60, "t-8b": 0.31, "t-8a": 0.30, "t-4b": 0.16, "t-4a": 0.15, "t-2b": 0.09, "t-2a": 0.08}
	var types []*catalog.InstanceType
	for name, price := range sold {
		types = append(types, machine(name, 3*price)) // spot is a third
	}
	slices.SortFunc(types, func(a, b *catalog.InstanceType) int {
		if sold[a.Name] < sold[b.Name] {
			return -1
		}
		return 1
	})
	c := claim(types, spot)
	c.Requirements.Merge(requirement.NewSet(requirement.New(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists).WithMinValues(minValues)))
	terms := prices(map[string]float64{"n-" + from: sold[from]})
	terms.SpotToSpot = true
	return method.Judge([]*cluster.Node{node(spot, from)}, solver.Plan{Claims: []solver.Claim{c}}, terms)
}

func TestCase013DeclaredFlexibilityIsTheFloorOfSpot(t *testing.T) {
	t.Parallel()
	big := shrink("t-16", 3)
	require.Empty(t, big.Why)
	require.Len(t, big.Plan.Claims[0].Types, 6, "all that is cheaper is offered, not only the cheapest")
	for _, it := range big.Plan.Claims[0].Types {
		require.NotEqual(t, "t-16", it.Name)
	}
	require.InDelta(t, 0.52, big.Saving, 1e-9)

	for _, small := range []string{"t-4a", "t-2b", "t-2a"} {
		require.NotEmpty(t, shrink(small, 3).Why, "%s: with fewer than three cheaper types there is no walking down", small)
	}
	for name, declared := range map[string]int{"nothing is declared": 0, "one type says nothing": 1} {
		why := shrink("t-16", declared).Why
		for _, mention := range []string{"spot", "flexibility", "15", "6", "minValues"} {
			require.Contains(t, why, mention, name)
		}
	}
}
