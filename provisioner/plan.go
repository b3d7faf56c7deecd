package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/solver"
)

// provision plans one batch and acts on the plan. Pods that need nothing any more are left out.
func (p *Provisioner) provision(ctx context.Context, asked []*corev1.Pod) {
	logger := klog.FromContext(ctx)
	pods := p.stillPending(asked)
	all := p.state.Snapshot()
	moving, homeless := p.pendingMoves(ctx, all)
	var wanted demand
	wanted.add(pods, p.volumes, p.DefaultSpread)
	wanted.addMovers(homeless, p.volumes, p.DefaultSpread)
	p.metrics.ignored.Set(float64(len(wanted.ignored)))
	p.refuse(ctx, wanted.ignored, nil)
	if len(wanted.pods) == 0 {
		p.departures.note(all, placedMovers(moving, homeless, solver.Plan{}), nil)
		return
	}
	pools, notReady := p.pools(ctx)
	p.rememberTypes(pools)
	started := p.Clock.Now()
	snapshot := without(all, moving)
	plan := solver.Solve(ctx, solver.Problem{
		Snapshot: snapshot, Pools: pools, Pods: wanted.pods, VolumeRequirements: wanted.volumes,
		Attachments: wanted.attaches, AttachRoom: p.attachRoom(ctx, snapshot, &wanted), Now: started, NodeCost: p.options.NodeCost,
		Preferences: p.options.Preferences, RelaxMinValues: p.options.RelaxMinValues,
	}, p.Fit)
	wanted.translate(&plan)
	took := p.Clock.Since(started)
	p.metrics.observeSolve(took, len(plan.Unfit))
	logger.V(2).Info("Solved batch", "pods", len(pods), "moving", len(homeless), "newNodes", len(plan.Claims),
		"onExistingNodes", len(plan.Existing), "unfit", len(plan.Unfit), "duration", took)
	p.reportDisagreements(ctx, plan.Disagreements)
	p.promiseExisting(ctx, plan.Existing)
	p.departures.note(all, placedMovers(moving, homeless, plan), nil)
	// Pods that run are not told that their successors find no place yet: they are asked for again soon.
	p.refuse(ctx, slices.DeleteFunc(plan.Unfit, func(u solver.Unfit) bool { return u.Pod.Spec.NodeName != "" }), notReady)
	if err := p.launcher.Apply(ctx, plan); err != nil {
		logger.Error(err, "Part of the plan could not be launched, its pods will ask again")
	}
}

// attachRoom returns how many volumes the nodes have room for, as far as it matters.
func (p *Provisioner) attachRoom(ctx context.Context, snapshot *cluster.Snapshot, wanted *demand) solver.AttachRoom {
	drivers := wanted.drivers()
	if len(drivers) == 0 {
		return solver.AttachRoom{}
	}
	csiNodes, err := p.csiLister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing CSINodes failed, volume limits are left to the filters")
		return solver.AttachRoom{}
	}
	var room solver.AttachRoom
	room.Nodes, room.Types = p.volumes.Room(snapshot, csiNodes, drivers)
	return room
}

// stillPending returns the newest version of the pods that still wait for a node, and forgets the rest.
func (p *Provisioner) stillPending(asked []*corev1.Pod) []*corev1.Pod {
	pending := make([]*corev1.Pod, 0, len(asked))
	for _, pod := range asked {
		current, err := p.podLister.Pods(pod.Namespace).Get(pod.Name)
		if err != nil || current.UID != pod.UID || !waitsForNode(current) {
			p.settle(pod)
			continue
		}
		if e, ok := p.Promises.Lookup(pod.UID); ok && e.State == promise.Promised {
			continue // it has inherited a place since it asked
		}
		pending = append(pending, current)
	}
	return pending
}

// waitsForNode reports whether the pod is unbound, unfinished and wanted.
func waitsForNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !isFinished(pod)
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// pools returns the pools that may open nodes, with their types, and for the others why they may not.
func (p *Provisioner) pools(ctx context.Context) ([]solver.Pool, []solver.PoolReason) {
	all, err := p.poolLister.List(labels.Everything())
	if err != nil {
		return nil, []solver.PoolReason{{Reason: fmt.Sprintf("list nodepools: %v", err)}}
	}
	slices.SortFunc(all, func(a, b *karpv1.NodePool) int { return strings.Compare(a.Name, b.Name) })
	var ready []solver.Pool
	var notReady []solver.PoolReason
	for _, pool := range all {
		if reason := whyNotReady(pool); reason != "" {
			notReady = append(notReady, solver.PoolReason{Pool: pool.Name, Reason: reason})
			continue
		}
		instanceTypes, err := p.Cloud.InstanceTypes(ctx, pool)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Listing instance types failed, the pool is left out of this batch", "nodePool", klog.KObj(pool))
			notReady = append(notReady, solver.PoolReason{Pool: pool.Name, Reason: "its instance types cannot be listed: " + err.Error()})
			continue
		}
		if p.Adjust != nil {
			var wait string
			if instanceTypes, wait = p.Adjust(pool, instanceTypes); wait != "" {
				notReady = append(notReady, solver.PoolReason{Pool: pool.Name, Reason: wait})
				continue
			}
		}
		ready = append(ready, solver.Pool{NodePool: pool, Types: instanceTypes})
	}
	return ready, notReady
}

