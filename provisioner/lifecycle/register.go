package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/state"
)

// nameRetry is how soon the cloud is asked again for the name that the node will have.
const nameRetry = time.Second

// nodesOf returns the Nodes with the claim's provider ID. They are shared with the cache.
func (c *Controller) nodesOf(claim *karpv1.NodeClaim) ([]*corev1.Node, error) {
	if claim.Status.ProviderID == "" {
		return nil, nil
	}
	objects, err := c.nodes.ByIndex(providerIndex, claim.Status.ProviderID)
	if err != nil {
		return nil, fmt.Errorf("find nodes of provider ID %s: %w", claim.Status.ProviderID, err)
	}
	var nodes []*corev1.Node
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// register joins the claim with its Node.
func (c *Controller) register(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	if !isTrue(claim, karpv1.ConditionLaunched) || isTrue(claim, karpv1.ConditionRegistered) {
		return 0, nil
	}
	nodes, err := c.nodesOf(claim)
	switch {
	case err != nil:
		return 0, err
	case len(nodes) == 0:
		c.mark(claim, karpv1.ConditionRegistered, metav1.ConditionUnknown, karpv1.ReasonNodeNotFound, "Node not registered with cluster")
		return c.learnName(ctx, claim), nil
	case len(nodes) > 1:
		c.mark(claim, karpv1.ConditionRegistered, metav1.ConditionFalse, karpv1.ReasonMultipleNodesFound,
			fmt.Sprintf("Nodes %s and %s have the same provider ID; delete the wrong one", nodes[0].Name, nodes[1].Name))
		return 0, nil
	}
	node := nodes[0]
	if !slices.ContainsFunc(node.Spec.Taints, isUnregistered) && node.Labels[karpv1.LabelRegistered] == "" {
		c.Events.UnregisteredTaintMissing(claim, node.Name)
	}
	if err := c.changeNode(ctx, node, func(node *corev1.Node) { joinNode(node, claim) }); err != nil {
		return 0, fmt.Errorf("register node %s: %w", node.Name, err)
	}
	claim.Status.NodeName = node.Name
	c.mark(claim, karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered, "")
	c.tellName(ctx, claim, node.Name)
	return 0, nil
}

// learnName asks the cloud for the name that the node will register under, until it knows.
func (c *Controller) learnName(ctx context.Context, claim *karpv1.NodeClaim) time.Duration {
	if c.hasName(claim) || c.Hooks.NodeNamed == nil {
		return 0
	}
	instance, err := c.Cloud.Get(ctx, claim.Status.ProviderID)
	if err != nil || instance.NodeName == "" {
		return nameRetry // not visible yet; registration tells it at the latest
	}
	c.tellName(ctx, claim, instance.NodeName)
	return 0
}

func isUnregistered(t corev1.Taint) bool { return t.MatchTaint(&karpv1.UnregisteredNoExecuteTaint) }

// joinNode gives the Node what its claim says: finalizer, owner, labels, annotations and taints.
func joinNode(node *corev1.Node, claim *karpv1.NodeClaim) {
	addFinalizer(node)
	owner := metav1.OwnerReference{
		APIVersion: karpv1.SchemeGroupVersion.String(), Kind: "NodeClaim", Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: new(true),
	}
	if !slices.ContainsFunc(node.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == claim.UID }) {
		node.OwnerReferences = append(node.OwnerReferences, owner)
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	if node.Labels[karpv1.LabelDoNotSyncTaints] != karpv1.ValueTrue {
		node.Spec.Taints = withTaints(node.Spec.Taints, claim.Spec.Taints, claim.Spec.StartupTaints)
	}
	maps.Copy(node.Labels, claim.Labels)
	for key, value := range claim.Annotations {
		if !strings.HasPrefix(key, karpv1.BerthGroup+"/") { // bookkeeping of the claim alone
			node.Annotations[key] = value
		}
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isUnregistered)
	node.Labels[karpv1.LabelRegistered] = karpv1.ValueTrue
}

// rejoinNode joins a Node that was made anew by its kubelet. On one that has only lost the label, startup
// taints are not put back: whatever takes them off has done its work.
func rejoinNode(node *corev1.Node, claim *karpv1.NodeClaim) {
	if slices.ContainsFunc(node.Spec.Taints, isUnregistered) {
		joinNode(node, claim)
		return
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[karpv1.LabelRegistered] = karpv1.ValueTrue
}

// withTaints adds taints whose key and effect are not there yet.
func withTaints(taints []corev1.Taint, more ...[]corev1.Taint) []corev1.Taint {
	out := slices.Clone(taints)
	for _, t := range slices.Concat(more...) {
		if !slices.ContainsFunc(out, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			out = append(out, t)
		}
	}
	return out
}

// changeNode applies the change to the newest version of the Node and writes it when it differs.
func (c *Controller) changeNode(ctx context.Context, cached *corev1.Node, change func(*corev1.Node)) error {
	node := cached.DeepCopy()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before := node.DeepCopy()
		change(node)
		if equality.Semantic.DeepEqual(before, node) {
			return nil
		}
		updated, err := c.Kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		if err == nil {
			node = updated
			return nil
		}
		if fresh, getErr := c.Kube.CoreV1().Nodes().Get(ctx, cached.Name, metav1.GetOptions{}); getErr == nil {
			node = fresh
		}
		return err
	})
}

