package lifecycle

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/cloud"
)

// rememberFor is how long a launch result is kept, so that a lost status write launches nothing twice.
const rememberFor = time.Hour

// flights knows the launches that are under way and remembers the outcome of those that ended well.
type flights struct {
	clock clock.PassiveClock
	slots chan struct{} // bounds the calls in parallel
	wg    sync.WaitGroup

	mu       sync.Mutex
	grounded bool // nothing takes off any more
	flying   map[types.UID]struct{}
	landed   map[types.UID]landing
	expected map[string]time.Time // claims that somebody is writing and will start, by name; until when
}

// expectFor bounds how long a claim waits for whoever wrote it.
const expectFor = 30 * time.Second

type landing struct {
	created cloud.Created
	at      time.Time
}

// parallelLaunches bounds the cloud calls that are under way at one time.
const parallelLaunches = 100

func newFlights(clock clock.PassiveClock) *flights {
	return &flights{
		clock: clock, slots: make(chan struct{}, parallelLaunches),
		flying: map[types.UID]struct{}{}, landed: map[types.UID]landing{}, expected: map[string]time.Time{},
	}
}

// takeOff notes that the group is being launched; false when a member is already, or has an instance, or
// when the controller has stopped.
func (f *flights) takeOff(group cloud.Group) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, claim := range group.Claims {
		delete(f.expected, claim.Name)
	}
	if f.grounded {
		return false
	}
	for _, claim := range group.Claims {
		if _, ok := f.flying[claim.UID]; ok {
			return false
		}
		if l, ok := f.landed[claim.UID]; ok && l.created.Err == nil {
			return false
		}
	}
	for _, claim := range group.Claims {
		f.flying[claim.UID] = struct{}{}
	}
	f.wg.Add(1)
	return true
}

// land records the outcome; results are in the order of the group's claims.
func (f *flights) land(group cloud.Group, results []cloud.Created) {
	defer f.wg.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	for uid, l := range f.landed {
		if now.Sub(l.at) > rememberFor {
			delete(f.landed, uid)
		}
	}
	for i, claim := range group.Claims {
		delete(f.flying, claim.UID)
		f.landed[claim.UID] = landing{created: results[i], at: now}
	}
}

// expect notes that the claims are being written and will be started by their writer.
func (f *flights) expect(names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until := f.clock.Now().Add(expectFor)
	for _, name := range names {
		f.expected[name] = until
	}
}

// release takes expect back for claims that their writer does not start.
func (f *flights) release(names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		delete(f.expected, name)
	}
}

// isExpected returns how long the claim may still wait for its writer, 0 for not at all.
func (f *flights) isExpected(name string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	until, ok := f.expected[name]
	if !ok {
		return 0
	}
	left := until.Sub(f.clock.Now())
	if left <= 0 {
		delete(f.expected, name)
		return 0
	}
	return left
}

func (f *flights) isFlying(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.flying[uid]
	return ok
}

// outcome returns what the claim's launch led to. A failure is told once: the next look launches again.
func (f *flights) outcome(uid types.UID) (cloud.Created, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.landed[uid]
	if ok && l.created.Err != nil {
		delete(f.landed, uid)
	}
	return l.created, ok
}

func (f *flights) forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.landed, uid)
}

// wait returns when all have landed. Nothing takes off from now on:
// whoever plans may not have stopped yet.
func (f *flights) wait() {
	f.mu.Lock()
	f.grounded = true
	f.mu.Unlock()
	f.wg.Wait()
}
