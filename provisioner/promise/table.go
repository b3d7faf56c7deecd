package promise

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is how far the provisioner is with a pod.
type State int

const (
	// Asked: the pod waits for a verdict.
	Asked State = iota + 1
	// Promised: a claim or node is kept for the pod.
	Promised
	// Refused: nothing that may be bought, and nothing that exists, can hold the pod.
	Refused
)

// String returns the state's name, as in metrics.
func (s State) String() string {
	switch s {
	case Asked:
		return "asked"
	case Promised:
		return "promised"
	case Refused:
		return "refused"
	default:
		return "unknown"
	}
}

// Entry is what the table knows of one pod.
type Entry struct {
	// Pod as it was last seen. Shared; not to be changed.
	Pod   *corev1.Pod
	State State
	// Claim is the NodeClaim kept for the pod, empty for a node without one. Node is empty until the
	// node's name is known.
	Claim, Node string
	// Reason of a refusal, ready for people.
	Reason string
	// Since when the state holds. Deadline ends a promise, and is zero in other states.
	Since, Deadline time.Time
}

// Table holds one entry per pod. Safe for concurrent use.
type Table struct {
	mu      sync.RWMutex
	entries map[types.UID]Entry
	byNode  map[string]map[types.UID]struct{}
	byClaim map[string]map[types.UID]struct{}
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		entries: map[types.UID]Entry{},
		byNode:  map[string]map[types.UID]struct{}{},
		byClaim: map[string]map[types.UID]struct{}{},
	}
}

// Lookup returns what is known of the pod.
func (t *Table) Lookup(uid types.UID) (Entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.entries[uid]
	return e, ok
}

// Ask notes that the pod waits for a verdict. It returns false, and changes nothing, when the pod
// waits already or has a promise; a refused pod may ask again.
func (t *Table) Ask(pod *corev1.Pod, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[pod.UID]; ok && e.State != Refused {
		return false
	}
	t.put(Entry{Pod: pod, State: Asked, Since: now})
	return true
}

// Promise keeps the claim or node for the pod until the deadline. node may be empty while unknown,
// claim when the node has none.
func (t *Table) Promise(pod *corev1.Pod, claim, node string, deadline, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(Entry{Pod: pod, State: Promised, Claim: claim, Node: node, Since: now, Deadline: deadline})
}

// Refuse records why the pod fits nowhere.
func (t *Table) Refuse(pod *corev1.Pod, reason string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(Entry{Pod: pod, State: Refused, Reason: reason, Since: now})
}

// Release forgets the pod: it is bound, gone or needs nothing any more.
func (t *Table) Release(uid types.UID) (Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(uid)
}

// SetNode records that the claim's node has this name, at first or instead of another, and returns the
// claim's promises as they are now.
func (t *Table) SetNode(claim, node string) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.collect(t.byClaim[claim])
	for i, e := range changed {
		e.Node = node
		t.put(e)
		changed[i] = e
	}
	return changed
}

// DropClaim removes the promises on a claim that is gone and returns them: their pods must ask again.
func (t *Table) DropClaim(claim string) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeAll(t.collect(t.byClaim[claim]))
}

// Expire removes the promises whose deadline has passed and returns them.
func (t *Table) Expire(now time.Time) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeAll(t.filter(func(e Entry) bool { return e.State == Promised && !e.Deadline.After(now) }))
}

// ForNode returns the promises on the node.
func (t *Table) ForNode(node string) []Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.collect(t.byNode[node])
}

// ForClaim returns the promises on the claim.
func (t *Table) ForClaim(claim string) []Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.collect(t.byClaim[claim])
}

// HasNode reports whether any pod has a promise on the node. It is the cheap first look of Filter.
func (t *Table) HasNode(node string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byNode[node]) > 0
}

// InState returns every entry in the state.
func (t *Table) InState(s State) []Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.filter(func(e Entry) bool { return e.State == s })
}

// Refused returns every refusal: these pods ask again when the world changes.
func (t *Table) Refused() []Entry { return t.InState(Refused) }

// Counts returns how many pods are in each state.
func (t *Table) Counts() map[State]int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	counts := map[State]int{Asked: 0, Promised: 0, Refused: 0}
	for _, e := range t.entries {
		counts[e.State]++
	}
	return counts
}

func (t *Table) put(e Entry) {
	t.remove(e.Pod.UID)
	t.entries[e.Pod.UID] = e
	index(t.byNode, e.Node, e.Pod.UID)
	index(t.byClaim, e.Claim, e.Pod.UID)
}

func (t *Table) remove(uid types.UID) (Entry, bool) {
	e, ok := t.entries[uid]
	if ok {
		delete(t.entries, uid)
		unindex(t.byNode, e.Node, uid)
		unindex(t.byClaim, e.Claim, uid)
	}
	return e, ok
}

func (t *Table) removeAll(entries []Entry) []Entry {
	for _, e := range entries {
		t.remove(e.Pod.UID)
	}
	return entries
}

func index(m map[string]map[types.UID]struct{}, key string, uid types.UID) {
	if key == "" {
		return
	}
	if m[key] == nil {
		m[key] = map[types.UID]struct{}{}
	}
	m[key][uid] = struct{}{}
}

func unindex(m map[string]map[types.UID]struct{}, key string, uid types.UID) {
	delete(m[key], uid)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func (t *Table) collect(uids map[types.UID]struct{}) []Entry {
	entries := make([]Entry, 0, len(uids))
	for uid := range uids {
		entries = append(entries, t.entries[uid])
	}
	return sorted(entries)
}

func (t *Table) filter(keep func(Entry) bool) []Entry {
	var entries []Entry
	for _, e := range t.entries {
		if keep(e) {
			entries = append(entries, e)
		}
	}
	return sorted(entries)
}

func sorted(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return entries
}
