package disruption

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/candidate"
	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

const (
	// providerInterval is how often the provider is asked about one claim.
	providerInterval = 5 * time.Minute
	// providerPerRound bounds how often it is asked in one round, exchangesPerRound how many nodes are
	// begun to be replaced for drift or age.
	providerPerRound  = 20
	exchangesPerRound = 10
	// driftPause and maxDriftPause are how long a pool is left alone after a replacement failed, the first
	// time and at most.
	driftPause    = 30 * time.Second
	maxDriftPause = 15 * time.Minute
)

// providerSays is what the provider said about a claim.
type providerSays struct {
	reason string
	at     time.Time
}

// pause is how long a pool is left alone because its replacements fail.
type pause struct {
	failures int
	until    time.Time
}

// markDrift brings the Drifted conditions of the claims up to date.
func (c *Controller) markDrift(ctx context.Context, v *view) {
	if c.Planner == nil {
		return
	}
	c.askProvider(ctx, v)
	c.refreshOffered(ctx, v)
	writes := 0
	for _, node := range v.nodes {
		if node.Claim.DeletionTimestamp != nil || c.isOurs(node) {
			continue
		}
		reason := c.driftOf(node, v)
		have := meta.FindStatusCondition(node.Claim.Status.Conditions, karpv1.ConditionDrifted)
		change := remove(karpv1.ConditionDrifted)
		switch {
		case reason == "" && have == nil, reason != "" && have != nil && have.Status == metav1.ConditionTrue && have.Reason == reason:
			continue
		case reason != "":
			change = c.setTrue(karpv1.ConditionDrifted, reason)
		}
		if err := c.writeStatus(ctx, node.Claim, change); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Writing Drifted failed, will retry", "nodeClaim", klog.KObj(node.Claim))
		}
		if writes++; writes == marksPerRound || ctx.Err() != nil {
			return
		}
	}
}

// offeredInterval is how often it is asked anew which types pools can buy, for the sake of drift.
const offeredInterval = 30 * time.Second

func (c *Controller) refreshOffered(ctx context.Context, v *view) {
	if v.now.Sub(c.offeredAt) < offeredInterval {
		return
	}
	c.offeredAt = v.now
	world := c.Planner.World(ctx)
	clear(c.offered)
	for name := range v.pools {
		if types := world.Types(name); types != nil {
			c.offered[name] = types
		}
	}
}

// askProvider asks about the claims that it was asked about longest ago.
func (c *Controller) askProvider(ctx context.Context, v *view) {
	if c.Drifts == nil {
		return
	}
	alive := make(map[types.UID]bool, len(v.nodes))
	var due []*cluster.Node
	for _, node := range v.nodes {
		alive[node.Claim.UID] = true
		if meta.IsStatusConditionTrue(node.Claim.Status.Conditions, karpv1.ConditionLaunched) && v.now.Sub(c.drifts[node.Claim.UID].at) >= providerInterval {
			due = append(due, node)
		}
	}
	for uid := range c.drifts {
		if !alive[uid] {
			delete(c.drifts, uid)
		}
	}
	slices.SortStableFunc(due, func(a, b *cluster.Node) int { return c.drifts[a.Claim.UID].at.Compare(c.drifts[b.Claim.UID].at) })
	for _, node := range due[:min(len(due), providerPerRound)] {
		reason, err := c.Drifts.IsDrifted(ctx, node.Claim)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Asking the cloud about drift failed, will ask again", "nodeClaim", klog.KObj(node.Claim), "err", err)
			c.drifts[node.Claim.UID] = providerSays{c.drifts[node.Claim.UID].reason, v.now.Add(-providerInterval + time.Minute)}
			continue
		}
		c.drifts[node.Claim.UID] = providerSays{string(reason), v.now}
	}
}

// driftOf returns why the node has drifted, "" when it has not.
func (c *Controller) driftOf(node *cluster.Node, v *view) string {
	pool := v.pools[node.Pool]
	if pool == nil {
		return ""
	}
	if reason := method.Drifted(node.Claim, pool, c.offered[node.Pool], v.now); reason != "" {
		return reason
	}
	return c.drifts[node.Claim.UID].reason
}

// replaceDrifted begins to replace nodes that have drifted, those without pods first, then those that
// drifted first.
func (c *Controller) replaceDrifted(ctx context.Context, v *view) {
	since := func(node *cluster.Node) time.Time {
		if cond := meta.FindStatusCondition(node.Claim.Status.Conditions, karpv1.ConditionDrifted); cond != nil {
			return cond.LastTransitionTime.Time
		}
		return v.now
	}
	c.replaceAging(ctx, v, karpv1.DisruptionReasonDrifted,
		func(node *cluster.Node) bool { return c.driftOf(node, v) != "" },
		func(a, b *cluster.Node) int {
			return cmp.Or(cmp.Compare(min(candidate.MoveCost(a), 1.001), min(candidate.MoveCost(b), 1.001)), since(a).Compare(since(b)), cmp.Compare(a.Name, b.Name))
		})
}

