package nodepool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/condition"
	"github.com/berth-dev/berth/provisioner/poolhash"
)

// dependents of a NodePool's Ready condition.
var dependents = []string{karpv1.ConditionValidationSucceeded, karpv1.ConditionNodeClassReady}

// reconcile brings the annotations and the status of one pool up to date.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	pool, err := c.pools.Get(name)
	if apierrors.IsNotFound(err) {
		c.registrations.forget(name)
		c.due.Delete(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get nodepool %s: %w", name, err)
	}
	if !c.manages(pool) {
		return nil
	}
	if pool, err = c.stamp(ctx, pool); err != nil {
		return err
	}
	if err := c.writeStatus(ctx, pool); err != nil {
		return err
	}
	c.due.Delete(name)
	return nil
}

// writeStatus computes the status and writes it when it changed; a conflict starts over from the
// version that the API server has.
func (c *Controller) writeStatus(ctx context.Context, pool *karpv1.NodePool) error {
	pools := c.Karpenter.KarpenterV1().NodePools()
	for attempt := 0; ; attempt++ {
		changed := pool.DeepCopy()
		if err := c.assess(changed); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(pool.Status, changed.Status) {
			return nil
		}
		updated, err := pools.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			for _, t := range condition.Transitions(pool.Status.Conditions, updated.Status.Conditions) {
				if !isAdvice(t.Now.Type) {
					c.Events.Transition(updated, t.Before, t.Now)
				}
			}
			c.warn(pool, updated)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || attempt == 3:
			return fmt.Errorf("write status of nodepool %s: %w", pool.Name, err)
		}
		if pool, err = pools.Get(ctx, pool.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get nodepool %s: %w", changed.Name, err)
		}
	}
}

// assess brings the status of the pool, a copy, up to date.
func (c *Controller) assess(pool *karpv1.NodePool) error {
	now, conds := c.Clock.Now(), &pool.Status.Conditions
	condition.Init(conds, karpv1.ConditionReady, dependents, pool.CreationTimestamp.Time)
	set := func(cond metav1.Condition) {
		cond.ObservedGeneration = pool.Generation
		condition.Set(conds, cond, now)
	}
	valid := metav1.Condition{Type: karpv1.ConditionValidationSucceeded, Status: metav1.ConditionTrue}
	if err := Validate(pool); err != nil {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, karpv1.ReasonNodePoolValidationFailed, err.Error()
	}
	set(valid)
	ref := pool.Spec.Template.Spec.NodeClassRef
	class, err := c.Classes.Get(ref)
	if err != nil {
		return fmt.Errorf("get %s %s of nodepool %s: %w", ref.Kind, ref.Name, pool.Name, err)
	}
	set(readiness(ref, class))
	set(c.registrationHealth(pool, class))
	condition.Roll(conds, karpv1.ConditionReady, dependents, pool.Generation, now)
	// Before the model is synced the counts would be too low; between refreshes they stay as they are,
	// or every new node would be a write.
	_, due := c.due.Load(pool.Name)
	if c.State.Synced() && (due || len(pool.Status.Resources) == 0) {
		pool.Status.Resources = usage(c.State.Snapshot(), pool.Name)
		nodes := pool.Status.Resources[karpv1.ResourceNodes]
		pool.Status.Nodes = nodes.Value()
	}
	c.advise(pool, class, set)
	return nil
}

