package promise

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is what the table knows about a pod.
type State int

const (
	// Asked pods wait for a verdict.
	Asked State = iota + 1
	// Promised pods have a place on a claim, a node or both.
	Promised
	// Refused pods fit on no node that could be bought; Reason says why.
	Refused
)

// String returns the state's name for logs.
func (s State) String() string {
	switch s {
	case Asked:
		return "Asked"
	case Promised:
		return "Promised"
	case Refused:
		return "Refused"
	}
	return "Unknown"
}

// Entry is what the table knows about one pod. Entries are values; the pod they point to is shared
// with informer caches and must not be changed.
type Entry struct {
	// Pod as it was last seen: its UID, name, priority and requests count.
	Pod   *corev1.Pod
	State State
	// Claim and Node name the place of a promised pod. Node is empty until its name is known, Claim
	// is empty for nodes that are not ours.
	Claim, Node string
	// Reason of a refusal, ready for people.
	Reason string
	// Deadline ends a promise; zero means none.
	Deadline time.Time
	// Since is when the entry came into its state.
	Since time.Time
	// Vacated tells of a place for a successor that Pod is gone or going, so that the successor is due.
	Vacated bool
}

// Table maps pods to promises. It is safe for concurrent use; every method returns in memory speed.
type Table struct {
	mu      sync.RWMutex
	entries map[types.UID]Entry
	nodes   map[string]group
	claims  map[string]group
	// names are the claims' nodes as far as they are known.
	names map[string]string
	// owners and namespaces count the pods that are due at their promised place, of each controller and in
	// each namespace.
	owners     map[types.UID]int
	namespaces map[string]int
	// successors are the entries whose place is for a successor, by its kind.
	successors map[string]map[types.UID]struct{}
	// kept is the number of promised entries with a known node, readable without the lock.
	kept atomic.Int64
}

// group is the set of promises on one place. sorted is built when it is first asked for and never
// changed afterwards, so it may be handed out.
type group struct {
	uids   map[types.UID]struct{}
	sorted []Entry
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		entries: map[types.UID]Entry{}, nodes: map[string]group{}, claims: map[string]group{},
		names: map[string]string{}, owners: map[types.UID]int{}, namespaces: map[string]int{},
		successors: map[string]map[types.UID]struct{}{},
	}
}

// Lookup returns the pod's entry, false when the table has none.
func (t *Table) Lookup(uid types.UID) (Entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.entries[uid]
	return e, ok
}

// Ask notes that the pod wants a node and reports whether that is news: false when the pod has asked
// already or holds a promise. A refused pod becomes an asking one.
func (t *Table) Ask(pod *corev1.Pod, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[pod.UID]; ok && e.State != Refused {
		return false
	}
	t.put(Entry{Pod: pod, State: Asked, Since: now})
	return true
}

// Promise keeps a place for the pod on the claim, the node or both until deadline, instead of whatever
// the table had for it. A zero deadline never passes.
func (t *Table) Promise(pod *corev1.Pod, claim, node string, deadline, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if node == "" && claim != "" {
		node = t.names[claim] // the caller's picture may be older than the name
	}
	t.put(Entry{Pod: pod, State: Promised, Claim: claim, Node: node, Deadline: deadline, Since: now})
}

// Refuse notes that no node can help the pod, and why. It ends a promise.
func (t *Table) Refuse(pod *corev1.Pod, reason string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(Entry{Pod: pod, State: Refused, Reason: reason, Since: now})
}

// Release forgets the pod, because it was bound or deleted, and returns what the table had.
func (t *Table) Release(uid types.UID) (Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drop(uid)
}

// SetNode notes that the claim's node has, or changed to, this name. It returns the claim's promises.
func (t *Table) SetNode(claim, node string) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[claim] = node
	for uid := range t.claims[claim].uids {
		e := t.entries[uid]
		if e.Node != node {
			e.Node = node
			t.put(e)
		}
	}
	return t.list(t.claims, claim)
}

// DropClaim removes the promises of a claim that is gone and returns them, so that their pods can ask
// again.
func (t *Table) DropClaim(claim string) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.names, claim)
	dropped := t.list(t.claims, claim)
	for _, e := range dropped {
		t.drop(e.Pod.UID)
	}
	return slices.Clone(dropped)
}

// ForNode returns the promises on the node. The slice is shared and must not be changed.
func (t *Table) ForNode(node string) []Entry { return t.listed(t.nodes, node) }

// ForClaim returns the promises on the claim. The slice is shared and must not be changed.
func (t *Table) ForClaim(claim string) []Entry { return t.listed(t.claims, claim) }

// Swap exchanges the places of two promised pods: claim, node and deadline. It is false, and nothing
// changes, when either is not promised any more.
func (t *Table) Swap(a, b types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, other := t.entries[a], t.entries[b]
	if a == b || one.State != Promised || other.State != Promised {
		return false
	}
	one.Pod, other.Pod = other.Pod, one.Pod
	t.put(one)
	t.put(other)
	return true
}