// initialize checks the gates in order and marks the Node as usable when it has passed all of them.
func (c *Controller) initialize(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	if !isTrue(claim, karpv1.ConditionRegistered) {
		return 0, nil
	}
	nodes, err := c.nodesOf(claim)
	if err != nil {
		return 0, err
	}
	if isTrue(claim, karpv1.ConditionInitialized) && (len(nodes) != 1 || nodes[0].Labels[karpv1.LabelInitialized] == karpv1.ValueTrue) {
		return 0, nil
	}
	if len(nodes) != 1 {
		c.mark(claim, karpv1.ConditionInitialized, metav1.ConditionUnknown, karpv1.ReasonNodeNotFound, "Node not registered with cluster")
		return 0, nil
	}
	node := nodes[0]
	if reason, message := gate(node, claim, c.Hooks.Lacking); reason != "" {
		c.mark(claim, karpv1.ConditionInitialized, metav1.ConditionUnknown, reason, message)
		return 0, nil // the watch tells when the node changes
	}
	err = c.changeNode(ctx, node, func(node *corev1.Node) {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[karpv1.LabelInitialized] = karpv1.ValueTrue
	})
	if err != nil {
		return 0, fmt.Errorf("mark node %s as initialized: %w", node.Name, err)
	}
	c.mark(claim, karpv1.ConditionInitialized, metav1.ConditionTrue, karpv1.ConditionInitialized, "")
	return 0, nil
}

// gate returns the first gate of initialization that the node has not passed, "" for none. lacking may be
// nil.
func gate(node *corev1.Node, claim *karpv1.NodeClaim, lacking func(pool, instanceType string, name corev1.ResourceName) bool) (reason, message string) {
	if !nodeReady(node) {
		return karpv1.ReasonNodeNotReady, "Node status is NotReady"
	}
	for _, t := range node.Spec.Taints {
		if slices.ContainsFunc(claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(&t) }) {
			return karpv1.ReasonStartupTaintsExist, fmt.Sprintf("StartupTaint %q still exists", t.ToString())
		}
	}
	for _, t := range node.Spec.Taints {
		if state.IsEphemeralTaint(t) {
			return karpv1.ReasonKnownEphemeralTaintsExist, fmt.Sprintf("KnownEphemeralTaint %q still exists", t.ToString())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)) {
		requested := claim.Spec.Resources.Requests[name]
		if allocatable := node.Status.Allocatable[name]; !requested.IsZero() && allocatable.IsZero() {
			if lacking != nil && lacking(claim.Labels[karpv1.LabelNodePool], claim.Labels[corev1.LabelInstanceTypeStable], name) {
				continue // it would wait for ever; initialized, the node can be used, or consolidated
			}
			return karpv1.ReasonResourceNotRegistered, fmt.Sprintf("Resource %q was requested but not registered", name)
		}
	}
	return "", ""
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// followNode deletes the claim when its Node was deleted: the finalizer on the Node waits for that, unless
// somebody took it off. A Node that was made anew is joined again.
func (c *Controller) followNode(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	if !isTrue(claim, karpv1.ConditionRegistered) {
		return 0, nil
	}
	nodes, err := c.nodesOf(claim)
	if err != nil {
		return 0, err
	}
	gone := slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.DeletionTimestamp != nil })
	if len(nodes) == 0 {
		if gone, err = c.hasNoNode(ctx, claim); err != nil {
			return 0, err
		}
	}
	if gone {
		if err := c.delete(ctx, claim, "node_deleted"); err != nil {
			return 0, err
		}
		return 0, errGone
	}
	if len(nodes) == 1 && nodes[0].Labels[karpv1.LabelRegistered] != karpv1.ValueTrue {
		if err := c.changeNode(ctx, nodes[0], func(node *corev1.Node) { rejoinNode(node, claim) }); err != nil {
			return 0, fmt.Errorf("register node %s again: %w", nodes[0].Name, err)
		}
	}
	return 0, nil
}

// hasNoNode asks the API server whether the Node is really not there: the cache may be behind, and a
// claim that is deleted takes an instance with it.
func (c *Controller) hasNoNode(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	node, err := c.Kube.CoreV1().Nodes().Get(ctx, claim.Status.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("get node %s: %w", claim.Status.NodeName, err)
	}
	return node.Spec.ProviderID != claim.Status.ProviderID, nil
}

// podEventGrain is the least step of lastPodEventTime, so that busy nodes don't cost a write per pod. Pools
// that consolidate soon after the last pod event need to know it more exactly.
const podEventGrain = 10 * time.Second

// grainFor is at most a quarter of the pool's consolidateAfter, and at least a second.
func (c *Controller) grainFor(claim *karpv1.NodeClaim) time.Duration {
	pool, err := c.pools.Get(claim.Labels[karpv1.LabelNodePool])
	if err != nil || pool.Spec.Disruption.ConsolidateAfter.Duration == nil {
		return podEventGrain
	}
	return min(podEventGrain, max(*pool.Spec.Disruption.ConsolidateAfter.Duration/4, time.Second))
}

// notePodEvents moves status.lastPodEventTime forward.
func (c *Controller) notePodEvents(_ context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	if claim.Status.NodeName == "" {
		return 0, nil
	}
	c.mu.Lock()
	at := c.podEvents[claim.Status.NodeName]
	c.mu.Unlock()
	last := claim.Status.LastPodEventTime.Time
	if at.IsZero() || !at.After(last) {
		return 0, nil
	}
	grain := c.grainFor(claim)
	if wait := grain - c.Clock.Since(last); !last.IsZero() && wait > 0 && at.Sub(last) < grain {
		return wait, nil
	}
	claim.Status.LastPodEventTime = metav1.NewTime(at)
	return 0, nil
}
