package nodeprovision

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/resources"
)

// EventsToRegister implements fwk.EnqueueExtensions. A pod that waits for its own node is woken when
// that node becomes usable for it and by nothing else; a pod that was kept out is woken when room beside
// the promised pods may have come free.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeTaint |
				fwk.UpdateNodeCondition | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel},
			QueueingHintFn: p.onNode,
		},
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.onAssignedPodGone},
		{Event: fwk.ClusterEvent{Resource: fwk.UnscheduledPod, ActionType: fwk.Delete}, QueueingHintFn: p.onWaitingPodGone},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodScaleDown | fwk.UpdatePodToleration}},
	}, nil
}

// onNode wakes the pod when the node is its own and nothing that passes stands in the way any more, or,
// for a pod that was kept out, when a node with promises has grown.
func (p *Plugin) onNode(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	node, ok := newObj.(*corev1.Node)
	if !ok {
		return fwk.Queue, fmt.Errorf("node event carries %T", newObj)
	}
	e, known := p.deps.Promises.Lookup(pod.UID)
	if known && e.State == promise.Promised && e.Node != "" {
		if e.Node != node.Name || initializing(e, node) && !usable(pod, resources.PodRequests(pod), node) {
			return fwk.QueueSkip, nil
		}
		return fwk.Queue, nil
	}
	before, ok := oldObj.(*corev1.Node)
	if ok && !equality.Semantic.DeepEqual(before.Status.Allocatable, node.Status.Allocatable) && len(p.deps.Promises.ForNode(node.Name)) > 0 {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// onAssignedPodGone wakes pods that were kept out when a pod leaves a node with promises.
func (p *Plugin) onAssignedPodGone(_ klog.Logger, pod *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	gone, ok := oldObj.(*corev1.Pod)
	if !ok {
		return fwk.Queue, nil
	}
	if e, known := p.deps.Promises.Lookup(pod.UID); known && e.State == promise.Promised && e.Node != "" && e.Node != gone.Spec.NodeName {
		return fwk.QueueSkip, nil
	}
	if len(p.deps.Promises.ForNode(gone.Spec.NodeName)) > 0 {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// onWaitingPodGone wakes pods that were kept out when a pod that room was kept for is gone.
func (p *Plugin) onWaitingPodGone(_ klog.Logger, pod *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	gone, ok := oldObj.(*corev1.Pod)
	if !ok {
		return fwk.Queue, nil
	}
	if e, known := p.deps.Promises.Lookup(pod.UID); known && e.State == promise.Promised {
		return fwk.QueueSkip, nil
	}
	if e, known := p.deps.Promises.Lookup(gone.UID); gone.Status.NominatedNodeName != "" || known && e.State == promise.Promised {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}
