package events

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// Component is the source of events; the name that dashboards and habits know.
const Component = "karpenter"

// Object is what an event is about: an API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

const (
	defaultDedupe = 2 * time.Minute
	// maxNote is what the API server takes of a message.
	maxNote = 1024
	// nominatedPerSecond and nominatedBurst keep a large batch from flooding the API server.
	nominatedPerSecond = 5
	nominatedBurst     = 10
)

// Recorder sends events, each kind about one object at most once per its de-duplication time. Safe for
// concurrent use; it never blocks on the API server.
type Recorder struct {
	sink      record.EventRecorder
	clock     clock.PassiveClock
	nominated flowcontrol.PassiveRateLimiter

	mu   sync.Mutex
	sent map[string]time.Time // until when an event is a repetition
	next time.Time            // when to sweep sent
}

// NewRecorder makes a Recorder that writes to the sink.
func NewRecorder(sink record.EventRecorder, clock clock.PassiveClock) *Recorder {
	return &Recorder{
		sink: sink, clock: clock, sent: map[string]time.Time{},
		nominated: flowcontrol.NewTokenBucketPassiveRateLimiter(nominatedPerSecond, nominatedBurst),
	}
}

func (r *Recorder) normal(object Object, reason string, dedupe time.Duration, format string, args ...any) {
	r.publish(object, corev1.EventTypeNormal, reason, "", dedupe, fmt.Sprintf(format, args...))
}

func (r *Recorder) warn(object Object, reason string, dedupe time.Duration, format string, args ...any) {
	r.publish(object, corev1.EventTypeWarning, reason, "", dedupe, fmt.Sprintf(format, args...))
}

// publish sends the event unless it is a repetition. about tells events apart that have object and reason in
// common.
func (r *Recorder) publish(object Object, eventType, reason, about string, dedupe time.Duration, message string) {
	key := reason + "|" + about + "|" + string(object.GetUID()) + "|" + object.GetNamespace() + "/" + object.GetName()
	if r.repeats(key, dedupe) {
		return
	}
	if len(message) > maxNote {
		message = strings.ToValidUTF8(message[:maxNote-3], "") + "..."
	}
	r.sink.Event(object, eventType, reason, message)
}

// repeats notes the key and reports whether it was noted within its de-duplication time.
func (r *Recorder) repeats(key string, dedupe time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if now.After(r.next) {
		for k, until := range r.sent {
			if !until.After(now) {
				delete(r.sent, k)
			}
		}
		r.next = now.Add(defaultDedupe)
	}
	if until, ok := r.sent[key]; ok && until.After(now) {
		return true
	}
	r.sent[key] = now.Add(dedupe)
	return false
}
