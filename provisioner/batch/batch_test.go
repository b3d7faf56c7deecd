package batch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An arrival adds a key some time after the start.
type arrival struct {
	at  time.Duration
	key string
}

func TestWindows(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		arrivals []arrival
		closes   time.Duration
		want     []string
	}{
		"PROV-001 one item closes after the idle time": {
			arrivals: []arrival{{0, "a"}}, closes: 100 * time.Millisecond, want: []string{"a"},
		},
		"a new item extends the window": {
			arrivals: []arrival{{0, "a"}, {90 * time.Millisecond, "b"}}, closes: 190 * time.Millisecond, want: []string{"a", "b"},
		},
		"PROV-002 a steady stream closes at the maximum": {
			arrivals: []arrival{
				{0, "a"}, {90 * time.Millisecond, "b"}, {180 * time.Millisecond, "c"}, {270 * time.Millisecond, "d"}, {360 * time.Millisecond, "e"},
			},
			closes: 300 * time.Millisecond, want: []string{"a", "b", "c", "d"},
		},
		"PROV-003 the same key does not extend the window": {
			arrivals: []arrival{{0, "a"}, {90 * time.Millisecond, "a"}}, closes: 100 * time.Millisecond, want: []string{"a"},
		},
		"a late first item waits for nobody": {
			arrivals: []arrival{{time.Hour, "a"}}, closes: time.Hour + 100*time.Millisecond, want: []string{"a"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := batch.New[string, string](batch.Options{Idle: 100 * time.Millisecond, Max: 300 * time.Millisecond}, clock.RealClock{})
				start := time.Now()
				for _, a := range tc.arrivals {
					time.AfterFunc(a.at, func() { b.Add(a.key, a.key) })
				}
				require.Equal(t, tc.want, b.Next(t.Context()))
				require.Equal(t, tc.closes, time.Since(start))
			})
		})
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o, err := batch.Options{}.Complete()
	require.NoError(t, err)
	require.Equal(t, batch.Options{Idle: 100 * time.Millisecond, Max: time.Second}, o)
	_, err = batch.Options{Idle: time.Minute, Max: time.Second}.Complete()
	require.ErrorContains(t, err, "batchMaxDuration 1s is below batchIdleDuration 1m0s")
}
