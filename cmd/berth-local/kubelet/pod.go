package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Annotations by which a pod says how it behaves in the simulation.
const (
	// annotationRun is for how many seconds a pod runs that ends by itself.
	annotationRun = "berth.dev/run-seconds"
	// annotationStop is how many seconds a pod takes to stop, within its grace period; default 0.2.
	annotationStop = "berth.dev/stop-seconds"
	// annotationExit is the exit code of a pod that ends by itself; default 0.
	annotationExit = "berth.dev/exit-code"
)

const defaultStop = 200 * time.Millisecond

func (k *Kubelets) queuePods(node string) {
	objects, err := k.informer.GetIndexer().ByIndex(nodeIndex, node)
	if err != nil {
		return // the index exists from Run on
	}
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			k.pods.Add(pod.Namespace + "/" + pod.Name)
		}
	}
}

// lostPod frees what the pod had; others on the node may be admitted then.
func (k *Kubelets) lostPod(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.machines[pod.Spec.NodeName]; m != nil {
		delete(m.ips, string(pod.UID))
		delete(m.admitted, string(pod.UID))
	}
}

// syncPod takes a pod one step further.
func (k *Kubelets) syncPod(ctx context.Context, key string) (time.Duration, error) {
	object, exists, err := k.informer.GetIndexer().GetByKey(key)
	pod, ok := object.(*corev1.Pod)
	if err != nil || !exists || !ok {
		return 0, err
	}
	m := k.machine(pod.Spec.NodeName)
	if m == nil || k.registered(m).IsZero() {
		return 0, nil // no kubelet there, or not yet: it lists its pods when it starts
	}
	if pod.DeletionTimestamp != nil {
		return k.stopPod(ctx, pod)
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return 0, nil
	case corev1.PodRunning:
		return k.finishPod(ctx, pod)
	default:
		return k.startPod(ctx, m, pod)
	}
}

// startPod admits the pod and, after the start delay, reports it as running.
func (k *Kubelets) startPod(ctx context.Context, m *machine, pod *corev1.Pod) (time.Duration, error) {
	if reason, message := k.admit(ctx, m, pod); reason != "" {
		status := pod.Status.DeepCopy()
		status.Phase, status.Reason, status.Message = corev1.PodFailed, reason, message
		return 0, k.writeStatus(ctx, pod, status)
	}
	if pod.Status.StartTime == nil {
		status := pod.Status.DeepCopy()
		now := metav1.NewTime(k.Clock.Now())
		status.StartTime, status.HostIP = &now, m.InternalIP
		return 0, k.writeStatus(ctx, pod, status)
	}
	if wait := k.options.StartDelay - k.Clock.Since(pod.Status.StartTime.Time); wait > 0 && wait <= k.options.StartDelay {
		return wait, nil
	}
	return 0, k.writeStatus(ctx, pod, k.running(m, pod))
}

// admit checks what a real kubelet checks. The first that came is served first.
func (k *Kubelets) admit(ctx context.Context, m *machine, pod *corev1.Pod) (reason, message string) {
	// The kubelet knows the labels that it registered with; the API may have more by now.
	if !matches(pod, m.NodeName, k.newNode(m).Labels) && !matches(pod, m.NodeName, k.liveLabels(ctx, m)) {
		return "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	}
	k.mu.Lock()
	known := m.admitted[string(pod.UID)]
	k.mu.Unlock()
	if known {
		return "", ""
	}
	if taint := k.untolerated(ctx, m, pod); taint != nil {
		return "Taint", fmt.Sprintf("Pod was rejected: it does not tolerate the taint %s", taint.ToString())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	used := corev1.ResourceList{}
	count := int64(0)
	objects, err := k.informer.GetIndexer().ByIndex(nodeIndex, m.NodeName)
	if err != nil {
		return "", ""
	}
	for _, object := range objects {
		other, ok := object.(*corev1.Pod)
		if !ok || !m.admitted[string(other.UID)] || other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed {
			continue
		}
		count++
		add(used, helpers.PodRequests(other, helpers.PodResourcesOptions{}))
	}
	add(used, helpers.PodRequests(pod, helpers.PodResourcesOptions{}))
	if pods := m.Allocatable[corev1.ResourcePods]; count+1 > pods.Value() {
		return "OutOfpods", fmt.Sprintf("Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %s", count, pods.String())
	}
	for name := range helpers.PodRequests(pod, helpers.PodResourcesOptions{}) {
		total, have := used[name], m.Allocatable[name]
		if _, ours := m.Allocatable[name]; !ours && isExtended(name) {
			continue // somebody else counts it, as with a real kubelet
		}
		if total.Cmp(have) > 0 {
			return "OutOf" + string(name), fmt.Sprintf("Pod was rejected: Node didn't have enough resource: %s, wanted in all: %s, capacity: %s", name, total.String(), have.String())
		}
	}
	m.admitted[string(pod.UID)] = true
	return "", ""
}

// untolerated returns a taint that the node came with, still has, and that drives the pod away; nil for
// none.
func (k *Kubelets) untolerated(ctx context.Context, m *machine, pod *corev1.Pod) *corev1.Taint {
	drives := func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && taint.Key != "karpenter.sh/unregistered" && !tolerates(pod, taint)
	}
	if !slices.ContainsFunc(m.Taints, drives) {
		return nil
	}
	for _, taint := range k.live(ctx, m).Spec.Taints {
		if drives(taint) {
			return &taint
		}
	}
	return nil
}

// liveLabels are the Node's labels in the API: others may have added some since it registered.
func (k *Kubelets) liveLabels(ctx context.Context, m *machine) map[string]string {
	return k.live(ctx, m).Labels
}

// live is the Node as the API has it, empty if it cannot be had.
func (k *Kubelets) live(ctx context.Context, m *machine) *corev1.Node {
	node, err := k.Kube.CoreV1().Nodes().Get(ctx, m.NodeName, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return &corev1.Node{}
	}
	return node
}

func matches(pod *corev1.Pod, name string, labels map[string]string) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	return err == nil && fits
}

