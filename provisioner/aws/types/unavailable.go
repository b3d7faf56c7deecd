package types

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// shortageFor is how long a shortage is believed after the first sign of it.
	shortageFor = 3 * time.Minute
	// shortageMax bounds the time that doubles while the shortage is seen again and again.
	shortageMax = 24 * time.Minute
)

// Unavailable remembers what EC2 had none of. A mark lasts three minutes; one that is set again soon
// after it ended lasts twice as long as before, so that a long shortage is not probed all the time.
// Safe for concurrent use.
type Unavailable struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	marks   map[string]mark
	version uint64
	next    time.Time // when the first mark ends; zero for never
}

type mark struct {
	until    time.Time
	lasts    time.Duration
	active   bool
	forgetAt time.Time // until then another mark lasts longer
}

// NewUnavailable makes an empty memory.
func NewUnavailable(clock clock.PassiveClock) *Unavailable {
	return &Unavailable{clock: clock, marks: map[string]mark{}}
}

// MarkOffering notes that a type could not be had in a zone.
func (u *Unavailable) MarkOffering(capacityType, instanceType, zone string) {
	u.mark(offeringKey(capacityType, instanceType, zone))
}

// MarkCapacityType notes that nothing of a capacity type can be had.
func (u *Unavailable) MarkCapacityType(capacityType string) { u.mark("capacity-type:" + capacityType) }

// MarkSubnet notes that a subnet has no free addresses.
func (u *Unavailable) MarkSubnet(id string) { u.mark("subnet:" + id) }

func offeringKey(capacityType, instanceType, zone string) string {
	return capacityType + ":" + instanceType + ":" + zone
}

func (u *Unavailable) mark(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock.Now()
	u.expire(now)
	m, again := u.marks[key]
	switch {
	case !again:
		m.lasts = shortageFor
	case !m.active:
		m.lasts = min(2*m.lasts, shortageMax)
	}
	m.active, m.until = true, now.Add(m.lasts)
	m.forgetAt = m.until.Add(m.lasts)
	u.marks[key] = m
	u.version++
	u.setNext()
}

// expire ends marks whose time is over. The caller holds mu.
func (u *Unavailable) expire(now time.Time) {
	if u.next.IsZero() || now.Before(u.next) {
		return
	}
	for key, m := range u.marks {
		if m.active && !m.until.After(now) {
			m.active = false
			u.marks[key] = m
			u.version++
		}
		if !m.forgetAt.After(now) {
			delete(u.marks, key)
		}
	}
	u.setNext()
}

func (u *Unavailable) setNext() {
	u.next = time.Time{}
	for _, m := range u.marks {
		at := m.forgetAt
		if m.active {
			at = m.until
		}
		if u.next.IsZero() || at.Before(u.next) {
			u.next = at
		}
	}
}

// OutOf implements Stock. A zone's subnets count only when all of them are full.
func (u *Unavailable) OutOf(capacityType, instanceType, zone string, subnets []string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expire(u.clock.Now())
	if len(u.marks) == 0 {
		return false
	}
	if u.marks[offeringKey(capacityType, instanceType, zone)].active || u.marks["capacity-type:"+capacityType].active {
		return true
	}
	for _, id := range subnets {
		if !u.marks["subnet:"+id].active {
			return false
		}
	}
	return len(subnets) > 0
}

// Version changes whenever the answer of OutOf may.
func (u *Unavailable) Version() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expire(u.clock.Now())
	return u.version
}
