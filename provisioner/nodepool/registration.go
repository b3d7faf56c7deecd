package nodepool

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

const (
	// outcomesKept is how many launches registration health is judged by.
	outcomesKept = 4
	// unhealthyFrom is the number of failures among them that makes a pool unhealthy.
	unhealthyFrom = 2
)

// outcomes are the latest launches of a pool, oldest first; true became a node.
type outcomes []bool

func (o outcomes) add(ok bool) outcomes {
	o = append(o, ok)
	return o[max(0, len(o)-outcomesKept):]
}

func (o outcomes) failures() int {
	n := 0
	for _, ok := range o {
		if !ok {
			n++
		}
	}
	return n
}

// condition is the verdict; ok is false while nothing was launched.
func (o outcomes) condition() (c metav1.Condition, ok bool) {
	c = metav1.Condition{Type: karpv1.ConditionNodeRegistrationHealthy, Status: metav1.ConditionTrue}
	if failed := o.failures(); failed >= unhealthyFrom {
		c.Status, c.Reason = metav1.ConditionFalse, karpv1.ReasonRegistrationFailed
		c.Message = fmt.Sprintf("%d of the last %d nodes failed to register; see the conditions of the pool's NodeClaims", failed, len(o))
	}
	return c, len(o) > 0
}

// recalled are the outcomes that a condition stands for after a restart.
func recalled(status metav1.ConditionStatus) outcomes {
	switch status {
	case metav1.ConditionTrue:
		return outcomes{true}
	case metav1.ConditionFalse:
		return outcomes{false, false}
	default:
		return nil
	}
}

// registrations remembers outcomes by pool. Safe for concurrent use.
type registrations struct {
	mu     sync.Mutex
	byPool map[string]history
}

type history struct {
	uid types.UID // empty until the pool was reconciled
	outcomes
}

// add notes an outcome.
func (r *registrations) add(pool string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byPool[pool]
	h.outcomes = h.add(ok)
	r.byPool[pool] = h
}

// of returns the outcomes of the pool. When the pool is seen for the first time they begin with those
// that its condition stands for; a pool that was created anew under an old name starts from its own.
func (r *registrations) of(pool string, uid types.UID, stored metav1.ConditionStatus) outcomes {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byPool[pool]
	if h.uid != uid {
		noted := h.outcomes
		if h.uid != "" {
			noted = nil
		}
		h = history{uid: uid, outcomes: recalled(stored)}
		for _, ok := range noted {
			h.outcomes = h.add(ok)
		}
		r.byPool[pool] = h
	}
	return h.outcomes
}

// reset forgets what the pool's former shape did.
func (r *registrations) reset(pool string, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byPool[pool] = history{uid: uid}
}

// forget drops a pool that is gone.
func (r *registrations) forget(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byPool, pool)
}
