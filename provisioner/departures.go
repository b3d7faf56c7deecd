package provisioner

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/solver"
)

// departures knows the nodes that go away and for which a plan was made, so that their drain can wait until
// the replacements are on their way. It is rebuilt by planning anew after a restart.
type departures struct {
	mu sync.Mutex
	of map[types.UID]departure // by NodeClaim
}

// departure is one node that goes away.
type departure struct {
	node string
	pods []*corev1.Pod // those that the plan found places for
}

// note records that the nodes of the snapshot which go away were planned for; nodes that skip names were
// not. Those that have gone are forgotten.
func (d *departures) note(snapshot *cluster.Snapshot, placed []*corev1.Pod, skip map[string]bool) {
	byNode := map[string][]*corev1.Pod{}
	for _, pod := range placed {
		byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := map[types.UID]departure{}
	for _, node := range snapshot.Nodes {
		if node.Claim == nil || node.Claim.DeletionTimestamp == nil {
			continue
		}
		uid := node.Claim.UID
		if !skip[node.Name] {
			next[uid] = departure{node.Name, byNode[node.Name]}
		} else if before, ok := d.of[uid]; ok {
			next[uid] = before
		}
	}
	d.of = next
}

// excuse takes a pod out for which the plan is not carried out: nobody has to wait for its place.
func (d *departures) excuse(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, departure := range d.of {
		if departure.node == pod.Spec.NodeName {
			departure.pods = slices.DeleteFunc(slices.Clone(departure.pods), func(other *corev1.Pod) bool { return other.UID == pod.UID })
			d.of[uid] = departure
		}
	}
}

// expected returns the pods that have places elsewhere; ok is false while there is no plan yet.
func (d *departures) expected(claim types.UID) (pods []*corev1.Pod, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	departure, ok := d.of[claim]
	return departure.pods, ok
}

// placedMovers returns the pods among those that move which have a place, or get one by the plan.
func placedMovers(moving, homeless []*corev1.Pod, plan solver.Plan) []*corev1.Pod {
	without := make(map[types.UID]struct{}, len(homeless))
	for _, pod := range homeless {
		without[pod.UID] = struct{}{}
	}
	for _, claim := range plan.Claims {
		for _, pod := range claim.Pods {
			delete(without, pod.UID)
		}
	}
	for _, placement := range plan.Existing {
		delete(without, placement.Pod.UID)
	}
	return slices.DeleteFunc(slices.Clone(moving), func(pod *corev1.Pod) bool {
		_, homeless := without[pod.UID]
		return homeless
	})
}

// Placed reports whether places were looked for, for all pods that have to leave the claim's node, and the
// nodes that were bought for them are launched. Until then it is too early to evict them.
func (p *Provisioner) Placed(claim *karpv1.NodeClaim) bool {
	pods, ok := p.departures.expected(claim.UID)
	if !ok {
		return false
	}
	for _, pod := range pods {
		if p.isGone(pod) {
			continue
		}
		e, ok := p.Promises.Lookup(pod.UID)
		if !ok || e.State != promise.Promised || !p.isLaunched(e.Claim) {
			return false // lost again, or not there yet
		}
	}
	return true
}

// isLaunched reports whether the claim has an instance. A node without a claim is there.
func (p *Provisioner) isLaunched(name string) bool {
	if name == "" {
		return true
	}
	claim, err := p.claimLister.Get(name)
	return err == nil && claim.Status.ProviderID != ""
}
