package requirement_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
)

func TestProduct(t *testing.T) {
	t.Parallel()
	zone := func(zones ...string) requirement.Set {
		return requirement.NewSet(requirement.New(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zones...))
	}
	free := requirement.Set{}
	require.Equal(t, []requirement.Set{zone("b")}, requirement.Product([]requirement.Set{zone("a", "b")}, []requirement.Set{zone("c"), zone("b")}))
	require.Equal(t, []requirement.Set{zone("a"), zone("b")}, requirement.Product([]requirement.Set{free}, []requirement.Set{zone("a"), zone("b"), zone("a")}),
		"each conjunction once")
	require.Empty(t, requirement.Product([]requirement.Set{free}, nil), "no alternative is no way")
	require.Empty(t, requirement.Product([]requirement.Set{zone("a")}, []requirement.Set{zone("b")}))
	given := zone("a", "b")
	requirement.Product([]requirement.Set{given}, []requirement.Set{zone("a")})
	require.Equal(t, zone("a", "b"), given, "what is given stays as it was")
}
