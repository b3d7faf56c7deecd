package disruption

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/budget"
	"github.com/berth-dev/berth/disruption/candidate"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// marksPerRound bounds the writes of Consolidatable in one round, so that removal is not kept waiting.
const marksPerRound = 50

// markConsolidatable brings the Consolidatable condition of the claims up to date. Choosing nodes does
// not need it; people and dashboards do.
func (c *Controller) markConsolidatable(ctx context.Context, v *view) {
	writes := 0
	for _, node := range v.nodes {
		if node.Claim.DeletionTimestamp != nil || c.isOurs(node) {
			continue
		}
		quiet := false
		if pool := v.pools[node.Pool]; pool != nil {
			quiet, _ = candidate.IsConsolidatable(node.Claim, pool, v.now)
		}
		change := remove(karpv1.ConditionConsolidatable)
		if quiet {
			change = c.setTrue(karpv1.ConditionConsolidatable, "")
		}
		have := meta.FindStatusCondition(node.Claim.Status.Conditions, karpv1.ConditionConsolidatable)
		if quiet == (have != nil && have.Status == metav1.ConditionTrue) && (quiet || have == nil) {
			continue
		}
		writes++
		if err := c.writeStatus(ctx, node.Claim, change); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Writing Consolidatable failed, will retry", "nodeClaim", klog.KObj(node.Claim))
		}
		if writes == marksPerRound || ctx.Err() != nil {
			return
		}
	}
}

// report tells what keeps nodes: budgets that cannot be read or allow nothing, and checks that refuse.
func (c *Controller) report(ctx context.Context, v *view) {
	counts := c.counts(v.nodes)
	c.metrics.keepPools(v.pools)
	for name, pool := range v.pools {
		for _, reason := range []karpv1.DisruptionReason{
			karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonUnderutilized, karpv1.DisruptionReasonDrifted,
		} {
			allowed, err := budget.Allowed(pool, reason, counts[name].Total, v.now)
			c.metrics.setBudget(name, reason, allowed, counts[name].Disrupting)
			if reason != karpv1.DisruptionReasonEmpty && c.Planner == nil {
				continue // nothing is disrupted for it, so nothing is blocked
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "Disruption budget cannot be read, the pool's nodes are kept", "nodePool", klog.KObj(pool))
			}
			if at, gap := budget.Gap(pool, reason, v.now); gap && pool.Spec.Replicas == nil {
				c.Events.BudgetGap(pool, string(reason), budget.GapText(reason, at))
			}
			if allowed == 0 && counts[name].Total > 0 {
				c.Events.BudgetBlocks(pool, string(reason))
			}
		}
	}
	limits, err := c.limits()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Blocked nodes are not reported in this round")
		return
	}
	for _, node := range v.nodes {
		if !c.isOurs(node) {
			c.reportNode(node, v, limits)
		}
	}
}

func (c *Controller) reportNode(node *cluster.Node, v *view, limits *candidate.Limits) {
	pool := v.pools[node.Pool]
	if why := candidate.Blocked(node, pool, limits, v.now); why != "" {
		if node.Node != nil {
			c.Events.DisruptionBlocked(node.Node, why)
		}
		c.Events.DisruptionBlocked(node.Claim, why)
		return
	}
	if pool.Spec.Disruption.ConsolidateAfter.Duration == nil && pool.Spec.Replicas == nil {
		why := fmt.Sprintf("NodePool %q has consolidation disabled", pool.Name)
		c.Events.Unconsolidatable(node.Node, why)
		c.Events.Unconsolidatable(node.Claim, why)
	}
}
