package candidate

import (
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isActive reports whether the pod runs, or will, and is not being deleted.
func isActive(pod *corev1.Pod) bool {
	return !isFinished(pod) && pod.DeletionTimestamp == nil
}

func isOwnedBy(pod *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == kind
}

// isMirror reports whether a kubelet made the pod from a file.
func isMirror(pod *corev1.Pod) bool {
	_, annotated := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return annotated || isOwnedBy(pod, "Node")
}

// toleratesDisruption reports whether the pod stays on a node that is about to go.
func toleratesDisruption(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &karpv1.DisruptedNoScheduleTaint, false)
	})
}

// IsReschedulable reports whether the pod needs another place when its node goes: unfinished pods but
// for daemons and mirror pods. Of pods that are being deleted only those of StatefulSets do, because
// their successor cannot start before they are gone.
func IsReschedulable(pod *corev1.Pod) bool {
	return (isActive(pod) || (!isFinished(pod) && isOwnedBy(pod, "StatefulSet"))) && !isOwnedBy(pod, "DaemonSet") && !isMirror(pod)
}

// Protection is what a pod's do-not-disrupt annotation means at one time.
type Protection struct {
	// Active: the pod must not be disrupted now.
	Active bool
	// Until is when a protection by duration ends or has ended; zero when it has no end or none is known.
	Until time.Time
	// Invalid: the value is neither "true" nor a positive duration, and is ignored.
	Invalid bool
}

// Protect reads the pod's do-not-disrupt annotation. Pods that are finished or being deleted are never
// protected.
func Protect(pod *corev1.Pod, now time.Time) Protection {
	value, annotated := pod.Annotations[karpv1.AnnotationDoNotDisrupt]
	if !annotated {
		return Protection{}
	}
	if value == karpv1.ValueTrue {
		return Protection{Active: isActive(pod)}
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return Protection{Invalid: true}
	}
	if pod.Status.StartTime == nil {
		return Protection{Active: isActive(pod)}
	}
	until := pod.Status.StartTime.Add(d)
	return Protection{Active: isActive(pod) && now.Before(until), Until: until}
}

// EvictionCost is how much it hurts to evict the pod: 1 for an ordinary one, from -10 to 10. A
// pod-deletion-cost that is no number is ignored.
func EvictionCost(pod *corev1.Pod) float64 {
	cost := 1.0
	if deletion, err := strconv.ParseInt(pod.Annotations[karpv1.AnnotationPodDeletionCost], 10, 32); err == nil {
		cost += float64(deletion) / (1 << 27)
	}
	if pod.Spec.Priority != nil {
		cost += float64(*pod.Spec.Priority) / (1 << 25)
	}
	return math.Min(math.Max(cost, -10), 10)
}

// MoveCost is how much it hurts to empty the node: 1 for the node and what its reschedulable pods add.
// Pods that cost less than nothing add nothing.
func MoveCost(node *cluster.Node) float64 {
	cost := 1.0
	for _, pod := range node.Pods {
		if IsReschedulable(pod) {
			cost += math.Max(0, EvictionCost(pod))
		}
	}
	return cost
}

// IsEmpty reports whether nothing of worth runs on the node.
func IsEmpty(node *cluster.Node) bool {
	return MoveCost(node) <= 1
}
