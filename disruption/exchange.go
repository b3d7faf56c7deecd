package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/budget"
	"github.com/berth-dev/berth/disruption/candidate"
	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

// reasonExpired is why a node goes before its deadline. Budgets cannot name it: those without reasons count.
const reasonExpired karpv1.DisruptionReason = "Expired"

// proposal is nodes that should go together.
type proposal struct {
	nodes  []*cluster.Node
	reason karpv1.DisruptionReason
	kind   string // of consolidation: multi, single, or ""
	// judge says whether the plan for their pods is worth it, and narrows it.
	judge func(nodes []*cluster.Node, plan solver.Plan) method.Verdict
	// shun says which nodes must not take the pods.
	shun func(*cluster.Node) bool
	// static: the nodes are of a static pool, and each is replaced by one like it, without a plan for pods.
	static bool
}

// exchange is a proposal that is being carried out: its nodes are hidden and tainted, the places of their
// pods are kept, and they are deleted when the new nodes are there.
type exchange struct {
	proposal
	plan         solver.Plan
	replacements []string // names of claims
	since        time.Time
	seen         map[string]bool // replacements that a snapshot has shown
}

// showTime is how long a claim may take to show in a snapshot after it was written.
const showTime = 30 * time.Second

// start carries a proposal out as far as it goes at once, and reports whether it did. The nodes are hidden
// before anything is decided for good, so that no pod can land on them meanwhile; what a check refuses is
// given back.
func (c *Controller) start(ctx context.Context, p proposal) bool {
	logger := klog.FromContext(ctx).WithValues("nodes", names(p.nodes), "reason", p.reason)
	var hidden []*cluster.Node
	undo := func() {
		for _, node := range hidden {
			c.giveBack(ctx, node)
		}
	}
	for _, node := range p.nodes {
		if err := c.Hider.Hide(node.Name); err != nil {
			logger.V(2).Info("Node takes a pod and stays", "node", node.Name, "reason", err.Error())
			undo()
			return false
		}
		c.begin(node)
		hidden = append(hidden, node)
	}
	e, err := c.decide(ctx, p)
	if err != nil {
		c.metrics.rejected.WithLabelValues(p.kind).Inc()
		if errors.Is(err, errKept) {
			logger.V(2).Info("Nodes were given back", "why", err.Error())
			c.rejectedEvent(p, err)
		} else {
			logger.Error(err, "Disrupting nodes failed, they are given back")
		}
		undo()
		return false
	}
	decision := "delete"
	if len(e.replacements) > 0 {
		decision = "replace"
	}
	c.metrics.decisions.WithLabelValues(decision, strings.ToLower(string(p.reason)), p.kind).Inc()
	logger.Info("Disrupting nodes", "decision", decision, "replacements", e.replacements, "pods", len(moved(e.plan)))
	c.exchanges = append(c.exchanges, e)
	c.advance(ctx, c.State.Snapshot())
	return true
}

// decide looks at the hidden nodes again, plans for their pods with the scheduler's filters, marks the
// nodes and launches what replaces them.
func (c *Controller) decide(ctx context.Context, p proposal) (*exchange, error) {
	world := c.Planner.World(ctx)
	v, err := c.viewOf(world.Snapshot(), c.Clock.Now())
	if err != nil {
		return nil, err
	}
	nodes, err := c.again(v, p)
	if err != nil {
		return nil, err
	}
	verdict := method.Verdict{}
	if !p.static {
		verdict = p.judge(nodes, world.Without(ctx, nodes, p.shun, true))
	}
	if verdict.Why != "" {
		return nil, kept(verdict.Why)
	}
	for _, node := range nodes {
		if err := c.mark(ctx, node, p.reason); err != nil {
			return nil, err
		}
	}
	for _, node := range nodes {
		if err := c.podsAgain(ctx, node, p.reason, verdict.Plan); err != nil {
			return nil, err
		}
	}
	var replacements []string
	if p.static {
		replacements, err = c.replaceOne(ctx, p)
	} else {
		replacements, err = c.Planner.Carry(ctx, verdict.Plan, strings.ToLower(string(p.reason)))
	}
	if err != nil {
		return nil, fmt.Errorf("launch replacements: %w", err)
	}
	p.nodes = nodes
	return &exchange{proposal: p, plan: verdict.Plan, replacements: replacements, since: c.Clock.Now(), seen: map[string]bool{}}, nil
}

