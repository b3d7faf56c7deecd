package lifecycle

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// watch makes events of claims, their nodes and the pods on them lead to a reconcile of the claim.
func (c *Controller) watch(claims, nodes, pods cache.SharedIndexInformer) error {
	_, errClaims := claims.AddEventHandler(handler(func(claim *karpv1.NodeClaim) { c.queue.Add(claim.Name) }, func(claim *karpv1.NodeClaim) {
		c.mu.Lock()
		delete(c.named, claim.UID)
		c.mu.Unlock()
		c.flights.forget(claim.UID)
	}))
	_, errNodes := nodes.AddEventHandler(handler(c.enqueueForNode, c.enqueueForNode))
	_, errPods := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.sawPod(nil, object) },
		UpdateFunc: c.sawPod,
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				c.evictions.forget(pod.UID)
				c.enqueueForNodeName(pod.Spec.NodeName)
			}
		},
	})
	return errors.Join(errClaims, errNodes, errPods)
}

func handler[T any](see, lost func(*T)) cache.ResourceEventHandler {
	typed := func(f func(*T)) func(any) {
		return func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if t, ok := object.(*T); ok {
				f(t)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: typed(see), UpdateFunc: func(_, object any) { typed(see)(object) }, DeleteFunc: typed(lost),
	}
}

// enqueueForNode finds the claim by the node's provider ID. Only managed nodes can have one.
func (c *Controller) enqueueForNode(node *corev1.Node) {
	if node.Spec.ProviderID == "" {
		return
	}
	claims, err := c.byID.ByIndex(providerIndex, node.Spec.ProviderID)
	if err != nil {
		return // the index exists from New on
	}
	for _, object := range claims {
		if claim, ok := object.(*karpv1.NodeClaim); ok {
			c.queue.Add(claim.Name)
		}
	}
}

func (c *Controller) enqueueForNodeName(name string) {
	if name == "" {
		return
	}
	object, exists, err := c.nodes.GetByKey(name)
	if node, ok := object.(*corev1.Node); ok && exists && err == nil {
		c.enqueueForNode(node)
	}
}

// sawPod notes the moments that restart the consolidation clock of the pod's node.
func (c *Controller) sawPod(before, after any) {
	pod, ok := after.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || isDaemon(pod) {
		return
	}
	old, _ := before.(*corev1.Pod)
	at := podEventTime(old, pod, c.Clock.Now())
	if at.IsZero() {
		return
	}
	c.mu.Lock()
	news := at.After(c.podEvents[pod.Spec.NodeName])
	if news {
		c.podEvents[pod.Spec.NodeName] = at
	}
	c.mu.Unlock()
	if news {
		c.enqueueForNodeName(pod.Spec.NodeName)
	}
}

// podEventTime returns when the pod was bound, became terminal or began to terminate, whichever the
// change from old to pod shows; zero when it shows none. Times come from the pod where it has them, so
// that a restart, which sees every pod anew, does not restart any clock.
func podEventTime(old, pod *corev1.Pod, now time.Time) time.Time {
	switch {
	case pod.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil):
		grace := time.Duration(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		}
		return pod.DeletionTimestamp.Add(-grace)
	case isTerminal(pod) && old != nil && !isTerminal(old):
		return now
	case old == nil || old.Spec.NodeName == "":
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue {
				return condition.LastTransitionTime.Time
			}
		}
	}
	return time.Time{}
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isDaemon(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

func isMirror(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Node"
}
