package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHoldFor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		left time.Duration // until the deadline; 0 for none
		want time.Duration
	}{
		"no deadline":                           {0, longestHold},
		"two minutes leave time":                {2 * time.Minute, longestHold},
		"of twenty seconds a quarter":           {20 * time.Second, 5 * time.Second},
		"what should be gone already goes now":  {-time.Minute, 0},
		"a forced end now does not wait either": {time.Nanosecond, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deadline := time.Time{}
			if tc.left != 0 {
				deadline = now.Add(tc.left)
			}
			require.Equal(t, tc.want, holdFor(now, deadline))
		})
	}
}
