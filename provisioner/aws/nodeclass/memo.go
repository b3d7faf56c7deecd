package nodeclass

import (
	"sync"
	"time"

	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

// memo keeps what AWS answered for a generation of a class, so that passes that have another cause
// don't ask again.
type memo[T any] struct {
	clock clock.PassiveClock
	keep  time.Duration

	mu   sync.Mutex
	kept map[apitypes.UID]answer[T]
}

type answer[T any] struct {
	generation int64
	at         time.Time
	value      T
}

func (m *memo[T]) init(clock clock.PassiveClock, keep time.Duration) {
	// A pass at the end of the interval must ask, even when its timer fires a moment early.
	m.clock, m.keep, m.kept = clock, max(keep-time.Second, 0), map[apitypes.UID]answer[T]{}
}

func (m *memo[T]) get(nc *ec2v1.EC2NodeClass, ask func() (T, error)) (T, error) {
	m.mu.Lock()
	a, ok := m.kept[nc.UID]
	m.mu.Unlock()
	if ok && a.generation == nc.Generation && m.clock.Since(a.at) < m.keep {
		return a.value, nil
	}
	value, err := ask()
	if err != nil {
		return value, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[nc.UID] = answer[T]{nc.Generation, m.clock.Now(), value}
	return value, nil
}

func (m *memo[T]) drop(uid apitypes.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, uid)
}
