package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/condition"
)

// writeAttempts bounds how often a write starts over after a conflict.
const writeAttempts = 4

func hasDisruptedTaint(taint corev1.Taint) bool { return taint.Key == karpv1.TaintKeyDisrupted }

// taint keeps new pods off the node.
func (c *Controller) taint(ctx context.Context, node *corev1.Node) error {
	return c.writeTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint {
		return append(slices.DeleteFunc(slices.Clone(taints), hasDisruptedTaint), karpv1.DisruptedNoScheduleTaint)
	})
}

// untaint takes the taint off again.
func (c *Controller) untaint(ctx context.Context, node *corev1.Node) error {
	return c.writeTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(slices.Clone(taints), hasDisruptedTaint)
	})
}

// writeTaints replaces the taints in the version that was read; a node that is gone or another one by
// now is an error.
func (c *Controller) writeTaints(ctx context.Context, node *corev1.Node, change func([]corev1.Taint) []corev1.Taint) error {
	nodes, uid := c.Kube.CoreV1().Nodes(), node.UID
	for attempt := 1; ; attempt++ {
		taints := change(node.Spec.Taints)
		if slices.Equal(taints, node.Spec.Taints) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": uid, "resourceVersion": node.ResourceVersion},
			"spec":     map[string]any{"taints": taints},
		})
		if err != nil {
			return fmt.Errorf("encode taints of node %s: %w", node.Name, err)
		}
		_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == writeAttempts {
			return fmt.Errorf("write taints of node %s: %w", node.Name, err)
		}
		name := node.Name
		if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get node %s: %w", name, err)
		}
		if node.UID != uid {
			return fmt.Errorf("node %s was replaced", name)
		}
	}
}

// writeStatus changes the conditions of a claim; change reports whether there is anything to write.
func (c *Controller) writeStatus(ctx context.Context, claim *karpv1.NodeClaim, change func(claim *karpv1.NodeClaim) bool) error {
	claims, uid := c.Karpenter.KarpenterV1().NodeClaims(), claim.UID
	for attempt := 1; ; attempt++ {
		changed := claim.DeepCopy()
		if !change(changed) {
			return nil
		}
		updated, err := claims.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if err == nil {
			for _, t := range condition.Transitions(claim.Status.Conditions, updated.Status.Conditions) {
				c.Events.Transition(updated, t.Before, t.Now)
			}
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == writeAttempts {
			return fmt.Errorf("write status of nodeclaim %s: %w", claim.Name, err)
		}
		if claim, err = claims.Get(ctx, changed.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get nodeclaim %s: %w", changed.Name, err)
		}
		if claim.UID != uid {
			return fmt.Errorf("nodeclaim %s was replaced", claim.Name)
		}
	}
}

// setTrue returns a change that sets the condition; an empty reason is the type.
func (c *Controller) setTrue(kind, reason string) func(*karpv1.NodeClaim) bool {
	return func(claim *karpv1.NodeClaim) bool {
		return condition.Set(&claim.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: reason, ObservedGeneration: claim.Generation,
		}, c.Clock.Now())
	}
}

// remove returns a change that takes the condition out.
func remove(kind string) func(*karpv1.NodeClaim) bool {
	return func(claim *karpv1.NodeClaim) bool { return condition.Remove(&claim.Status.Conditions, kind) }
}

// clearReason takes the reason of a removal off the claim.
func (c *Controller) clearReason(ctx context.Context, claim *karpv1.NodeClaim) error {
	if meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDisruptionReason) == nil {
		return nil
	}
	return c.writeStatus(ctx, claim, remove(karpv1.ConditionDisruptionReason))
}
