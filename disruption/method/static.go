package method

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/disruption/candidate"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// Static is what a static pool has.
type Static struct {
	Running []*cluster.Node // that stay
	Pending int             // that are being replaced
	Leaving int             // that are being deleted
}

// room is how many more nodes the pool's limit lets be there at once.
func (s Static) room(pool *karpv1.NodePool) int {
	limit, limited := pool.Spec.Limits[karpv1.ResourceNodes]
	if !limited {
		return int(^uint(0) >> 1)
	}
	return max(int(limit.Value())-len(s.Running)-s.Pending-s.Leaving, 0)
}

// Missing is how many nodes the pool is to launch; short says that its limit makes them fewer than
// spec.replicas asks for.
func (s Static) Missing(pool *karpv1.NodePool) (count int, short bool) {
	replicas := int(*pool.Spec.Replicas)
	if len(s.Running)+s.Pending >= replicas {
		return 0, false
	}
	wanted := replicas - len(s.Running)
	count = min(wanted, s.room(pool))
	return count, count < wanted
}

// MayReplace is how many nodes of the pool may be replaced now, one new node for each: only while there are
// no more than it asks for, and as far as its limit leaves room.
func (s Static) MayReplace(pool *karpv1.NodePool) int {
	if len(s.Running)+s.Pending > int(*pool.Spec.Replicas) {
		return 0
	}
	return s.room(pool)
}

// Surplus are the nodes that the pool has too many, those that are missed least: without an instance yet,
// then without work, then those that nothing protects, by the trouble of moving their pods and by how
// much of their life is left.
func (s Static) Surplus(pool *karpv1.NodePool, now time.Time) []*cluster.Node {
	count := len(s.Running) - int(*pool.Spec.Replicas)
	if count <= 0 {
		return nil
	}
	nodes := slices.Clone(s.Running)
	slices.SortStableFunc(nodes, func(a, b *cluster.Node) int {
		return cmp.Or(cmp.Compare(rank(a, now), rank(b, now)), cmp.Compare(trouble(a, now), trouble(b, now)), cmp.Compare(a.Key(), b.Key()))
	})
	return nodes[:count]
}

func rank(node *cluster.Node, now time.Time) int {
	protected, working := false, len(node.Promised) > 0
	for _, pod := range node.Pods {
		protected = protected || candidate.Protect(pod, now).Active
		owner := metav1.GetControllerOfNoCopy(pod)
		working = working || owner == nil || owner.Kind != "DaemonSet"
	}
	switch {
	case node.Claim.Status.ProviderID == "":
		return 0
	case protected:
		return 3
	case working:
		return 2
	}
	return 1
}

// trouble is what evicting every pod of the node costs, less for nodes that soon expire anyway.
func trouble(node *cluster.Node, now time.Time) float64 {
	cost := 0.0
	for _, pod := range node.Pods {
		cost += candidate.EvictionCost(pod)
	}
	after := node.Claim.Spec.ExpireAfter.Duration
	if after == nil || *after <= 0 {
		return cost
	}
	left := float64(*after-now.Sub(node.Claim.CreationTimestamp.Time)) / float64(*after)
	return cost * min(max(left, 0), 1)
}
