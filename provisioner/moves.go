package provisioner

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/candidate"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/volume"
)

// movers are pods whose node is being deleted and whose successors need another place. Planning for them
// starts with the deletion, not with the eviction, so that the new node boots while the old one drains.
func movers(snapshot *cluster.Snapshot, schedulerNames []string, budgets *candidate.Limits, now time.Time) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, node := range snapshot.Nodes {
		if !isTerminating(node) {
			continue
		}
		doomed := endsSoon(node, now)
		for _, pod := range node.Pods {
			if slices.Contains(schedulerNames, pod.Spec.SchedulerName) && promise.HasSuccessor(pod) && candidate.IsReschedulable(pod) &&
				(doomed || !candidate.Protect(pod, now).Active && !budgets.NeverEvictable(pod)) {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// soon is how long before the end of a node its last pods are planned for. It is looked at every half minute.
const soon = 5 * time.Minute

// endsSoon reports whether the node has a deadline so near that even pods which nothing may evict have to
// leave: the drain is forced then. An unreadable deadline is none; the drain complains of it.
func endsSoon(node *cluster.Node, now time.Time) bool {
	if node.Claim == nil {
		return false
	}
	deadline, err := time.Parse(time.RFC3339, node.Claim.Annotations[karpv1.AnnotationTerminationTimestamp])
	return err == nil && deadline.Sub(now) < soon
}

// isTerminating reports whether the node is on its way out for good. Nodes that disruption has merely
// chosen are its own to find replacements for.
func isTerminating(node *cluster.Node) bool {
	return node.Node != nil && node.Node.DeletionTimestamp != nil || node.Claim != nil && node.Claim.DeletionTimestamp != nil
}

// without returns the snapshot without the pods on nodes that are being deleted: their successors start
// when they are gone, so they must not be counted where they are.
func without(snapshot *cluster.Snapshot, pods []*corev1.Pod) *cluster.Snapshot {
	if len(pods) == 0 {
		return snapshot
	}
	leaving := make(map[types.UID]struct{}, len(pods))
	for _, pod := range pods {
		leaving[pod.UID] = struct{}{}
	}
	out := *snapshot
	out.Nodes = slices.Clone(snapshot.Nodes)
	for i, node := range out.Nodes {
		if !isTerminating(node) {
			continue
		}
		rest := *node
		rest.Pods = slices.DeleteFunc(slices.Clone(node.Pods), func(pod *corev1.Pod) bool {
			_, leaves := leaving[pod.UID]
			return leaves
		})
		out.Nodes[i] = &rest
	}
	return &out
}

// successor returns the pod as it will be made again.
func successor(pod *corev1.Pod, volumes volume.Listers) *corev1.Pod {
	next := *pod
	next.DeletionTimestamp, next.Spec.NodeName = nil, ""
	next.Status = corev1.PodStatus{Phase: corev1.PodPending}
	next.Spec.Volumes = volumes.Portable(pod)
	return &next
}

// addMovers adds the successors of the pods to what is planned for. Those whose volumes cannot be had are
// left out without a word: their pods run, and may go on to where the volumes are.
func (d *demand) addMovers(pods []*corev1.Pod, volumes volume.Listers, spread spreader) {
	for _, pod := range pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			continue
		}
		places, fault := volumes.Demands(pod, volume.Moving)
		if fault != "" {
			continue
		}
		next := successor(pod, volumes)
		d.place(pod, next, places, spread)
		d.attach(next, volumes)
	}
}

// pendingMoves returns the pods that have to move and, of those, the ones that no place is kept for.
func (p *Provisioner) pendingMoves(ctx context.Context, snapshot *cluster.Snapshot) (all, homeless []*corev1.Pod) {
	budgets, err := p.budgetLister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing PodDisruptionBudgets failed, pods of nodes that are being deleted are planned for when they are evicted")
		return nil, nil
	}
	all = movers(snapshot, p.options.SchedulerNames, candidate.NewLimits(budgets), p.Clock.Now())
	for _, pod := range all {
		if e, ok := p.Promises.Lookup(pod.UID); !ok || e.State != promise.Promised {
			homeless = append(homeless, pod)
		}
	}
	return all, homeless
}

// askForMovers has pods planned whose node is being deleted. They are not in the table until a place is
// found: they run.
func (p *Provisioner) askForMovers(ctx context.Context) {
	snapshot := p.state.Snapshot()
	moving, homeless := p.pendingMoves(ctx, snapshot)
	unplanned := map[string]bool{}
	for _, pod := range homeless {
		unplanned[pod.Spec.NodeName] = true
		p.asks.Add(pod.UID, pod)
	}
	p.departures.note(snapshot, placedMovers(moving, homeless, solver.Plan{}), unplanned)
}

// nodeLeaves notes that a node has begun to go away. It returns at once.
func (p *Provisioner) nodeLeaves() {
	select {
	case p.leaving <- struct{}{}:
	default: // a look is due already
	}
}

// inherit gives a new pod the place that was kept for it when its predecessor's node began to go.
func (p *Provisioner) inherit(ctx context.Context, pod *corev1.Pod) bool {
	now := p.Clock.Now()
	e, ok := p.Promises.Inherit(pod, p.isGone, now.Add(p.options.Launch.PromiseDeadline), now)
	if !ok {
		return false
	}
	p.Events.Nominated(pod, e.Claim, e.Node)
	p.Activate(ctx, []*corev1.Pod{pod})
	return true
}

// isGone reports whether the pod is not there any more, or not for long.
func (p *Provisioner) isGone(pod *corev1.Pod) bool {
	current, err := p.podLister.Pods(pod.Namespace).Get(pod.Name)
	return err != nil || current.UID != pod.UID || current.DeletionTimestamp != nil
}
