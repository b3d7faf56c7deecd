package refresh

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	firstPause = time.Second
	maxPause   = 2 * time.Minute
)

// Loop calls job at once and then every period until ctx ends. After a failure it logs and tries again
// after a pause that doubles from a second to two minutes, with up to a tenth of jitter, so that many
// loops don't knock at the same time. what names the job in the log, for example "instance types".
func Loop(ctx context.Context, clock clock.Clock, what string, period time.Duration, job func(context.Context) error) {
	failures := 0
	for ctx.Err() == nil {
		pause := period
		switch err := job(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = min(firstPause<<min(failures, 16), maxPause, period)
			pause += time.Duration(rand.Int64N(int64(pause)/10 + 1)) //nolint:gosec // spreads load, guards nothing
			failures++
			klog.FromContext(ctx).Error(err, "Asking AWS failed, will retry; scheduling goes on with what is known", "what", what, "retryAfter", pause, "failures", failures)
		default:
			if failures > 0 {
				klog.FromContext(ctx).Info("AWS answers again", "what", what, "failures", failures)
			}
			failures = 0
		}
		timer := clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}
