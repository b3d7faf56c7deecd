package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/budget"
	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// reasonUnhealthy is why a node is given up that does not work. No budget names it: it is not by choice.
const reasonUnhealthy karpv1.DisruptionReason = "Unhealthy"

// repairRetry is how long an ailing node waits after the breaker kept it: nodes that ail together often
// recover together, and are given that time.
const repairRetry = 5 * time.Minute

// repair gives up nodes that have ailed for as long as the provider tolerates: their pods are deleted at
// once, whatever budgets and annotations say, since nothing on such a node can be trusted to run. When too
// many nodes of a pool ail, the cause lies elsewhere, and none is given up.
func (c *Controller) repair(ctx context.Context, v *view) {
	if len(c.Repairs) == 0 {
		return
	}
	health := method.HealthOf(v.nodes, c.Repairs, v.now)
	for _, node := range v.nodes {
		if node.Node == nil || node.Claim.DeletionTimestamp != nil || c.deleted[node.Claim.UID] {
			continue
		}
		ailing, ails := method.Ails(node.Node, c.Repairs)
		if !ails || v.now.Before(ailing.Due) || v.now.Before(c.repairHeld[node.Claim.UID]) {
			continue
		}
		if why := c.tooMany(node, health[node.Pool]); why != "" {
			c.repairHeld[node.Claim.UID] = v.now.Add(repairRetry)
			c.Events.NodeRepairBlocked(node.Node, why)
			klog.FromContext(ctx).Info("Node ails and is kept", "node", node.Name, "condition", ailing.Condition, "status", ailing.Status, "why", why)
			continue
		}
		c.giveUp(ctx, v, node, ailing)
	}
}

// tooMany says why the breaker keeps the node, "" when it does not.
func (c *Controller) tooMany(node *cluster.Node, health method.Health) string {
	allowed, err := budget.Share(c.options.MaxUnhealthy, health.Total)
	if err == nil && health.Ailing <= allowed {
		return ""
	}
	where := "the cluster"
	if node.Pool != "" {
		where = fmt.Sprintf("NodePool %q", node.Pool)
	}
	return fmt.Sprintf("%d of %d nodes of %s are unhealthy, more than %s, so none is replaced; look for a cause that they share, such as network or control plane",
		health.Ailing, health.Total, where, c.options.MaxUnhealthy)
}

// giveUp deletes the claim of a node with the demand to force its termination from now on. The demand is
// written first: a crash in between is made up for by the next look.
func (c *Controller) giveUp(ctx context.Context, v *view, node *cluster.Node, ailing method.Ailing) {
	logger := klog.FromContext(ctx).WithValues("node", node.Name, "nodeClaim", node.ClaimName)
	err := c.forceFromNow(ctx, node.Claim, v.now)
	if err == nil {
		err = c.deleteClaim(ctx, node.Claim)
	}
	if err != nil {
		logger.Error(err, "Giving up an unhealthy node failed, will retry")
		return
	}
	c.deleted[node.Claim.UID] = true
	logger.Info("Deleted NodeClaim of unhealthy node", "condition", ailing.Condition, "status", ailing.Status, "due", ailing.Due)
	c.Events.DisruptionTerminating(node.Node, string(reasonUnhealthy))
	c.Events.DisruptionTerminating(node.Claim, string(reasonUnhealthy))
	c.metrics.countRemoved(node.Claim, v.pools[node.Pool], reasonUnhealthy)
	c.metrics.countRepaired(node.Claim, ailing.Condition)
}

// forceFromNow sets the claim's termination deadline to now. One that has passed already stays.
func (c *Controller) forceFromNow(ctx context.Context, claim *karpv1.NodeClaim, now time.Time) error {
	key := karpv1.AnnotationTerminationTimestamp
	if at, err := time.Parse(time.RFC3339, claim.Annotations[key]); err == nil && !at.After(now) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "annotations": map[string]string{key: now.UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return fmt.Errorf("encode termination deadline: %w", err)
	}
	if _, err = c.Karpenter.KarpenterV1().NodeClaims().Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write termination deadline of nodeclaim %s: %w", claim.Name, err)
	}
	return nil
}