// expire replaces nodes that are about to expire, and deletes those whose time is up whatever holds them.
func (c *Controller) expire(ctx context.Context, v *view) {
	for _, node := range v.nodes {
		_, deadline, ok := method.Expiry(node.Claim)
		if !ok || v.now.Before(deadline) || node.Claim.DeletionTimestamp != nil || c.deleted[node.Claim.UID] {
			continue
		}
		if err := c.deleteClaim(ctx, node.Claim); err != nil {
			klog.FromContext(ctx).Error(err, "Deleting an expired NodeClaim failed, will retry", "nodeClaim", klog.KObj(node.Claim))
			continue
		}
		c.deleted[node.Claim.UID] = true
		klog.FromContext(ctx).Info("Deleted expired NodeClaim", "nodeClaim", klog.KObj(node.Claim), "deadline", deadline)
		if node.Node != nil {
			c.Events.DisruptionTerminating(node.Node, string(reasonExpired))
		}
		c.Events.DisruptionTerminating(node.Claim, string(reasonExpired))
		c.metrics.countRemoved(node.Claim, v.pools[node.Pool], reasonExpired)
	}
	deadlineOf := func(node *cluster.Node) time.Time { _, deadline, _ := method.Expiry(node.Claim); return deadline }
	c.replaceAging(ctx, v, reasonExpired,
		func(node *cluster.Node) bool {
			early, deadline, ok := method.Expiry(node.Claim)
			return ok && !v.now.Before(early) && v.now.Before(deadline)
		},
		func(a, b *cluster.Node) int {
			return cmp.Or(deadlineOf(a).Compare(deadlineOf(b)), cmp.Compare(a.Name, b.Name))
		})
}

// replaceAging begins to replace the nodes that are due, one by one, within budgets. Whatever new nodes
// cost, their pods must all find a place. A pool whose replacements fail is left alone for a while, so
// that it starves no other; never are all pods of a workload under way at once.
func (c *Controller) replaceAging(ctx context.Context, v *view, reason karpv1.DisruptionReason, due func(*cluster.Node) bool, order func(a, b *cluster.Node) int) {
	if c.Planner == nil {
		return
	}
	limits, err := c.limits()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Nothing is replaced in this round", "reason", reason)
		return
	}
	var nodes []*cluster.Node
	for _, node := range v.nodes {
		pool := v.pools[node.Pool]
		if pool == nil || pool.Spec.Replicas != nil && c.Static == nil || !due(node) || !c.mayTry(node, v.now) || v.now.Before(c.pauses[node.Pool].until) {
			continue
		}
		if node.Deleting || blockedFor(reason, node, pool, limits, v.now) != "" {
			continue // reported by report
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 0 {
		return
	}
	slices.SortStableFunc(nodes, order)
	left := c.budgetsLeft(v, reason)
	headroom := c.headroom(v)
	crowd := c.workloads(v)
	started := 0
	for _, node := range nodes {
		if started == exchangesPerRound || ctx.Err() != nil {
			return
		}
		if left[node.Pool] <= 0 || crowd.wouldLeave(node) {
			continue
		}
		room, static := headroom[node.Pool]
		if static && room <= 0 {
			continue
		}
		p := proposal{nodes: []*cluster.Node{node}, reason: reason, judge: placesForAll, shun: notUp, static: static}
		if c.start(ctx, p) {
			left[node.Pool]--
			if static {
				headroom[node.Pool]--
			}
			started++
			crowd.leave(node)
		}
	}
}

// headroom is how many nodes of each static pool may be replaced now.
func (c *Controller) headroom(v *view) map[string]int {
	room := map[string]int{}
	for name, pool := range v.pools {
		if pool.Spec.Replicas != nil && c.Static != nil {
			room[name] = c.staticOf(v, name).MayReplace(pool)
		}
	}
	return room
}

// placesForAll accepts every plan that has a place for each pod.
func placesForAll(nodes []*cluster.Node, plan solver.Plan) method.Verdict {
	if len(plan.Unfit) > 0 {
		free := method.Terms{Price: func(*cluster.Node) float64 { return 0 }}
		return method.Judge(nodes, plan, free)
	}
	return method.Verdict{Plan: plan}
}

// notUp keeps pods off nodes that are not there yet.
func notUp(node *cluster.Node) bool { return !node.Ready || node.Claim != nil && !node.Initialized }

// failed notes that replacements of an exchange did not come; succeeded that they did.
func (c *Controller) failed(e *exchange) {
	for _, node := range e.nodes {
		p := c.pauses[node.Pool]
		p.failures++
		p.until = c.Clock.Now().Add(min(driftPause<<min(p.failures-1, 10), maxDriftPause))
		c.pauses[node.Pool] = p
	}
}

func (c *Controller) succeeded(e *exchange) {
	for _, node := range e.nodes {
		delete(c.pauses, node.Pool)
	}
}

// workloads counts the pods of each controller, in all and on nodes that stay.
type workloads struct{ all, staying map[types.UID]int }

func (c *Controller) workloads(v *view) *workloads {
	w := &workloads{all: map[types.UID]int{}, staying: map[types.UID]int{}}
	for _, node := range v.snapshot.Nodes {
		count(w.all, node, 1)
		if !node.Deleting && !c.isOurs(node) {
			count(w.staying, node, 1)
		}
	}
	return w
}

func count(pods map[types.UID]int, node *cluster.Node, n int) {
	for _, pod := range node.Pods {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && candidate.IsReschedulable(pod) {
			pods[owner.UID] += n
		}
	}
}

func (w *workloads) leave(node *cluster.Node) { count(w.staying, node, -1) }

// wouldLeave reports whether some workload, of which other pods are on the move already, would have none
// left in place without the node.
func (w *workloads) wouldLeave(node *cluster.Node) bool {
	here := map[types.UID]int{}
	count(here, node, 1)
	for owner, n := range here {
		if w.staying[owner] <= n && w.all[owner] > n {
			return true
		}
	}
	return false
}
