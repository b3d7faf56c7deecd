package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/budget"
	"github.com/berth-dev/berth/disruption/candidate"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// parallel is how many nodes are removed side by side; each takes a handful of API calls.
const parallel = 8

// removeEmpty removes the empty nodes that may go now.
func (c *Controller) removeEmpty(ctx context.Context, v *view) {
	chosen := c.waited(v, c.choose(ctx, v))
	if len(chosen) == 0 {
		return
	}
	var wg sync.WaitGroup
	var removed atomic.Int64
	slots := make(chan struct{}, parallel)
	for _, node := range chosen {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if c.remove(ctx, node, v.pools[node.Pool]) {
				removed.Add(1)
			}
		})
	}
	wg.Wait()
	if removed.Load() > 0 {
		c.metrics.decisions.WithLabelValues("delete", "empty", "empty").Inc()
	}
}

// choose returns the empty nodes that may be removed, dear ones first, within their pools' budgets.
func (c *Controller) choose(ctx context.Context, v *view) []*cluster.Node {
	limits, err := c.limits()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Nothing is removed in this round")
		return nil
	}
	var empty []*cluster.Node
	for _, node := range v.nodes {
		if pool := v.pools[node.Pool]; isDueEmpty(node, pool, v) && c.mayTry(node, v.now) && candidate.Blocked(node, pool, limits, v.now) == "" {
			empty = append(empty, node)
		}
	}
	if len(empty) == 0 {
		return nil
	}
	price := func(*cluster.Node) float64 { return 0 }
	if c.Price != nil {
		price = c.Price
	}
	slices.SortStableFunc(empty, func(a, b *cluster.Node) int { return cmp.Compare(price(b), price(a)) }) // all cost the same to move
	left := c.budgetsLeft(v, karpv1.DisruptionReasonEmpty)
	return slices.DeleteFunc(empty, func(node *cluster.Node) bool {
		left[node.Pool]--
		return left[node.Pool] < 0
	})
}

// isDueEmpty reports whether the node is empty and has been quiet for long enough.
func isDueEmpty(node *cluster.Node, pool *karpv1.NodePool, v *view) bool {
	if pool == nil || !candidate.IsEmpty(node) {
		return false
	}
	quiet, _ := candidate.IsConsolidatable(node.Claim, pool, v.now)
	return quiet
}

func (c *Controller) limits() (*candidate.Limits, error) {
	pdbs, err := c.pdbs.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list poddisruptionbudgets: %w", err)
	}
	return candidate.NewLimits(pdbs), nil
}

// counts are the nodes that budgets look at; nodes of running commands are on their way out even when
// the snapshot does not say so yet.
func (c *Controller) counts(nodes []*cluster.Node) map[string]budget.Counts {
	seen := slices.Clone(nodes)
	for i, node := range seen {
		if !node.Deleting && c.isOurs(node) {
			leaving := *node
			leaving.Deleting = true
			seen[i] = &leaving
		}
	}
	return budget.Count(seen)
}

// budgetsLeft says how many more nodes of each pool may go now for the reason. Faulty budgets let none
// go; report logs them.
func (c *Controller) budgetsLeft(v *view, reason karpv1.DisruptionReason) map[string]int {
	counts, left := c.counts(v.nodes), make(map[string]int, len(v.pools))
	for name, pool := range v.pools {
		allowed, _ := budget.Allowed(pool, reason, counts[name].Total, v.now)
		left[name] = budget.Remaining(allowed, counts[name])
	}
	return left
}

// waited keeps the nodes that could have gone for the validation delay without a break.
func (c *Controller) waited(v *view, nodes []*cluster.Node) []*cluster.Node {
	if c.options.ValidationDelay <= 0 {
		return nodes
	}
	since := c.chosen
	c.chosen = make(map[string]time.Time, len(nodes))
	return slices.DeleteFunc(nodes, func(node *cluster.Node) bool {
		key := string(node.Claim.UID)
		first, ok := since[key]
		if !ok {
			first = v.now
		}
		c.chosen[key] = first
		return v.now.Sub(first) < c.options.ValidationDelay
	})
}

// errKept wraps why a chosen node stays after all.
var errKept = errors.New("node stays")

func kept(why string) error { return fmt.Errorf("%w: %s", errKept, why) }

// remove takes one empty node out and reports whether it did. It hides the node, looks at it again,
// marks it, asks the API server whether a pod is there, and deletes the claim; when a step says no,
// it takes all of that back.
func (c *Controller) remove(ctx context.Context, node *cluster.Node, pool *karpv1.NodePool) bool {
	logger := klog.FromContext(ctx).WithValues("node", node.Name, "nodeClaim", node.ClaimName, "nodePool", pool.Name)
	if err := c.Hider.Hide(node.Name); err != nil {
		logger.V(2).Info("Empty node takes a pod and stays", "reason", err.Error())
		return false
	}
	c.begin(node)
	err := c.verifyAndDelete(ctx, node)
	if err == nil {
		logger.Info("Deleting NodeClaim of empty node", "reason", karpv1.DisruptionReasonEmpty)
		c.Events.DisruptionTerminating(node.Node, string(karpv1.DisruptionReasonEmpty))
		c.Events.DisruptionTerminating(node.Claim, string(karpv1.DisruptionReasonEmpty))
		c.metrics.countRemoved(node.Claim, pool, karpv1.DisruptionReasonEmpty)
		return true
	}
	if errors.Is(err, errKept) {
		logger.V(2).Info("Empty node was given back", "reason", err.Error())
	} else {
		logger.Error(err, "Removing empty node failed, it is given back")
	}
	c.giveBack(ctx, node)
	return false
}

