package lifecycle

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// stuckAfter is how long a pod may stay past its deletion time before the drain goes on without it.
const stuckAfter = time.Minute

// waiting returns the pods that the drain has to see off.
func waiting(pods []*corev1.Pod, now time.Time) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		stuck := pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > stuckAfter
		return isTerminal(pod) || isMirror(pod) || stuck || toleratesDisruption(pod)
	})
}

func toleratesDisruption(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &karpv1.DisruptedNoScheduleTaint, false)
	})
}

// drainGroup orders evictions: workloads before daemons, ordinary pods before critical ones.
func drainGroup(pod *corev1.Pod) int {
	group := 0
	if isDaemon(pod) {
		group++
	}
	if pod.Spec.PriorityClassName == "system-cluster-critical" || pod.Spec.PriorityClassName == "system-node-critical" {
		group += 2
	}
	return group
}

// firstGroup returns the pods of the group that is to be drained now.
func firstGroup(pods []*corev1.Pod) []*corev1.Pod {
	first := 4
	for _, pod := range pods {
		first = min(first, drainGroup(pod))
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return drainGroup(pod) != first })
}

// isProtected reports whether the pod asks not to be evicted: for good, or for some time from its start.
func isProtected(pod *corev1.Pod, now time.Time) bool {
	value, ok := pod.Annotations[karpv1.AnnotationDoNotDisrupt]
	if !ok || isTerminal(pod) || pod.DeletionTimestamp != nil {
		return false
	}
	if value == karpv1.ValueTrue {
		return true
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return false
	}
	return pod.Status.StartTime == nil || now.Sub(pod.Status.StartTime.Time) < d
}

// forced returns what must be deleted now so that the pod is gone by the deadline, and with what grace.
// A zero deadline forces nothing.
func forced(pod *corev1.Pod, deadline, now time.Time) (grace int64, ok bool) {
	if deadline.IsZero() {
		return 0, false
	}
	remaining := int64(max(deadline.Sub(now), time.Second).Round(time.Second) / time.Second)
	if pod.DeletionTimestamp != nil {
		return remaining, pod.DeletionTimestamp.After(deadline)
	}
	own := int64(30)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		own = *pod.Spec.TerminationGracePeriodSeconds
	}
	return remaining, now.After(deadline.Add(-time.Duration(own) * time.Second))
}

// evictions keeps each pod's back-off between attempts.
type evictions struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	next  map[types.UID]backoff
}

type backoff struct {
	at    time.Time
	delay time.Duration
}

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

func newEvictions(clock clock.PassiveClock) *evictions {
	return &evictions{clock: clock, next: map[types.UID]backoff{}}
}

// due reports whether the pod may be tried now, and plans the next attempt.
func (e *evictions) due(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, b := e.clock.Now(), e.next[uid]
	if b.at.After(now) {
		return false
	}
	b.delay = min(cmp.Or(b.delay*2, firstBackoff), lastBackoff)
	b.at = now.Add(b.delay)
	e.next[uid] = b
	return true
}

func (e *evictions) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.next, uid)
}

// parallelEvictions bounds the eviction calls of one node.
const parallelEvictions = 16

// drain takes one step: it asks the pods of the current group to go, and deletes those that must be
// gone by the deadline. It returns the pods that are still waited for.
func (c *Controller) drain(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, deadline time.Time) []*corev1.Pod {
	now := c.Clock.Now()
	pods := waiting(c.podsOn(node.Name), now)
	evict := map[types.UID]bool{}
	for _, pod := range firstGroup(pods) {
		evict[pod.UID] = pod.DeletionTimestamp == nil && !isProtected(pod, now)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallelEvictions)
	for _, pod := range pods {
		grace, force := forced(pod, deadline, now)
		if !force && !evict[pod.UID] {
			continue
		}
		if !c.evictions.due(pod.UID) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if force {
				c.deletePod(ctx, pod, grace)
			} else {
				c.evict(ctx, node, pod, evictionReason(claim))
			}
		})
	}
	wg.Wait()
	return pods
}

func (c *Controller) podsOn(node string) []*corev1.Pod {
	objects, err := c.pods.ByIndex(nodeIndex, node)
	if err != nil {
		return nil // the index exists from New on
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

func evictionReason(claim *karpv1.NodeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == karpv1.ConditionDisruptionReason && condition.Status == metav1.ConditionTrue {
			return condition.Reason
		}
	}
	return "Forceful Termination"
}

func (c *Controller) evict(ctx context.Context, node *corev1.Node, pod *corev1.Pod, reason string) {
	err := c.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	c.metrics.evictions.WithLabelValues(codeOf(err)).Inc()
	switch {
	case err == nil:
		c.Events.Evicted(pod, reason)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of that name
	case apierrors.IsTooManyRequests(err):
		c.Events.FailedDraining(node, "evicting pod "+pod.Namespace+"/"+pod.Name+" violates a PodDisruptionBudget: "+err.Error())
	case apierrors.IsInternalError(err):
		c.Events.FailedDraining(node, "pod "+pod.Namespace+"/"+pod.Name+" is covered by several PodDisruptionBudgets, which eviction does not support: "+err.Error())
	default:
		klog.FromContext(ctx).Error(err, "Evicting pod failed, will retry", "pod", klog.KObj(pod))
	}
}

func codeOf(err error) string {
	if err == nil {
		return "200"
	}
	if status, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // client-go returns it bare
		return strconv.Itoa(int(status.Status().Code))
	}
	return "0"
}

// deletePod removes the pod with a grace of at least a second, whatever budgets say.
func (c *Controller) deletePod(ctx context.Context, pod *corev1.Pod, grace int64) {
	err := c.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	switch {
	case err == nil:
		c.Events.Disrupted(pod, grace)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	default:
		klog.FromContext(ctx).Error(err, "Deleting pod at the end of the node's grace period failed, will retry", "pod", klog.KObj(pod))
	}
}
