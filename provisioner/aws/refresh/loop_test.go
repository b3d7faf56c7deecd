package refresh_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/aws/refresh"
)

func TestLoopBacksOffAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			refresh.Loop(ctx, clock.RealClock{}, "test", 12*time.Hour, func(context.Context) error {
				at = append(at, time.Since(began))
				if len(at) <= 10 {
					return errors.New("unreachable")
				}
				return nil
			})
		}()
		time.Sleep(36 * time.Hour)
		cancel()
		<-done
		require.Zero(t, at[0], "at once")
		for i := 1; i <= 10; i++ {
			want := min(time.Second<<(i-1), 2*time.Minute)
			require.InDelta(t, want.Seconds(), (at[i] - at[i-1]).Seconds(), want.Seconds()/10+0.001, "pause %d", i)
		}
		require.Equal(t, 12*time.Hour, at[11]-at[10], "steady once it works")
	})
}