// registrationHealth judges the latest launches of the pool. A change of the pool or its class starts
// over: what was launched before says nothing about it.
func (c *Controller) registrationHealth(pool *karpv1.NodePool, class Class) metav1.Condition {
	stored := meta.FindStatusCondition(pool.Status.Conditions, karpv1.ConditionNodeRegistrationHealthy)
	unknown := metav1.Condition{
		Type: karpv1.ConditionNodeRegistrationHealthy, Status: metav1.ConditionUnknown,
		Reason: karpv1.ReasonAwaitingReconciliation, Message: karpv1.MessageAwaitingReconciliation,
	}
	classChanged := class.Found && class.Generation != pool.Status.NodeClassObservedGeneration
	if class.Found {
		pool.Status.NodeClassObservedGeneration = class.Generation
	}
	if stored != nil && (classChanged || stored.ObservedGeneration != pool.Generation) {
		c.registrations.reset(pool.Name, pool.UID)
		return unknown
	}
	status := metav1.ConditionUnknown
	if stored != nil {
		status = stored.Status
	}
	if verdict, ok := c.registrations.of(pool.Name, pool.UID, status).condition(); ok {
		return verdict
	}
	return unknown
}

// usage is what counts against the pool's limits, with every resource that people look for.
func usage(snapshot *cluster.Snapshot, pool string) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("0"), corev1.ResourceMemory: resource.MustParse("0"),
		corev1.ResourcePods: resource.MustParse("0"), corev1.ResourceEphemeralStorage: resource.MustParse("0"),
		karpv1.ResourceNodes: resource.MustParse("0"),
	}
	maps.Copy(list, snapshot.PoolUsage[pool].ToList())
	return list
}

func sameUsage(status karpv1.NodePoolStatus, want corev1.ResourceList) bool {
	nodes := want[karpv1.ResourceNodes]
	return status.Nodes == nodes.Value() && equality.Semantic.DeepEqual(status.Resources, want)
}

// stamp keeps the hash of the template on the pool, and returns the pool as it is then. When the pool
// was stamped with another version of the hash, its claims go first: they take the new version, and,
// unless they have drifted already, the new hash with it. So no node drifts for a takeover.
func (c *Controller) stamp(ctx context.Context, pool *karpv1.NodePool) (*karpv1.NodePool, error) {
	hash := poolhash.Hash(pool)
	if !isCurrent(pool.Annotations) {
		if err := c.stampClaims(ctx, pool.Name, hash); err != nil {
			return nil, err
		}
	} else if pool.Annotations[karpv1.AnnotationNodePoolHash] == hash {
		return pool, nil
	}
	patch, err := stampPatch(pool.UID, &hash)
	if err != nil {
		return nil, err
	}
	stamped, err := c.Karpenter.KarpenterV1().NodePools().Patch(ctx, pool.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("write hash of nodepool %s: %w", pool.Name, err)
	}
	return stamped, nil
}

func isCurrent(annotations map[string]string) bool {
	return annotations[karpv1.AnnotationNodePoolHashVersion] == poolhash.HashVersion
}

// stampClaims asks the API server and not the cache: it must not miss a claim.
func (c *Controller) stampClaims(ctx context.Context, pool, hash string) error {
	claims := c.Karpenter.KarpenterV1().NodeClaims()
	list, err := claims.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{karpv1.LabelNodePool: pool}.String()})
	if err != nil {
		return fmt.Errorf("list nodeclaims of nodepool %s: %w", pool, err)
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if isCurrent(claim.Annotations) {
			continue
		}
		stamp := &hash
		if meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDrifted) != nil {
			stamp = nil
		}
		patch, err := stampPatch(claim.UID, stamp)
		if err != nil {
			return err
		}
		_, err = claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write hash of nodeclaim %s: %w", claim.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Took over the hash of a NodeClaim", "nodeClaim", klog.KObj(claim))
	}
	return nil
}

// stampPatch writes the version and, unless nil, the hash, on the object with the UID only.
func stampPatch(uid types.UID, hash *string) ([]byte, error) {
	annotations := map[string]string{karpv1.AnnotationNodePoolHashVersion: poolhash.HashVersion}
	if hash != nil {
		annotations[karpv1.AnnotationNodePoolHash] = *hash
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": annotations}})
	if err != nil {
		return nil, fmt.Errorf("encode hash annotations: %w", err)
	}
	return patch, nil
}
