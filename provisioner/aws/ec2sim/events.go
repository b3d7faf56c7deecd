package ec2sim

import (
	"context"
	"sync"
)

// EventKind is what happened to an instance.
type EventKind string

const (
	// Running: the machine has left pending; it boots until Instance.BootAt.
	Running EventKind = "Running"
	// Gone: the machine is off, because it shuts down, was taken back or stopped.
	// A machine that ends while it is pending is Gone without having been Running.
	Gone EventKind = "Gone"
)

// InstanceEvent is one change of one instance.
type InstanceEvent struct {
	Kind     EventKind
	Instance Instance // as it was then
}

// subscriber has a queue without bound, so that a slow reader neither loses
// events nor holds up the server.
type subscriber struct {
	mu     sync.Mutex
	queue  []InstanceEvent
	signal chan struct{}
}

// Subscribe returns a channel with a Running event for each instance that runs
// now, in the order of launch, and then every event. The channel is closed when
// ctx ends or the server closes.
func (s *Server) Subscribe(ctx context.Context) <-chan InstanceEvent {
	sub := &subscriber{signal: make(chan struct{}, 1)}
	out := make(chan InstanceEvent)
	s.mu.Lock()
	defer s.mu.Unlock() // so that Close either waits for this subscription or has come before
	if s.closing.Err() != nil {
		close(out)
		return out
	}
	s.advance()
	for _, i := range s.order {
		if i.State == "running" {
			sub.put(InstanceEvent{Kind: Running, Instance: i.copy()})
		}
	}
	s.subscribers[sub] = struct{}{}
	s.done.Go(func() {
		defer close(out)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.subscribers, sub)
		}()
		for {
			for _, e := range sub.take() {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				case <-s.closing.Done():
					return
				}
			}
			select {
			case <-sub.signal:
			case <-ctx.Done():
				return
			case <-s.closing.Done():
				return
			}
		}
	})
	return out
}

func (sub *subscriber) put(e InstanceEvent) {
	sub.mu.Lock()
	sub.queue = append(sub.queue, e)
	sub.mu.Unlock()
	select {
	case sub.signal <- struct{}{}:
	default: // already signalled
	}
}

func (sub *subscriber) take() []InstanceEvent {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	events := sub.queue
	sub.queue = nil
	return events
}

// publish hands an event to all subscribers. The caller holds mu.
func (s *Server) publish(e InstanceEvent) {
	for sub := range s.subscribers {
		sub.put(e)
	}
}
