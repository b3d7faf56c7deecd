package nodeprovision

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// Hidden is the set of nodes that were chosen for removal and take no pods any more, together with the
// pods that are between being placed on a node and being seen there. One lock covers both, so that no
// pod can slip onto a node while it is hidden. A nil *Hidden is an empty set.
type Hidden struct {
	mu       sync.RWMutex
	nodes    map[string]struct{}
	reserved map[types.UID]string
	count    atomic.Int64
}

// NewHidden returns an empty set.
func NewHidden() *Hidden {
	return &Hidden{nodes: map[string]struct{}{}, reserved: map[types.UID]string{}}
}

// Hide takes the node out of scheduling and reports whether it did: false when a pod was placed there
// that Forget has not been called for, because the caller may not know of it yet.
func (h *Hidden) Hide(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, on := range h.reserved {
		if on == node {
			return false
		}
	}
	h.nodes[node] = struct{}{}
	h.count.Store(int64(len(h.nodes)))
	return true
}

// Show gives the node back to scheduling. Pods that were refused by it have to be woken by the caller.
func (h *Hidden) Show(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.nodes, node)
	h.count.Store(int64(len(h.nodes)))
}

// Forget ends a pod's reservation. Whoever decides about nodes calls it when its own picture of the
// cluster shows the pod as bound, or when the pod is gone.
func (h *Hidden) Forget(pod types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.reserved, pod)
}

// reserve notes that the pod was placed on the node, or returns false when the node is hidden.
func (h *Hidden) reserve(node string, pod types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, hidden := h.nodes[node]; hidden {
		return false
	}
	h.reserved[pod] = node
	return true
}

func (h *Hidden) none() bool { return h == nil || h.count.Load() == 0 }

func (h *Hidden) has(node string) bool {
	if h.none() {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, ok := h.nodes[node]
	return ok
}