func (c *Controller) verifyAndDelete(ctx context.Context, chosen *cluster.Node) error {
	node, err := c.lookAgain(chosen)
	if err != nil {
		return err
	}
	if err := c.taint(ctx, node.Node); err != nil {
		return err
	}
	if err := c.writeStatus(ctx, node.Claim, func(claim *karpv1.NodeClaim) bool {
		consolidatable := c.setTrue(karpv1.ConditionConsolidatable, "")(claim)
		return c.setTrue(karpv1.ConditionDisruptionReason, string(karpv1.DisruptionReasonEmpty))(claim) || consolidatable
	}); err != nil {
		return err
	}
	if err := c.lookAtPods(ctx, node); err != nil {
		return err
	}
	return c.deleteClaim(ctx, node.Claim)
}

// deleteClaim deletes this very claim. When the call failed it asks whether it took effect all the same:
// a node that is on its way out must not be given back.
func (c *Controller) deleteClaim(ctx context.Context, claim *karpv1.NodeClaim) error {
	claims, uid := c.Karpenter.KarpenterV1().NodeClaims(), claim.UID
	err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	live, getErr := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(getErr) || (getErr == nil && (live.UID != uid || live.DeletionTimestamp != nil)) {
		return nil
	}
	return fmt.Errorf("delete nodeclaim %s: %w", claim.Name, err)
}

// lookAgain checks the node on a snapshot that was taken after it was hidden, and the budget with it.
func (c *Controller) lookAgain(chosen *cluster.Node) (*cluster.Node, error) {
	v, err := c.view(c.Clock.Now())
	if err != nil {
		return nil, err
	}
	node := v.find(chosen.Name, chosen.Claim.UID)
	if node == nil {
		return nil, kept("it is gone")
	}
	pool := v.pools[node.Pool]
	if why := candidate.BlockedChosen(node, pool); why != "" {
		return nil, kept(why)
	}
	if !isDueEmpty(node, pool, v) {
		return nil, kept("it is not empty any more")
	}
	counts := c.counts(v.nodes)[node.Pool] // with this node
	allowed, err := budget.Allowed(pool, karpv1.DisruptionReasonEmpty, counts.Total, v.now)
	if err != nil {
		return nil, fmt.Errorf("read budgets of nodepool %s: %w", pool.Name, err)
	}
	if counts.Disrupting > allowed {
		return nil, kept("the budget of its pool is used up")
	}
	return node, nil
}

// lookAtPods asks the API server, past every cache, for the pods on the node, and once more for those
// that it was promised to: a plan from before the node was hidden may have counted on it.
func (c *Controller) lookAtPods(ctx context.Context, node *cluster.Node) error {
	list, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(),
	})
	if err != nil {
		return fmt.Errorf("list pods on node %s: %w", node.Name, err)
	}
	live := *node
	live.Pods = nil
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Spec.NodeName == node.Name {
			live.Pods = append(live.Pods, pod)
		}
	}
	if !candidate.IsEmpty(&live) {
		return kept("a pod has come meanwhile")
	}
	limits, err := c.limits()
	if err != nil {
		return err
	}
	if why := candidate.BlockedByPods(live.Pods, limits, c.Clock.Now()); why != "" {
		return kept(why)
	}
	v, err := c.view(c.Clock.Now())
	if err != nil {
		return err
	}
	if now := v.find(node.Name, node.Claim.UID); now != nil && len(now.Promised) > 0 {
		return kept("a pod was promised to it meanwhile")
	}
	return nil
}

// giveBack makes the node a target again. What cannot be written now is cleaned up by later rounds.
func (c *Controller) giveBack(ctx context.Context, node *cluster.Node) {
	err := errors.Join(c.untaintLive(ctx, node.Node), c.clearReasonLive(ctx, node.Claim))
	c.end(node)
	c.Hider.Unhide(node.Name)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Giving a node back failed in part, will clean up", "node", klog.KObj(node.Node))
	}
}

// untaintLive and clearReasonLive read first: the versions at hand are from before the marks were set.
func (c *Controller) untaintLive(ctx context.Context, node *corev1.Node) error {
	live, err := c.Kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && live.UID != node.UID) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", node.Name, err)
	}
	return c.untaint(ctx, live)
}

func (c *Controller) clearReasonLive(ctx context.Context, claim *karpv1.NodeClaim) error {
	live, err := c.Karpenter.KarpenterV1().NodeClaims().Get(ctx, claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && live.UID != claim.UID) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get nodeclaim %s: %w", claim.Name, err)
	}
	return c.clearReason(ctx, live)
}