func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &taint, false)
	})
}

func add(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// running is the status of a pod whose containers have started.
func (k *Kubelets) running(m *machine, pod *corev1.Pod) *corev1.PodStatus {
	status := pod.Status.DeepCopy()
	now := metav1.NewTime(k.Clock.Now())
	status.Phase, status.HostIP = corev1.PodRunning, m.InternalIP
	status.HostIPs = []corev1.HostIP{{IP: m.InternalIP}}
	status.PodIP = k.address(m, pod)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
	} {
		setPodCondition(status, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	yes := true
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

// address gives the pod an address of its own, or the node's when it uses the host network.
func (k *Kubelets) address(m *machine, pod *corev1.Pod) string {
	if pod.Spec.HostNetwork {
		return m.InternalIP
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ip, ok := m.ips[string(pod.UID)]; ok {
		return ip
	}
	k.addresses = k.addresses.Next()
	m.ips[string(pod.UID)] = k.addresses.String()
	return m.ips[string(pod.UID)]
}

func setPodCondition(status *corev1.PodStatus, c corev1.PodCondition) {
	for i := range status.Conditions {
		if status.Conditions[i].Type == c.Type {
			status.Conditions[i] = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}

// finishPod ends pods that end by themselves.
func (k *Kubelets) finishPod(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	run, ends := runTime(pod)
	if !ends || pod.Status.StartTime == nil {
		return 0, nil
	}
	if wait := run - k.Clock.Since(pod.Status.StartTime.Time); wait > 0 {
		return wait, nil
	}
	code, _ := strconv.Atoi(pod.Annotations[annotationExit])
	return 0, k.writeStatus(ctx, pod, k.ended(pod, int32(code))) //nolint:gosec // an exit code
}

// runTime is how long the pod runs, and whether it ends at all.
func runTime(pod *corev1.Pod) (time.Duration, bool) {
	if text, ok := pod.Annotations[annotationRun]; ok {
		if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 {
			return time.Duration(seconds * float64(time.Second)), true
		}
	}
	owner := metav1.GetControllerOf(pod)
	return time.Second, owner != nil && owner.Kind == "Job"
}

func (k *Kubelets) ended(pod *corev1.Pod, code int32) *corev1.PodStatus {
	status := pod.Status.DeepCopy()
	now := metav1.NewTime(k.Clock.Now())
	status.Phase = corev1.PodSucceeded
	reason := "Completed"
	if code != 0 {
		status.Phase, reason = corev1.PodFailed, "Error"
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		setPodCondition(status, corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: now})
	}
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		started := now
		if c.State.Running != nil {
			started = c.State.Running.StartedAt
		}
		c.Ready = false
		c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: started, FinishedAt: now}}
	}
	return status
}

// stopPod ends a pod that is being deleted within its grace period, then lets the object go.
func (k *Kubelets) stopPod(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	grace := time.Duration(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	takes := defaultStop
	if seconds, err := strconv.ParseFloat(pod.Annotations[annotationStop], 64); err == nil && seconds >= 0 {
		takes = time.Duration(seconds * float64(time.Second))
	}
	begun := pod.DeletionTimestamp.Add(-grace)
	terminal := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if wait := min(takes, grace) - k.Clock.Since(begun); wait > 0 && !terminal {
		return wait, nil
	}
	zero := int64(0)
	err := k.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	return 0, err
}

func (k *Kubelets) writeStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) error {
	updated := pod.DeepCopy()
	updated.Status = *status
	updated.Status.QOSClass = cmp.Or(updated.Status.QOSClass, corev1.PodQOSBurstable)
	_, err := k.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch brings what has changed
	}
	return err
}
