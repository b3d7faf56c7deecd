package instance

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

type calls struct {
	mu   sync.Mutex
	list [][]string
}

func (c *calls) run(_ context.Context, in []string) []result[int] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, in)
	out := make([]result[int], len(in))
	for i, s := range in {
		n, err := strconv.Atoi(s)
		out[i] = result[int]{n, err}
	}
	return out
}

func newWindow(c *calls, items int) *window[string, int] {
	return &window[string, int]{name: "test", clock: clock.RealClock{}, idle: 100 * time.Millisecond, max: time.Second, items: items,
		run: c.run, metrics: NewMetrics(prometheus.NewRegistry())}
}

func TestWindowJoinsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		w := newWindow(&c, 500)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				got, err := w.do(t.Context(), strconv.Itoa(i%4))
				require.NoError(t, err)
				require.Equal(t, i%4, got)
			})
		}
		wg.Wait()
		require.Equal(t, 300*time.Millisecond, time.Since(began), "100 ms of silence after the last one")
		require.Equal(t, [][]string{{"0", "1", "2", "3"}}, c.list, "equal items share one place")
	})
}

func TestWindowClosesAtItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		w := newWindow(&c, 500)
		var wg sync.WaitGroup
		for i := range 30 { // one every 50 ms: never silent
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				_, err := w.do(t.Context(), strconv.Itoa(i))
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Len(t, c.list, 2, "a second at most")
		c.list = nil
		w = newWindow(&c, 3)
		began := time.Now()
		for i := range 3 {
			wg.Go(func() { _, _ = w.do(t.Context(), strconv.Itoa(i)) })
		}
		wg.Wait()
		require.Zero(t, time.Since(began), "a full window does not wait")
		require.Len(t, c.list, 1)
	})
}

func TestWindowErrorsBelongToTheirItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		w := newWindow(&c, 500)
		var wg sync.WaitGroup
		wg.Go(func() { _, err := w.do(t.Context(), "x"); require.Error(t, err) })
		wg.Go(func() { _, err := w.do(t.Context(), "1"); require.NoError(t, err) })
		wg.Wait()
	})
}

func TestWindowCallerMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		w := newWindow(&c, 500)
		var wg sync.WaitGroup
		wg.Go(func() { _, err := w.do(t.Context(), "1"); require.NoError(t, err) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _, err := w.do(ctx, "2"); require.True(t, errors.Is(err, context.Canceled)) })
		synctest.Wait()
		cancel()
		wg.Wait()
		require.Len(t, c.list, 1)
	})
}

func TestIDOf(t *testing.T) {
	t.Parallel()
	for providerID, want := range map[string]string{
		"aws:///us-east-1a/i-0123": "i-0123", "other:///x/i-1": "i-1", "": "", "i-0123": "", "aws:///i-0123": "", "aws://x/i-0123": "",
	} {
		require.Equal(t, want, IDOf(providerID), providerID)
	}
}
