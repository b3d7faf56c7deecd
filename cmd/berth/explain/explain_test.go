package explain

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/promise"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func told(t *testing.T, kind, name string, kube, ours []runtime.Object) string {
	t.Helper()
	e := &explainer{kubefake.NewSimpleClientset(kube...), fake.NewSimpleClientset(ours...), func() time.Time { return now }} //nolint:staticcheck // nobody reads field managers
	var out bytes.Buffer
	require.NoError(t, e.run(t.Context(), kind, "shop", name, &out))
	return out.String()
}

func created(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }

func claim(change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "general-1", UID: "claim", CreationTimestamp: created(time.Minute), Labels: map[string]string{
			karpv1.LabelNodePool: "general", karpv1.LabelCapacityType: "spot", corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-east-1a",
		}, Annotations: map[string]string{karpv1.AnnotationPromises: promise.EncodeAnnotation([]*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}})}},
		Status: karpv1.NodeClaimStatus{ProviderID: "aws:///us-east-1a/i-1", NodeName: "n1"},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func is(kind string, status metav1.ConditionStatus, reason, message string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: created(time.Minute)})
	}
}

func TestWaitingPod(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "pod", CreationTimestamp: created(2 * time.Minute)}, Spec: corev1.PodSpec{SchedulerName: "berth"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}},
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e", CreationTimestamp: created(time.Minute)}, InvolvedObject: corev1.ObjectReference{Name: "web", UID: "pod"},
		Type: "Normal", Reason: "Nominated", Message: "Pod should schedule on: nodeclaim/general-1",
	}
	stages := map[string]struct {
		claim *karpv1.NodeClaim
		want  string
	}{
		"not launched":       {claim(is(karpv1.ConditionLaunched, metav1.ConditionUnknown, "InsufficientCapacity", "no m5.large")), "NodeClaim general-1 was bought for it: not launched yet (InsufficientCapacity: no m5.large)."},
		"launched":           {claim(is(karpv1.ConditionLaunched, metav1.ConditionTrue, "", "")), "spot m5.large us-east-1a, launched 60s ago, its node has not registered yet."},
		"registered":         {claim(is(karpv1.ConditionRegistered, metav1.ConditionTrue, "", ""), is(karpv1.ConditionInitialized, metav1.ConditionUnknown, "NodeNotReady", "cni")), "node n1 has registered and is not initialized yet (NodeNotReady: cni)."},
		"ready":              {claim(is(karpv1.ConditionInitialized, metav1.ConditionTrue, "", "")), "ready as node n1."},
		"nothing was bought": {claim(func(c *karpv1.NodeClaim) { c.Annotations = nil }), "The scheduler says: 0/3 nodes are available"},
	}
	for name, tc := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := told(t, "pod", "web", []runtime.Object{pod, event}, []runtime.Object{tc.claim})
			require.Contains(t, out, "Pod shop/web, Pending, 2m old, schedulerName berth")
			require.Contains(t, out, tc.want)
			require.Contains(t, out, "60s ago  Normal  Nominated: Pod should schedule on: nodeclaim/general-1")
		})
	}
	gated := pod.DeepCopy()
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	require.Contains(t, told(t, "pods", "web", []runtime.Object{gated}, nil), "held back by scheduling gate kueue.x-k8s.io/admission")
}

func TestNode(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node", CreationTimestamp: created(time.Hour), Labels: map[string]string{
			karpv1.LabelNodePool: "general", karpv1.LabelInitialized: "true", karpv1.LabelCapacityType: "spot", corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-east-1a",
		}}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-1"},
	}
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	pool.Spec.Disruption.ConsolidateAfter = karpv1.DurationOf(10 * time.Minute)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "pod", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "strict"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	busy := claim(is(karpv1.ConditionInitialized, metav1.ConditionTrue, "", ""), is(karpv1.ConditionDrifted, metav1.ConditionTrue, "AMIDrift", "AMIDrift"), func(c *karpv1.NodeClaim) {
		c.Spec.ExpireAfter = karpv1.DurationOf(24 * time.Hour)
		c.Status.LastPodEventTime = created(time.Minute)
	})
	out := told(t, "node", "n1", []runtime.Object{node, pod, budget}, []runtime.Object{busy, pool})
	require.Contains(t, out, "NodeClaim general-1 of NodePool general: spot m5.large us-east-1a, ready as node n1.")
	require.Contains(t, out, "It has drifted: AMIDrift, 60s ago.")
	require.Contains(t, out, "It expires at 2026-01-02T11:59:00Z")
	require.Regexp(t, "It is kept: .*strict", out)
	require.Contains(t, out, "consolidation leaves it alone until 2026-01-01T12:09:00Z")
	require.Contains(t, told(t, "node", "n1", []runtime.Object{node, pod}, []runtime.Object{busy, pool}), "Nothing keeps it but its 1 pods")
	require.Contains(t, told(t, "node", "n1", []runtime.Object{node}, nil), "No NodeClaim owns it")
}

func TestClaimAndPool(t *testing.T) {
	t.Parallel()
	out := told(t, "nodeclaim", "general-1", nil, []runtime.Object{claim(is(karpv1.ConditionLaunched, metav1.ConditionUnknown, "Throttled", "later"))})
	require.Contains(t, out, "It was bought for 1 pods.")
	require.Contains(t, out, "Launched is Unknown: Throttled later")
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}, Status: karpv1.NodePoolStatus{Nodes: 3, Conditions: []metav1.Condition{
		{Type: karpv1.ConditionReady, Status: metav1.ConditionTrue}, {Type: karpv1.ConditionWithinLimits, Status: metav1.ConditionFalse, Reason: "LimitReached", Message: "nodes 3 of 3"},
	}}}
	out = told(t, "nodepool", "general", nil, []runtime.Object{pool})
	require.Contains(t, out, "berth.dev/WithinLimits is False: LimitReached nodes 3 of 3")
	require.Contains(t, out, "True: Ready")
	require.Contains(t, out, "No events are left about it.")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	e := &explainer{kubefake.NewSimpleClientset(), fake.NewSimpleClientset(), time.Now} //nolint:staticcheck // nobody reads field managers
	require.ErrorContains(t, e.run(t.Context(), "service", "", "x", &bytes.Buffer{}), "want pod, node, nodeclaim or nodepool")
	require.ErrorContains(t, e.run(t.Context(), "pod", "shop", "x", &bytes.Buffer{}), "get pod shop/x")
}
