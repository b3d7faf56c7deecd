package overlay

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
)

// verdict is one judgement of all overlays. It is immutable.
type verdict struct {
	rules []*Rule // in Order
	seen  Seen
	// pools are those that the conflicts were looked for in, by name.
	pools map[string]types.UID
}

// Book holds the verdict in force and the types that were adjusted by it: as long as neither the verdict nor
// the pool nor the list of types changes, adjusting costs a comparison. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	verdict *verdict
	byPool  map[string]adjusted
}

// adjusted is a result with what it was made from. Keeping the list keeps its address from being used again.
type adjusted struct {
	verdict    *verdict
	uid        types.UID
	generation int64
	list, out  []*catalog.InstanceType
}

// current returns the verdict in force, nil before the first.
func (b *Book) current() *verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.verdict
}

// publish puts a verdict in force.
func (b *Book) publish(v *verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict = v
	for name := range b.byPool {
		if _, ok := v.pools[name]; !ok {
			delete(b.byPool, name)
		}
	}
}

// Adjust returns the pool's types as the overlays correct them; ok is false while the pool has not been
// looked at yet. The result is shared, and must not be changed.
func (b *Book) Adjust(pool *karpv1.NodePool, list []*catalog.InstanceType) (out []*catalog.InstanceType, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.verdict == nil {
		return list, false
	}
	if uid, looked := b.verdict.pools[pool.Name]; !looked || uid != pool.UID {
		return list, false
	}
	if len(b.verdict.rules) == 0 || len(list) == 0 {
		return list, true
	}
	known := b.byPool[pool.Name]
	if known.verdict == b.verdict && known.uid == pool.UID && known.generation == pool.Generation && sameList(known.list, list) {
		return known.out, true
	}
	out = Apply(b.verdict.rules, pool, list, b.verdict.seen)
	if b.byPool == nil {
		b.byPool = map[string]adjusted{}
	}
	b.byPool[pool.Name] = adjusted{b.verdict, pool.UID, pool.Generation, list, out}
	return out, true
}

func sameList(a, b []*catalog.InstanceType) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// Lacking reports whether nodes of the type in the pool are known to come without the resource that an
// overlay declares.
func (b *Book) Lacking(pool, instanceType string, name corev1.ResourceName) bool {
	v := b.current()
	if v == nil || len(v.seen) == 0 {
		return false
	}
	for _, r := range v.rules {
		if v.seen.limit(r, pool, instanceType, name) == 0 {
			return true
		}
	}
	return false
}
