package kubelet

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	t      *testing.T
	kube   *fake.Clientset
	events chan Event
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, kube: fake.NewClientset(), events: make(chan Event)}
	k := New(Deps{Kube: w.kube, Clock: clock.RealClock{}}, Options{Workers: 2, StartDelay: time.Millisecond, Version: "v1.2.3"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx, w.events); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func machineOf(name string) Machine {
	resources := corev1.ResourceList{"cpu": mustQuantity("2"), "memory": mustQuantity("4Gi"), "pods": mustQuantity("3"), "nvidia.com/gpu": mustQuantity("1")}
	return Machine{
		ID: "i-" + name, ProviderID: "aws:///us-east-1a/i-" + name, NodeName: name, InternalIP: "10.0.0.1", Zone: "us-east-1a", Region: "us-east-1",
		InstanceType: "m5.large", Arch: "amd64", OS: "linux", Labels: map[string]string{"team": "a"},
		Taints:   []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}},
		Capacity: resources, Allocatable: resources, ReadyDelay: 200 * time.Millisecond, DeviceDelay: 100 * time.Millisecond,
	}
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, 10*time.Second, 5*time.Millisecond, what)
}

func (w *world) node(name string) *corev1.Node {
	node, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return node
}

func (w *world) ready(name string) {
	w.t.Helper()
	w.eventually("ready", func() bool { n := w.node(name); return n != nil && readyStatus(n.Status) == corev1.ConditionTrue })
}

func (w *world) create(pod *corev1.Pod) {
	w.t.Helper()
	_, err := w.kube.CoreV1().Pods("default").Create(w.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) pod(name string) *corev1.Pod {
	pod, err := w.kube.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return pod
}

func newPod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": mustQuantity(cpu)}},
		}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func TestNodeJoinsStepByStep(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.events <- Event{Machine: machineOf("n1")}
	w.eventually("registered", func() bool { return w.node("n1") != nil })
	node := w.node("n1")
	require.Equal(t, corev1.ConditionFalse, readyStatus(node.Status), "a new node is not ready")
	require.Equal(t, "aws:///us-east-1a/i-n1", node.Spec.ProviderID)
	require.Equal(t, "a", node.Labels["team"])
	require.Equal(t, "m5.large", node.Labels[corev1.LabelInstanceTypeStable])
	keys := []string{}
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	require.ElementsMatch(t, []string{"karpenter.sh/unregistered", corev1.TaintNodeNotReady}, keys)
	gpu := node.Status.Allocatable["nvidia.com/gpu"]
	require.True(t, gpu.IsZero(), "device plugins come late")

	w.ready("n1")
	w.eventually("devices are announced", func() bool { q := w.node("n1").Status.Allocatable["nvidia.com/gpu"]; return q.Value() == 1 })
	_, err := w.kube.StorageV1().CSINodes().Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
	w.eventually("the EBS driver labels it", func() bool { return w.node("n1").Labels["topology.ebs.csi.aws.com/zone"] == "us-east-1a" })
	_, err = w.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	selects := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"team": "b"} }
	tests := map[string]struct {
		before []*corev1.Pod
		pod    *corev1.Pod
		reason string
	}{
		"fits":                {pod: newPod("p", "2")},
		"beyond the true cpu": {before: []*corev1.Pod{newPod("a", "1500m")}, pod: newPod("p", "1"), reason: "OutOfcpu"},
		"beyond the pods":     {before: []*corev1.Pod{newPod("a", "1m"), newPod("b", "1m"), newPod("c", "1m")}, pod: newPod("p", "1m"), reason: "OutOfpods"},
		"a device that somebody else counts": {pod: newPod("p", "1", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["vendor.example/device"] = resource.MustParse("1")
		})},
		"another team's": {pod: newPod("p", "1", selects), reason: "NodeAffinity"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			w.events <- Event{Machine: machineOf("n1")}
			w.ready("n1")
			for _, pod := range tc.before {
				w.create(pod.DeepCopy())
				w.eventually("runs", func() bool { return w.pod(pod.Name).Status.Phase == corev1.PodRunning })
			}
			w.create(tc.pod.DeepCopy())
			if tc.reason == "" {
				w.eventually("runs", func() bool { p := w.pod("p"); return p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" })
				return
			}
			w.eventually("is rejected", func() bool { return w.pod("p").Status.Phase == corev1.PodFailed })
			require.Equal(t, tc.reason, w.pod("p").Status.Reason)
		})
	}
}

func TestStartupTaintsThatAreGoneRejectNobody(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]bool{"taken off": false, "still there": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			m := machineOf("n1")
			m.Taints = append(m.Taints, corev1.Taint{Key: "example.com/start", Effect: corev1.TaintEffectNoExecute})
			w.events <- Event{Machine: m}
			w.ready("n1")
			if !there {
				_, err := w.kube.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(`{"spec":{"taints":[]}}`), metav1.PatchOptions{})
				require.NoError(t, err)
			}
			w.create(newPod("p", "1"))
			want := corev1.PodRunning
			if there {
				want = corev1.PodFailed
			}
			w.eventually(string(want), func() bool { return w.pod("p").Status.Phase == want })
		})
	}
}

func TestPodsEnd(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.events <- Event{Machine: machineOf("n1")}
	w.ready("n1")
	job := newPod("job", "100m", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
		p.Annotations = map[string]string{annotationRun: "0.1"}
	})
	failing := newPod("failing", "100m", func(p *corev1.Pod) { p.Annotations = map[string]string{annotationRun: "0", annotationExit: "3"} })
	w.create(job)
	w.create(failing)
	w.eventually("the job is done", func() bool { return w.pod("job").Status.Phase == corev1.PodSucceeded })
	w.eventually("the other has failed", func() bool { return w.pod("failing").Status.Phase == corev1.PodFailed })
	require.EqualValues(t, 3, w.pod("failing").Status.ContainerStatuses[0].State.Terminated.ExitCode)
}

func TestGracePeriod(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.events <- Event{Machine: machineOf("n1")}
	w.ready("n1")
	begun := time.Now()
	end, grace := metav1.NewTime(begun.Add(30*time.Second)), int64(30)
	w.create(newPod("p", "1", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = &end, &grace, []string{"x"}
		p.Annotations = map[string]string{annotationStop: "1"}
	}))
	w.eventually("stopped within its grace period", func() bool {
		_, err := w.kube.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	require.GreaterOrEqual(t, time.Since(begun), 900*time.Millisecond, "it takes the time that it needs")
}

func TestAnotherMachineTakesTheNameOver(t *testing.T) {
	t.Parallel()
	w := start(t)
	first, second := machineOf("n1"), machineOf("n1")
	second.ID, second.ProviderID = "i-2", "aws:///us-east-1a/i-2"
	w.events <- Event{Machine: first}
	w.ready("n1")
	w.events <- Event{Gone: true, Machine: first}
	w.events <- Event{Machine: second}
	w.eventually("the Node is the second machine's", func() bool { n := w.node("n1"); return n != nil && n.Spec.ProviderID == second.ProviderID })
}
