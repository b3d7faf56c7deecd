package demo

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// podTimes says when each step of a pod was first seen; zero means not yet.
type podTimes struct {
	created, unschedulable, nominated, bound, running, gone time.Time
	node                                                    string
}

// claimTimes does so for a NodeClaim.
type claimTimes struct {
	created, launched, registered, initialized, deleting, gone time.Time
	pool, instanceType, zone, capacityType, node               string
}

// nodeTimes does so for a Node.
type nodeTimes struct {
	appeared, ready, gone time.Time
}

// timeline collects what the API server's watches tell. All methods are safe for concurrent use; the
// handlers take the time at which an event was seen.
type timeline struct {
	mu     sync.Mutex
	pods   map[string]*podTimes   // by namespace/name
	claims map[string]*claimTimes // by name
	nodes  map[string]*nodeTimes  // by name
}

func newTimeline() *timeline {
	return &timeline{pods: map[string]*podTimes{}, claims: map[string]*claimTimes{}, nodes: map[string]*nodeTimes{}}
}

// stamp sets the mark when the condition holds for the first time.
func stamp(mark *time.Time, now time.Time, holds bool) {
	if holds && mark.IsZero() {
		*mark = now
	}
}

func (t *timeline) sawPod(pod *corev1.Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := entry(t.pods, pod.Namespace+"/"+pod.Name)
	stamp(&p.created, now, true)
	for _, c := range pod.Status.Conditions {
		unschedulable := c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		stamp(&p.unschedulable, now, unschedulable && c.Reason == corev1.PodReasonUnschedulable)
	}
	stamp(&p.nominated, now, pod.Status.NominatedNodeName != "")
	stamp(&p.bound, now, pod.Spec.NodeName != "")
	stamp(&p.running, now, pod.Status.Phase == corev1.PodRunning)
	p.node = pod.Spec.NodeName
}

func (t *timeline) lostPod(pod *corev1.Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamp(&entry(t.pods, pod.Namespace+"/"+pod.Name).gone, now, true)
}

func (t *timeline) sawClaim(claim *karpv1.NodeClaim, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := entry(t.claims, claim.Name)
	stamp(&c.created, now, true)
	stamp(&c.launched, now, meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionLaunched))
	stamp(&c.registered, now, meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionRegistered))
	stamp(&c.initialized, now, meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionInitialized))
	stamp(&c.deleting, now, claim.DeletionTimestamp != nil)
	c.pool = claim.Labels[karpv1.LabelNodePool]
	c.instanceType = claim.Labels[corev1.LabelInstanceTypeStable]
	c.zone = claim.Labels[corev1.LabelTopologyZone]
	c.capacityType = claim.Labels[karpv1.LabelCapacityType]
	c.node = claim.Status.NodeName
}

func (t *timeline) lostClaim(claim *karpv1.NodeClaim, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamp(&entry(t.claims, claim.Name).gone, now, true)
}

func (t *timeline) sawNode(node *corev1.Node, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := entry(t.nodes, node.Name)
	stamp(&n.appeared, now, true)
	for _, c := range node.Status.Conditions {
		stamp(&n.ready, now, c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue)
	}
}

func (t *timeline) lostNode(node *corev1.Node, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamp(&entry(t.nodes, node.Name).gone, now, true)
}

func entry[T any](m map[string]*T, key string) *T {
	if m[key] == nil {
		m[key] = new(T)
	}
	return m[key]
}

// view is a copy of the timeline that can be read without its lock.
type view struct {
	pods   map[string]podTimes
	claims map[string]claimTimes
	nodes  map[string]nodeTimes
}

func (t *timeline) view() view {
	t.mu.Lock()
	defer t.mu.Unlock()
	return view{pods: values(t.pods), claims: values(t.claims), nodes: values(t.nodes)}
}

func values[T any](m map[string]*T) map[string]T {
	out := make(map[string]T, len(m))
	for k, v := range m {
		out[k] = *v
	}
	return out
}

// median returns the middle of the durations, the lower one of two; 0 for none.
func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[(len(sorted)-1)/2]
}
