package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	// eagerRounds collections come soon after the start, when a crash may have left something behind.
	eagerRounds = 20
	eagerPeriod = 10 * time.Second
	calmPeriod  = 2 * time.Minute
	// orphanAge is how old an instance must be before it can be taken for an orphan: a claim that is
	// just being launched has no provider ID yet.
	orphanAge = 30 * time.Second
)

// collect compares cloud and API until ctx ends.
func (c *Controller) collect(ctx context.Context) {
	for round := 0; ; round++ {
		period := calmPeriod
		if round < eagerRounds {
			period = eagerPeriod
		}
		timer := c.Clock.NewTimer(period)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		if err := c.collectOnce(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Comparing instances with NodeClaims failed, will retry")
		}
	}
}

// collectOnce lists the cloud first: a claim that is written later cannot be missing then.
func (c *Controller) collectOnce(ctx context.Context) error {
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodeclaims: %w", err)
	}
	ours := slices.DeleteFunc(slices.Clone(claims), func(claim *karpv1.NodeClaim) bool {
		ref := claim.Spec.NodeClassRef
		return ref == nil || ref.Group != c.options.NodeClassGroup
	})
	for _, instance := range orphans(instances, ours, c.Clock.Now()) {
		c.endOrphan(ctx, instance)
	}
	for _, claim := range c.lost(instances, ours) {
		// The list may be behind; the cloud's word about this very instance counts.
		if !c.instanceIsGone(ctx, claim) {
			continue
		}
		if err := c.delete(ctx, claim, "garbage_collected"); err != nil {
			return err
		}
	}
	return c.releaseStranded(ctx)
}

// releaseStranded lets deleted Nodes go that wait for a claim which does not exist any more.
func (c *Controller) releaseStranded(ctx context.Context) error {
	for _, object := range c.nodes.List() {
		node, ok := object.(*corev1.Node)
		if !ok || node.DeletionTimestamp == nil || !slices.Contains(node.Finalizers, karpv1.TerminationFinalizer) {
			continue
		}
		claims, err := c.byID.ByIndex(providerIndex, node.Spec.ProviderID)
		if err != nil {
			return fmt.Errorf("find the claim of node %s: %w", node.Name, err)
		}
		if len(claims) > 0 {
			continue
		}
		if err := c.changeNode(ctx, node, func(node *corev1.Node) { removeFinalizer(node) }); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove finalizer of node %s: %w", node.Name, err)
		}
		klog.FromContext(ctx).Info("Released a deleted Node whose NodeClaim is gone", "node", klog.KObj(node))
	}
	return nil
}

// orphans returns the instances that no claim owns, by provider ID, name or launch group.
func orphans(instances []*cloud.Instance, claims []*karpv1.NodeClaim, now time.Time) []*cloud.Instance {
	ids, pending, groups := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, claim := range claims {
		if claim.Status.ProviderID != "" {
			ids[claim.Status.ProviderID] = true
			continue
		}
		pending[claim.Name] = true
		if ref, err := cloud.ParseGroup(claim.Annotations[karpv1.AnnotationLaunchGroup], claim.Name); err == nil {
			groups[ref.ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(instances), func(i *cloud.Instance) bool {
		young := now.Sub(i.LaunchTime) < orphanAge
		return i.Terminating || young || ids[i.ProviderID] || pending[i.ClaimName] || (i.LaunchGroup != "" && groups[i.LaunchGroup])
	})
}

// endOrphan terminates the instance and removes its Node.
func (c *Controller) endOrphan(ctx context.Context, instance *cloud.Instance) {
	logger := klog.FromContext(ctx)
	stand := &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: instance.ProviderID}}
	stand.Name = instance.ClaimName
	if err := c.Cloud.Delete(ctx, stand); err != nil && !cloud.IsNotFound(err) {
		logger.Error(err, "Terminating an instance that no NodeClaim owns failed, will retry", "providerID", instance.ProviderID)
		return
	}
	c.metrics.orphans.Inc()
	logger.Info("Terminated an instance that no NodeClaim owns", "providerID", instance.ProviderID, "nodeClaim", instance.ClaimName)
	nodes, err := c.nodesOf(stand)
	if err != nil {
		logger.Error(err, "Finding the Node of an orphan failed", "providerID", instance.ProviderID)
		return
	}
	for _, node := range nodes {
		if err := c.deleteNode(ctx, node); err != nil {
			logger.Error(err, "Deleting the Node of an orphan failed", "node", klog.KObj(node))
			continue
		}
		if err := c.changeNode(ctx, node, func(node *corev1.Node) { removeFinalizer(node) }); err != nil {
			logger.Error(err, "Releasing the Node of an orphan failed", "node", klog.KObj(node))
		}
	}
}

// lost returns the registered claims whose instance is not in the cloud's list and whose Node is not
// Ready.
func (c *Controller) lost(instances []*cloud.Instance, claims []*karpv1.NodeClaim) []*karpv1.NodeClaim {
	living := map[string]bool{}
	for _, instance := range instances {
		living[instance.ProviderID] = true
	}
	return slices.DeleteFunc(slices.Clone(claims), func(claim *karpv1.NodeClaim) bool {
		if claim.DeletionTimestamp != nil || living[claim.Status.ProviderID] || !isTrue(claim, karpv1.ConditionRegistered) {
			return true
		}
		nodes, err := c.nodesOf(claim)
		return err != nil || slices.ContainsFunc(nodes, nodeReady)
	})
}
