package pace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/pace"
)

func TestWaitKeepsTheRate(t *testing.T) {
	for operation, want := range map[string]struct{ burst, perSecond float64 }{
		"CreateFleet": {45, 4.5}, "DescribeInstances": {90, 18}, "CreateTags": {90, 9}, "TerminateInstances": {90, 4.5},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, began, n := pace.New(), time.Now(), 200
			for range n {
				require.NoError(t, p.Wait(t.Context(), operation))
			}
			require.InDelta(t, (float64(n)-want.burst)/want.perSecond, time.Since(began).Seconds(), 0.1, operation)
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := pace.New()
	ctx, cancel := context.WithCancel(t.Context())
	for range 45 {
		require.NoError(t, p.Wait(ctx, "CreateFleet"))
	}
	cancel()
	require.ErrorIs(t, p.Wait(ctx, "CreateFleet"), context.Canceled)
	require.NoError(t, p.Wait(t.Context(), "DescribeVpcs"), "operations that are rare are not held up")
}