// PromisedOf returns how many pods of the controller are due at their promised place. Successors of pods
// that still run are not: whether those ever go may depend on the pods that wait now.
func (t *Table) PromisedOf(controller types.UID) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.owners[controller]
}

// PromisedIn returns how many pods of the namespace are due at their promised place, as for PromisedOf.
func (t *Table) PromisedIn(namespace string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.namespaces[namespace]
}

// Promises returns every promised entry.
func (t *Table) Promises() []Entry { return t.inState(Promised) }

// Asking returns every entry that waits for a verdict.
func (t *Table) Asking() []Entry { return t.inState(Asked) }

// Refused returns every refused entry.
func (t *Table) Refused() []Entry { return t.inState(Refused) }

// Kept returns the number of promises whose node is known. It takes no lock.
func (t *Table) Kept() int { return int(t.kept.Load()) }

// Expire removes and returns the promises whose deadline has passed.
func (t *Table) Expire(now time.Time) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var expired []Entry
	for _, e := range t.entries {
		if e.State == Promised && !e.Deadline.IsZero() && now.After(e.Deadline) {
			expired = append(expired, e)
		}
	}
	for _, e := range expired {
		t.drop(e.Pod.UID)
	}
	sortEntries(expired)
	return expired
}

// put stores the entry in place of the pod's former one. The lock must be held for writing.
func (t *Table) put(e Entry) {
	t.drop(e.Pod.UID)
	t.entries[e.Pod.UID] = e
	if e.State != Promised {
		return
	}
	t.count(e, 1)
	if kind := successorKind(e.Pod); e.ForSuccessor() && kind != "" {
		if t.successors[kind] == nil {
			t.successors[kind] = map[types.UID]struct{}{}
		}
		t.successors[kind][e.Pod.UID] = struct{}{}
	}
	if e.Node != "" {
		join(t.nodes, e.Node, e.Pod.UID)
		t.kept.Add(1)
	}
	if e.Claim != "" {
		join(t.claims, e.Claim, e.Pod.UID)
	}
}

// drop removes the pod's entry. The lock must be held for writing.
func (t *Table) drop(uid types.UID) (Entry, bool) {
	e, ok := t.entries[uid]
	if !ok {
		return Entry{}, false
	}
	delete(t.entries, uid)
	if e.State == Promised {
		t.count(e, -1)
		if kind := successorKind(e.Pod); e.ForSuccessor() && kind != "" {
			delete(t.successors[kind], uid)
			if len(t.successors[kind]) == 0 {
				delete(t.successors, kind)
			}
		}
		if e.Node != "" {
			leave(t.nodes, e.Node, uid)
			t.kept.Add(-1)
		}
		if e.Claim != "" {
			leave(t.claims, e.Claim, uid)
		}
	}
	return e, true
}

// count keeps the numbers of pods that are due. The lock must be held for writing.
func (t *Table) count(e Entry, by int) {
	if e.ForSuccessor() && !e.Vacated {
		return
	}
	add(t.namespaces, e.Pod.Namespace, by)
	if owner := metav1.GetControllerOfNoCopy(e.Pod); owner != nil {
		add(t.owners, owner.UID, by)
	}
}

func add[K comparable](counts map[K]int, key K, by int) {
	counts[key] += by
	if counts[key] == 0 {
		delete(counts, key)
	}
}

func join(places map[string]group, place string, uid types.UID) {
	g := places[place]
	if g.uids == nil {
		g.uids = map[types.UID]struct{}{}
	}
	g.uids[uid] = struct{}{}
	g.sorted = nil
	places[place] = g
}

func leave(places map[string]group, place string, uid types.UID) {
	g := places[place]
	delete(g.uids, uid)
	if len(g.uids) == 0 {
		delete(places, place)
		return
	}
	g.sorted = nil
	places[place] = g
}

// listed returns the place's promises, sorting them only after a change.
func (t *Table) listed(places map[string]group, place string) []Entry {
	t.mu.RLock()
	g, ok := places[place]
	t.mu.RUnlock()
	if !ok || g.sorted != nil {
		return g.sorted
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list(places, place)
}

// list is listed with the lock held for writing.
func (t *Table) list(places map[string]group, place string) []Entry {
	g, ok := places[place]
	if !ok || g.sorted != nil {
		return g.sorted
	}
	sorted := make([]Entry, 0, len(g.uids))
	for uid := range g.uids {
		sorted = append(sorted, t.entries[uid])
	}
	sortEntries(sorted)
	g.sorted = sorted
	places[place] = g
	return sorted
}

func (t *Table) inState(state State) []Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []Entry
	for _, e := range t.entries {
		if e.State == state {
			found = append(found, e)
		}
	}
	sortEntries(found)
	return found
}

// sortEntries orders by namespace and name; the UID settles the moment in which a pod and its
// successor of the same name are both known.
func sortEntries(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
			cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
}
