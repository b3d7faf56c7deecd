package gen_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/testing/gen"
)

func TestTheSameSeedGivesTheSameProblem(t *testing.T) {
	t.Parallel()
	text := func(seed uint64) string {
		p := gen.Problem(seed, gen.Options{})
		raw, err := json.Marshal(p.Pods)
		require.NoError(t, err)
		pools, err := json.Marshal(p.Pools[0].NodePool)
		require.NoError(t, err)
		return string(raw) + string(pools)
	}
	for seed := range uint64(20) {
		require.Equal(t, text(seed), text(seed))
	}
	require.NotEqual(t, text(1), text(2))
}

func TestScaleHasTheAskedSize(t *testing.T) {
	t.Parallel()
	p := gen.Scale(1000, 40, 100)
	require.Len(t, p.Pods, 1000)
	require.Len(t, p.Pools[0].Types, 100)
	gen.Fill(&p, 10, 3)
	require.Len(t, p.Snapshot.Nodes, 10)
}