// again finds the nodes on a newer snapshot, with the budgets that they are part of by now.
func (c *Controller) again(v *view, p proposal) ([]*cluster.Node, error) {
	limits, err := c.limits()
	if err != nil {
		return nil, err
	}
	counts := c.counts(v.nodes)
	var nodes []*cluster.Node
	for _, chosen := range p.nodes {
		node := v.find(chosen.Name, chosen.Claim.UID)
		if node == nil {
			return nil, kept("node " + chosen.Name + " is gone")
		}
		pool := v.pools[node.Pool]
		if why := blockedFor(p.reason, node, pool, limits, v.now); why != "" {
			return nil, kept(why)
		}
		allowed, err := budget.Allowed(pool, p.reason, counts[node.Pool].Total, v.now)
		if err != nil {
			return nil, fmt.Errorf("read budgets of nodepool %s: %w", pool.Name, err)
		}
		if counts[node.Pool].Disrupting > allowed {
			return nil, kept("the budget of nodepool " + pool.Name + " is used up")
		}
		if p.reason == karpv1.DisruptionReasonUnderutilized {
			if quiet, _ := candidate.IsConsolidatable(node.Claim, pool, v.now); !quiet {
				return nil, kept("pods have come to or left node " + node.Name)
			}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// blockedFor is candidate.Blocked for a node that is hidden already. Pods do not keep a node from being
// replaced for drift or age when its grace period ends their say.
func blockedFor(reason karpv1.DisruptionReason, node *cluster.Node, pool *karpv1.NodePool, limits *candidate.Limits, now time.Time) string {
	if why := candidate.BlockedChosen(node, pool); why != "" {
		return why
	}
	if isEventual(reason) && node.Claim.Spec.TerminationGracePeriod != nil {
		return ""
	}
	return candidate.BlockedByPods(node.Pods, limits, now)
}

// isEventual reports whether a method replaces nodes that will have to go in the end.
func isEventual(reason karpv1.DisruptionReason) bool {
	return reason == karpv1.DisruptionReasonDrifted || reason == reasonExpired
}

// mark taints the node and says why on its claim.
func (c *Controller) mark(ctx context.Context, node *cluster.Node, reason karpv1.DisruptionReason) error {
	if err := c.taint(ctx, node.Node); err != nil {
		return err
	}
	return c.writeStatus(ctx, node.Claim, c.setTrue(karpv1.ConditionDisruptionReason, string(reason)))
}

// podsAgain asks the API server, past every cache, whether the plan has all pods of the tainted node.
func (c *Controller) podsAgain(ctx context.Context, node *cluster.Node, reason karpv1.DisruptionReason, plan solver.Plan) error {
	list, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(),
	})
	if err != nil {
		return fmt.Errorf("list pods on node %s: %w", node.Name, err)
	}
	known := map[types.UID]bool{}
	for _, pod := range node.Pods {
		known[pod.UID] = true
	}
	live := *node
	live.Pods = nil
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != node.Name {
			continue
		}
		live.Pods = append(live.Pods, pod)
		if candidate.IsReschedulable(pod) && !known[pod.UID] {
			return kept(fmt.Sprintf("pod %s/%s has come to node %s meanwhile", pod.Namespace, pod.Name, node.Name))
		}
	}
	limits, err := c.limits()
	if err != nil {
		return err
	}
	if isEventual(reason) && node.Claim.Spec.TerminationGracePeriod != nil {
		return nil
	}
	if why := candidate.BlockedByPods(live.Pods, limits, c.Clock.Now()); why != "" {
		return kept(why)
	}
	return nil
}

