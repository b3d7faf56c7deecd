package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	drainRetry = time.Second
	// instanceRetry is how often the cloud is asked whether the instance is gone. EC2 takes a minute
	// or so; the first looks are closer together for clouds that are quicker.
	instanceRetry = 2 * time.Second
)

// finalize takes a claim that is being deleted one step further: drain, volumes, instance, Node, and
// in the end its own finalizer. Each step looks at the API and the cloud, so none is lost in a crash.
func (c *Controller) finalize(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	if !slices.Contains(claim.Finalizers, karpv1.TerminationFinalizer) {
		return 0, nil
	}
	if c.flights.isFlying(claim.UID) {
		return 0, nil // the launch must land first, or its instance would be forgotten
	}
	if err := c.stampDeadline(ctx, claim); err != nil {
		return 0, err
	}
	nodes, err := c.nodesOf(claim)
	if err != nil {
		return 0, err
	}
	before := claim.DeepCopy()
	after, done, err := c.emptyNodes(ctx, claim, nodes)
	if err != nil || !done {
		if len(nodes) > 0 && nodes[0].DeletionTimestamp == nil && err == nil {
			err = c.deleteNode(ctx, nodes[0]) // the finalizer keeps it; users see that it is going
		}
		return after, firstError(err, c.writeStatus(ctx, before, claim))
	}
	after, done, err = c.endInstance(ctx, claim)
	if err != nil || !done {
		return after, firstError(err, c.writeStatus(ctx, before, claim))
	}
	for _, node := range nodes {
		if err := c.releaseNode(ctx, claim, node); err != nil {
			return 0, err
		}
	}
	return 0, c.releaseClaim(ctx, claim)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// stampDeadline records from when on the termination is forced. A time that is there already, perhaps
// from a user in a hurry, stays.
func (c *Controller) stampDeadline(ctx context.Context, claim *karpv1.NodeClaim) error {
	grace := claim.Spec.TerminationGracePeriod
	if grace == nil || claim.Annotations[karpv1.AnnotationTerminationTimestamp] != "" {
		return nil
	}
	at := claim.DeletionTimestamp.Add(grace.Duration)
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[karpv1.AnnotationTerminationTimestamp] = at.UTC().Format(time.RFC3339)
	updated, err := c.update(ctx, claim)
	if err != nil {
		return fmt.Errorf("record termination deadline: %w", err)
	}
	*claim = *updated
	c.Events.TerminationGraceExpiring(claim, at)
	return nil
}

// deadlineOf returns from when on termination is forced, zero for never.
func (c *Controller) deadlineOf(ctx context.Context, claim *karpv1.NodeClaim) time.Time {
	text := claim.Annotations[karpv1.AnnotationTerminationTimestamp]
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Termination deadline is not an RFC 3339 time and is ignored",
			"annotation", karpv1.AnnotationTerminationTimestamp, "value", text)
		return time.Time{}
	}
	return at
}

// emptyNodes drains the claim's Nodes and waits for their volumes. Claims that never registered have
// nothing to drain. done is true when the instance may go.
func (c *Controller) emptyNodes(ctx context.Context, claim *karpv1.NodeClaim, nodes []*corev1.Node) (after time.Duration, done bool, err error) {
	deadline := c.deadlineOf(ctx, claim)
	for _, node := range nodes {
		if !nodeReady(node) && c.instanceIsGone(ctx, claim) {
			continue // nothing runs there any more
		}
		if err := c.changeNode(ctx, node, markTerminating); err != nil {
			return 0, false, fmt.Errorf("taint node %s: %w", node.Name, err)
		}
		if !isTrue(claim, karpv1.ConditionDrained) {
			if !hasCondition(claim, karpv1.ConditionDrained) {
				if c.mustHold(claim, deadline) {
					return holdRetry, false, nil
				}
				klog.FromContext(ctx).Info("Draining node", "node", klog.KObj(node))
				c.mark(claim, karpv1.ConditionDrained, metav1.ConditionUnknown, karpv1.ReasonDraining, "")
			}
			left := c.drain(ctx, claim, node, deadline)
			if len(left) > 0 {
				c.tellDrain(claim, node, left)
				return drainRetry, false, nil
			}
			if settle := c.options.DrainSettle - c.Clock.Since(sinceCondition(claim, karpv1.ConditionDrained)); settle > 0 {
				return min(settle, drainRetry), false, nil
			}
			c.mark(claim, karpv1.ConditionDrained, metav1.ConditionTrue, karpv1.ConditionDrained, "")
			c.metrics.nodesDrained.WithLabelValues(claim.Labels[karpv1.LabelNodePool]).Inc()
		}
		if after, done, err := c.awaitVolumes(claim, node, deadline); err != nil || !done {
			return after, false, err
		}
	}
	return 0, true, nil
}