// whyNotReady returns why a pool may not open nodes for pods, or "".
func whyNotReady(pool *karpv1.NodePool) string {
	if pool.Spec.Replicas != nil && pool.DeletionTimestamp == nil {
		return "it is static (spec.replicas is set)"
	}
	return whyNotUsable(pool)
}

// whyNotUsable returns why a pool may not open nodes at all, or "".
func whyNotUsable(pool *karpv1.NodePool) string {
	ready := meta.FindStatusCondition(pool.Status.Conditions, karpv1.ConditionReady)
	switch {
	case pool.DeletionTimestamp != nil:
		return "it is being deleted"
	case ready == nil:
		return "it has not been checked yet"
	case ready.Status != "True":
		// Ready itself only counts up what it depends on; that says why.
		for _, kind := range []string{karpv1.ConditionValidationSucceeded, karpv1.ConditionNodeClassReady} {
			if c := meta.FindStatusCondition(pool.Status.Conditions, kind); c != nil && c.Status != "True" && c.Message != "" {
				return "it is not ready: " + c.Message
			}
		}
		return strings.TrimSpace(fmt.Sprintf("it is not ready: %s %s", ready.Reason, ready.Message))
	case ready.ObservedGeneration != 0 && ready.ObservedGeneration != pool.Generation:
		return "its latest change has not been checked yet"
	}
	return ""
}

// promiseExisting keeps room on nodes that exist or are on their way, and wakes the pods.
func (p *Provisioner) promiseExisting(ctx context.Context, placements []solver.Placement) {
	now := p.Clock.Now()
	woken := make([]*corev1.Pod, 0, len(placements))
	for _, placement := range placements {
		node := placement.Node
		deadline := now.Add(existingDeadline)
		if !node.Initialized && node.ClaimName != "" || placement.Pod.Spec.NodeName != "" {
			deadline = now.Add(p.options.Launch.PromiseDeadline)
		}
		p.Promises.Promise(placement.Pod, node.ClaimName, node.Name, deadline, now)
		p.Events.Nominated(placement.Pod, node.ClaimName, node.Name)
		woken = append(woken, placement.Pod)
	}
	p.Activate(ctx, woken)
}

// refuse records why pods fit nowhere and wakes them, so that their next attempt tells it and may preempt.
func (p *Provisioner) refuse(ctx context.Context, unfit []solver.Unfit, notReady []solver.PoolReason) {
	woken := make([]*corev1.Pod, 0, len(unfit))
	for _, u := range unfit {
		reasons := slices.Clone(u.Reasons)
		if len(notReady) > 0 { // that there is no pool would be wrong
			reasons = slices.DeleteFunc(reasons, func(r solver.PoolReason) bool { return r.Pool == "" && r.Reason == solver.NoPools })
		}
		reason := refusal(append(reasons, notReady...))
		p.Promises.Refuse(u.Pod, reason, p.Clock.Now())
		p.Events.FailedScheduling(u.Pod, reason) // the scheduler's own event lacks it while there is no node at all
		woken = append(woken, u.Pod)
	}
	p.Activate(ctx, woken)
}

// maxRefusal keeps the scheduler's event, which has more to say, within the 1024 bytes of a note.
const maxRefusal = 600

// refusal joins the reasons: pools with the same reason share one clause, in the order of first mention.
func refusal(reasons []solver.PoolReason) string {
	var order []string
	pools := map[string][]string{}
	for _, r := range reasons {
		if _, seen := pools[r.Reason]; !seen {
			order = append(order, r.Reason)
		}
		if r.Pool != "" {
			pools[r.Reason] = append(pools[r.Reason], r.Pool)
		} else if pools[r.Reason] == nil {
			pools[r.Reason] = []string{}
		}
	}
	clauses := make([]string, 0, len(order))
	for _, reason := range order {
		switch names := pools[reason]; len(names) {
		case 0:
			clauses = append(clauses, reason)
		case 1:
			clauses = append(clauses, fmt.Sprintf("nodepool %s: %s", names[0], reason))
		default:
			clauses = append(clauses, fmt.Sprintf("nodepools %s: %s", strings.Join(names, ", "), reason))
		}
	}
	text := "no new node can help: " + strings.Join(clauses, "; ")
	if len(text) > maxRefusal {
		text = strings.ToValidUTF8(text[:maxRefusal-3], "") + "..."
	}
	return text
}

// existingDeadline bounds a promise on a node that is ready: the scheduler needs moments to bind.
const existingDeadline = 30 * time.Second

// reportDisagreements makes visible where the planner's algebra and the filters differ.
func (p *Provisioner) reportDisagreements(ctx context.Context, disagreements []solver.Disagreement) {
	for _, d := range disagreements {
		p.metrics.disagreements.WithLabelValues(d.Plugin).Inc()
		klog.FromContext(ctx).Info("A filter plugin refused what the planner found good",
			"pod", klog.KObj(d.Pod), "target", d.Target, "plugin", d.Plugin, "reason", d.Reason)
	}
}