// advance looks at every exchange: nodes whose replacements are ready are deleted, and exchanges that
// have lost a replacement or take too long are taken back.
func (c *Controller) advance(ctx context.Context, snapshot *cluster.Snapshot) {
	byClaim := make(map[string]*cluster.Node, len(snapshot.Nodes))
	for _, node := range snapshot.Nodes {
		if node.ClaimName != "" {
			byClaim[node.ClaimName] = node
		}
	}
	open := c.exchanges[:0:0]
	for _, e := range c.exchanges {
		switch why := c.step(ctx, e, byClaim); why {
		case waiting:
			open = append(open, e)
		case done:
			c.succeeded(e)
		default:
			klog.FromContext(ctx).Info("Nodes are not replaced after all, they are given back", "nodes", names(e.nodes), "reason", e.reason, "why", why)
			c.Planner.Forget(e.plan)
			for _, node := range e.nodes {
				c.giveBack(ctx, node)
			}
			c.metrics.failed.WithLabelValues("replace", strings.ToLower(string(e.reason)), e.kind).Inc()
			c.failed(e)
		}
	}
	c.exchanges = open
}

// What step says of an exchange besides why it failed.
const (
	waiting = ""
	done    = "done"
)

func (c *Controller) step(ctx context.Context, e *exchange, byClaim map[string]*cluster.Node) string {
	now := c.Clock.Now()
	for _, name := range e.replacements {
		node := byClaim[name]
		if node != nil {
			e.seen[name] = true
		}
		switch {
		case node == nil && !e.seen[name] && now.Sub(e.since) < showTime:
			return waiting
		case node == nil || node.Claim != nil && node.Claim.DeletionTimestamp != nil:
			return "replacement " + name + " is gone: the cloud had no capacity, or the node never came"
		case node.Initialized:
		case now.Sub(e.since) > c.patience():
			return "replacement " + name + " did not become ready in time"
		default:
			if node.Claim != nil {
				c.Events.DisruptionWaiting(node.Claim)
			}
			return waiting
		}
	}
	left := false
	for _, node := range e.nodes {
		if err := c.deleteClaim(ctx, node.Claim); err != nil {
			klog.FromContext(ctx).Error(err, "Deleting a replaced NodeClaim failed, will retry", "nodeClaim", node.ClaimName)
			left = true
			continue
		}
		c.Events.DisruptionTerminating(node.Node, string(e.reason))
		c.Events.DisruptionTerminating(node.Claim, string(e.reason))
		if pool, err := c.pools.Get(node.Pool); err == nil {
			c.metrics.countRemoved(node.Claim, pool, e.reason)
		}
	}
	if left {
		return waiting
	}
	return done
}

// patience is how long replacements may take: 10 minutes, more when many nodes are under way.
func (c *Controller) patience() time.Duration {
	count := 0
	for _, e := range c.exchanges {
		count += len(e.nodes)
	}
	return min(max(80*time.Millisecond*time.Duration(count), 10*time.Minute), time.Hour)
}

func (c *Controller) rejectedEvent(p proposal, err error) {
	if p.reason != karpv1.DisruptionReasonUnderutilized {
		for _, node := range p.nodes {
			c.Events.DisruptionBlocked(node.Node, err.Error())
			c.Events.DisruptionBlocked(node.Claim, err.Error())
		}
		return
	}
	for _, node := range p.nodes {
		c.Events.ConsolidationRejected(node.Node, err.Error())
		c.Events.ConsolidationRejected(node.Claim, err.Error())
	}
}

func names(nodes []*cluster.Node) []string {
	out := make([]string, len(nodes))
	for i, node := range nodes {
		out[i] = node.Name
	}
	return out
}

// moved are the pods that the plan finds places for.
func moved(plan solver.Plan) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, placement := range plan.Existing {
		pods = append(pods, placement.Pod)
	}
	for _, claim := range plan.Claims {
		pods = append(pods, claim.Pods...)
	}
	return slices.Clip(pods)
}
