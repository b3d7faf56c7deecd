package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Options of a Batcher. The zero value is valid; Complete fills defaults and reports every fault.
type Options struct {
	// Idle closes a window after this silence; default 100 ms.
	Idle time.Duration
	// Max closes a window at the latest after this time; default 1 s, at least Idle.
	Max time.Duration
}

// Complete fills in defaults and validates.
func (o Options) Complete() (Options, error) {
	o.Idle, o.Max = cmp.Or(o.Idle, 100*time.Millisecond), cmp.Or(o.Max, time.Second)
	var errs []error
	if o.Idle < 0 {
		errs = append(errs, fmt.Errorf("batchIdleDuration %s is negative; use a positive duration such as 100ms", o.Idle))
	}
	if o.Max < o.Idle {
		errs = append(errs, fmt.Errorf("batchMaxDuration %s is below batchIdleDuration %s; raise it", o.Max, o.Idle))
	}
	return o, errors.Join(errs...)
}

// Batcher gathers items of distinct keys. Add may be called from anywhere and never blocks; one
// goroutine at a time calls Next.
type Batcher[K comparable, V any] struct {
	options Options
	clock   clock.WithTicker

	mu    sync.Mutex
	items map[K]V
	order []K
	news  chan struct{} // capacity 1: something new came
}

// New makes a Batcher; the options must be complete.
func New[K comparable, V any](options Options, clock clock.WithTicker) *Batcher[K, V] {
	return &Batcher[K, V]{options: options, clock: clock, items: map[K]V{}, news: make(chan struct{}, 1)}
}

// Add puts an item into the open window. A key that is there already keeps its place, takes the new
// value, and does not extend the window.
func (b *Batcher[K, V]) Add(key K, value V) {
	b.mu.Lock()
	_, known := b.items[key]
	b.items[key] = value
	if !known {
		b.order = append(b.order, key)
	}
	b.mu.Unlock()
	if !known {
		select {
		case b.news <- struct{}{}:
		default:
		}
	}
}

// Next waits for a window to open and close and returns its items in the order in which they came. It
// returns nil when ctx ends.
func (b *Batcher[K, V]) Next(ctx context.Context) []V {
	select {
	case <-b.news:
	case <-ctx.Done():
		return nil
	}
	latest := b.clock.NewTimer(b.options.Max)
	defer latest.Stop()
	idle := b.clock.NewTimer(b.options.Idle)
	defer idle.Stop()
	for {
		select {
		case <-b.news:
			if !idle.Stop() {
				select {
				case <-idle.C():
				default:
				}
			}
			idle.Reset(b.options.Idle)
		case <-idle.C():
			return b.take()
		case <-latest.C():
			return b.take()
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *Batcher[K, V]) take() []V {
	b.mu.Lock()
	defer b.mu.Unlock()
	values := make([]V, len(b.order))
	for i, key := range b.order {
		values[i] = b.items[key]
	}
	b.items, b.order = map[K]V{}, nil
	select {
	case <-b.news: // what it told of is in this batch
	default:
	}
	return values
}
