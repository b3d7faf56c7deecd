package ec2sim

import (
	"slices"
	"time"
)

// fault makes the next count calls of an action fail; count < 0 means all of them.
type fault struct {
	action, code string
	count        int
	drop         bool // do the work, then close the connection without a reply
}

type hook struct {
	action string
	act    func()
}

type faultTable struct {
	list    []*fault
	hooks   []hook
	latency map[string]time.Duration
}

// take finds the first fault for an action and uses it up by one.
func (t *faultTable) take(action string) (fault, bool) {
	for i, f := range t.list {
		if f.action != action && f.action != "*" {
			continue
		}
		found := *f
		if f.count > 0 {
			f.count--
		}
		if f.count == 0 {
			t.list = slices.Delete(t.list, i, i+1)
		}
		return found, true
	}
	return fault{}, false
}

func (t *faultTable) takeHooks(action string) []func() {
	var acts []func()
	t.hooks = slices.DeleteFunc(t.hooks, func(h hook) bool {
		if h.action == action {
			acts = append(acts, h.act)
			return true
		}
		return false
	})
	return acts
}

// FailNext makes the next n calls of an action ("*" for any) fail with a code
// and do nothing. n < 0 means until further notice; n = 0 takes earlier wishes
// for that action and code back.
func (s *Server) FailNext(action, code string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.add(fault{action: action, code: code, count: n})
}

// DropReplyNext lets the next n calls of an action take effect, but closes the
// connection instead of replying.
func (s *Server) DropReplyNext(action string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.add(fault{action: action, code: noReply, count: n, drop: true})
}

func (t *faultTable) add(f fault) {
	if f.count == 0 {
		t.list = slices.DeleteFunc(t.list, func(old *fault) bool { return old.action == f.action && old.code == f.code })
		return
	}
	t.list = append(t.list, &f)
}

// AfterNext runs act once, after the next call of an action has taken effect
// and before its reply is sent. Other calls are served meanwhile, so act may
// call AWS or kill the caller.
func (s *Server) AfterNext(action string, act func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.hooks = append(s.faults.hooks, hook{action, act})
}

// SetLatency adds d to every reply of an action; 0 ends it.
func (s *Server) SetLatency(action string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.setLatency(action, d)
}

func (t *faultTable) setLatency(action string, d time.Duration) {
	if t.latency == nil {
		t.latency = map[string]time.Duration{}
	}
	t.latency[action] = d
}

// SetInsufficientCapacity makes launches in the matching pools fail with
// InsufficientInstanceCapacity, or ends that. An empty instance type, zone or
// capacity type (spot, on-demand, reserved) matches all.
func (s *Server) SetInsufficientCapacity(instanceType, zone, capacityType string, on bool) {
	code := ""
	if on {
		code = "InsufficientInstanceCapacity"
	}
	s.SetLaunchError(instanceType, zone, capacityType, code)
}

// SetLaunchError makes launches in the matching pools fail with a code in
// CreateFleet's errorSet; an empty code ends what exactly the same arguments began.
func (s *Server) SetLaunchError(instanceType, zone, capacityType, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools.setError(poolPattern{instanceType, zone, capacityType}, code)
}

// SetPoolDepth sets how many more instances a pool can give; n < 0 restores the
// depth that follows from the seed.
func (s *Server) SetPoolDepth(instanceType, zone, capacityType string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools.setDepth(poolKey{instanceType, zone, capacityType}, n)
}