// markTerminating keeps new pods and load balancer traffic off the node.
func markTerminating(node *corev1.Node) {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == karpv1.TaintKeyDisrupted && !t.MatchTaint(&karpv1.DisruptedNoScheduleTaint)
	})
	node.Spec.Taints = withTaints(node.Spec.Taints, []corev1.Taint{karpv1.DisruptedNoScheduleTaint})
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[corev1.LabelNodeExcludeBalancers] = karpv1.ExcludeFromLoadBalancersValue
}

// tellDrain says what is waited for, by name, so that somebody can act.
func (c *Controller) tellDrain(claim *karpv1.NodeClaim, node *corev1.Node, left []*corev1.Pod) {
	now := c.Clock.Now()
	if now.Sub(sinceCondition(claim, karpv1.ConditionDrained)) < 2*c.options.DrainSettle {
		return // pods need a moment to end; that is no news
	}
	names := make([]string, 0, 5)
	for _, pod := range left[:min(len(left), 5)] {
		name := pod.Namespace + "/" + pod.Name
		if isProtected(pod, now) {
			name += " (karpenter.sh/do-not-disrupt)"
		}
		names = append(names, name)
	}
	c.Events.FailedDraining(node, fmt.Sprintf("%d pods are waiting to be evicted: %s", len(left), strings.Join(names, ", ")))
}

// awaitVolumes waits until the node's volumes are detached, except those of pods that stay to the end.
func (c *Controller) awaitVolumes(claim *karpv1.NodeClaim, node *corev1.Node, deadline time.Time) (time.Duration, bool, error) {
	if isTrue(claim, karpv1.ConditionVolumesDetached) || conditionReason(claim, karpv1.ConditionVolumesDetached) == karpv1.ReasonTerminationGracePeriodElapsed {
		return 0, true, nil
	}
	all, err := c.volumes.List(labels.Everything())
	if err != nil {
		return 0, false, fmt.Errorf("list volume attachments: %w", err)
	}
	staying := c.volumesOfStayingPods(node)
	var names []string
	for _, attachment := range all {
		pv := attachment.Spec.Source.PersistentVolumeName
		if attachment.Spec.NodeName == node.Name && pv != nil && !staying[*pv] {
			names = append(names, attachment.Name)
		}
	}
	switch {
	case len(names) == 0:
		c.mark(claim, karpv1.ConditionVolumesDetached, metav1.ConditionTrue, karpv1.ConditionVolumesDetached, "")
		return 0, true, nil
	case !deadline.IsZero() && c.Clock.Now().After(deadline):
		c.mark(claim, karpv1.ConditionVolumesDetached, metav1.ConditionFalse, karpv1.ReasonTerminationGracePeriodElapsed, "")
		return 0, true, nil
	}
	slices.Sort(names)
	c.mark(claim, karpv1.ConditionVolumesDetached, metav1.ConditionUnknown, karpv1.ReasonAwaitingVolumeDetachment, "")
	c.Events.AwaitingVolumeDetachment(node, strings.Join(names[:min(len(names), 5)], ", "))
	return drainRetry, false, nil
}

// volumesOfStayingPods are the PVs of pods that the drain leaves in place.
func (c *Controller) volumesOfStayingPods(node *corev1.Node) map[string]bool {
	pvByClaim := map[string]string{}
	pvs, err := c.pvs.List(labels.Everything())
	if err != nil {
		return nil // a lister over a cache does not fail
	}
	for _, pv := range pvs {
		if ref := pv.Spec.ClaimRef; ref != nil {
			pvByClaim[ref.Namespace+"/"+ref.Name] = pv.Name
		}
	}
	staying := map[string]bool{}
	for _, pod := range c.podsOn(node.Name) {
		if !toleratesDisruption(pod) && !isMirror(pod) {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if source := volume.PersistentVolumeClaim; source != nil {
				staying[pvByClaim[pod.Namespace+"/"+source.ClaimName]] = true
			}
		}
	}
	return staying
}

