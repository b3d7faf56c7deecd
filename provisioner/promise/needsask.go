package promise

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NeedsAsk reports whether a pod seen by a pod informer should be asked for although no PostFilter may
// have done so: one of the named schedulers says that it fits nowhere, it is not waiting for evictions,
// and a new node could be for it. That covers clusters without any node, pods that evictions did not
// help, pods that were left over by a crash, and pods of foreign schedulers. Pure.
func NeedsAsk(pod *corev1.Pod, schedulerNames []string) bool {
	if pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" || pod.DeletionTimestamp != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		!slices.Contains(schedulerNames, pod.Spec.SchedulerName) || !NodeCouldBeFor(pod) {
		return false
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// NodeCouldBeFor is false for pods that belong to one existing node: those of DaemonSets and mirrors of
// static pods. Pure.
func NodeCouldBeFor(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node"
}
