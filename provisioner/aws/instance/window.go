package instance

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// window joins calls that come close together into one. The first caller waits for the others and makes
// the call for all of them, so there is no goroutine to own.
type window[In comparable, Out any] struct {
	name      string
	clock     clock.Clock
	idle, max time.Duration
	items     int
	run       func(ctx context.Context, in []In) []result[Out]
	metrics   *Metrics

	mu   sync.Mutex
	open *gathering[In, Out]
}

type result[Out any] struct {
	value Out
	err   error
}

type gathering[In comparable, Out any] struct {
	in      []In
	index   map[In]int
	arrived chan struct{} // a token for each arrival that the leader has not seen
	full    chan struct{}
	done    chan struct{}
	out     []result[Out]
}

// callTimeout bounds a joint call: it does not end with the context of the caller that makes it.
const callTimeout = time.Minute

// do returns the outcome for one item. Equal items share one outcome.
func (w *window[In, Out]) do(ctx context.Context, in In) (Out, error) {
	w.mu.Lock()
	g, leader := w.open, false
	if g == nil {
		leader = true
		g = &gathering[In, Out]{index: map[In]int{}, arrived: make(chan struct{}, 1), full: make(chan struct{}), done: make(chan struct{})}
		w.open = g
	}
	i, joined := g.index[in]
	if !joined {
		i = len(g.in)
		g.in = append(g.in, in)
		g.index[in] = i
		if len(g.in) >= w.items {
			w.open = nil
			close(g.full)
		}
	}
	w.mu.Unlock()
	if leader {
		w.lead(ctx, g)
	} else {
		select {
		case g.arrived <- struct{}{}:
		default: // the leader is told already
		}
	}
	select {
	case <-g.done:
		return g.out[i].value, g.out[i].err
	case <-ctx.Done():
		var none Out
		return none, ctx.Err()
	}
}

// lead waits until the window closes, makes the call and hands out the results.
func (w *window[In, Out]) lead(ctx context.Context, g *gathering[In, Out]) {
	began := w.clock.Now()
	w.gather(g)
	w.mu.Lock()
	if w.open == g {
		w.open = nil
	}
	in := g.in
	w.mu.Unlock()
	w.metrics.observe(w.name, w.clock.Since(began), len(in))
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	g.out = w.run(call, in)
	close(g.done)
}

func (w *window[In, Out]) gather(g *gathering[In, Out]) {
	end := w.clock.NewTimer(w.max)
	defer end.Stop()
	idle := w.clock.NewTimer(w.idle)
	defer func() { idle.Stop() }()
	for {
		select {
		case <-g.full:
			return
		case <-end.C():
			return
		case <-idle.C():
			return
		case <-g.arrived:
			idle.Stop()
			idle = w.clock.NewTimer(w.idle)
		}
	}
}