// instanceIsGone asks the cloud; doubts count as no.
func (c *Controller) instanceIsGone(ctx context.Context, claim *karpv1.NodeClaim) bool {
	_, err := c.Cloud.Get(ctx, claim.Status.ProviderID)
	return cloud.IsNotFound(err)
}

// endInstance has the instance terminated and reports whether the cloud says that it is gone.
func (c *Controller) endInstance(ctx context.Context, claim *karpv1.NodeClaim) (after time.Duration, done bool, err error) {
	if claim.Status.ProviderID == "" {
		id, err := c.unrecorded(ctx, claim)
		if err != nil || id == "" {
			return 0, err == nil, err
		}
		claim.Status.ProviderID = id
	}
	err = c.Cloud.Delete(ctx, claim)
	switch {
	case cloud.IsNotFound(err):
		return 0, true, nil
	case err != nil:
		return 0, false, fmt.Errorf("terminate instance %s: %w", claim.Status.ProviderID, err)
	}
	if !isTrue(claim, karpv1.ConditionInstanceTerminating) {
		klog.FromContext(ctx).Info("Terminating instance", "providerID", claim.Status.ProviderID)
		c.mark(claim, karpv1.ConditionInstanceTerminating, metav1.ConditionTrue, karpv1.ConditionInstanceTerminating, "")
	}
	return instanceRetry, false, nil
}

// unrecorded finds the instance of a claim whose status does not name one: the launch may have come
// just before a crash. The collector finds what is not tagged with the claim yet.
func (c *Controller) unrecorded(ctx context.Context, claim *karpv1.NodeClaim) (string, error) {
	if created, ok := c.flights.outcome(claim.UID); ok && created.Instance != nil {
		return created.Instance.ProviderID, nil
	}
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return "", fmt.Errorf("look for an instance of the claim: %w", err)
	}
	for _, instance := range instances {
		if instance.ClaimName == claim.Name && !instance.Terminating {
			return instance.ProviderID, nil
		}
	}
	return "", nil
}

func (c *Controller) deleteNode(ctx context.Context, node *corev1.Node) error {
	err := c.Kube.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	return nil
}

// releaseNode lets the Node object go.
func (c *Controller) releaseNode(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) error {
	if err := c.deleteNode(ctx, node); err != nil {
		return err
	}
	err := c.changeNode(ctx, node, func(node *corev1.Node) { removeFinalizer(node) })
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer of node %s: %w", node.Name, err)
	}
	c.Events.Finalized(node, karpv1.TerminationFinalizer)
	c.metrics.nodesTerminated.WithLabelValues(claim.Labels[karpv1.LabelNodePool], claim.Labels[corev1.LabelTopologyZone]).Inc()
	return nil
}

func (c *Controller) releaseClaim(ctx context.Context, claim *karpv1.NodeClaim) error {
	fresh, err := c.Karpenter.KarpenterV1().NodeClaims().Get(ctx, claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && fresh.UID != claim.UID) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get nodeclaim: %w", err)
	}
	if !removeFinalizer(fresh) {
		return nil
	}
	if _, err := c.patchMetadata(ctx, fresh); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	pool := claim.Labels[karpv1.LabelNodePool]
	c.Events.Finalized(claim, karpv1.TerminationFinalizer)
	c.metrics.terminated.WithLabelValues(pool, claim.Labels[karpv1.LabelCapacityType], claim.Labels[corev1.LabelTopologyZone]).Inc()
	c.metrics.terminationDuration.WithLabelValues(pool).Observe(c.Clock.Since(claim.DeletionTimestamp.Time).Seconds())
	klog.FromContext(ctx).Info("NodeClaim is gone", "providerID", claim.Status.ProviderID)
	return nil
}

func hasCondition(claim *karpv1.NodeClaim, kind string) bool {
	return slices.ContainsFunc(claim.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
}

func conditionReason(claim *karpv1.NodeClaim, kind string) string {
	for _, c := range claim.Status.Conditions {
		if c.Type == kind {
			return c.Reason
		}
	}
	return ""
}

func sinceCondition(claim *karpv1.NodeClaim, kind string) time.Time {
	for _, c := range claim.Status.Conditions {
		if c.Type == kind {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
