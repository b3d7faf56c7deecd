package state_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	oursfake "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/state"
)

type world struct {
	state    *state.State
	promises *promise.Table
	kube     *fake.Clientset
	ours     *oursfake.Clientset
}

func start(t *testing.T, core, ours []runtime.Object, typesOf func(*karpv1.NodeClaim) []*catalog.InstanceType) *world {
	t.Helper()
	w := &world{promises: promise.NewTable(), kube: fake.NewClientset(core...), ours: oursfake.NewClientset(ours...)}
	coreInformers := informers.NewSharedInformerFactory(w.kube, 0)
	ourInformers := externalversions.NewSharedInformerFactory(w.ours, 0)
	s, err := state.New(state.Deps{Core: coreInformers, Ours: ourInformers, Promises: w.promises, TypesOf: typesOf})
	require.NoError(t, err)
	w.state = s
	ctx, cancel := context.WithCancel(t.Context())
	coreInformers.StartWithContext(ctx)
	ourInformers.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		coreInformers.Shutdown()
		ourInformers.Shutdown()
	})
	require.Eventually(t, s.Synced, 10*time.Second, 5*time.Millisecond)
	return w
}

// node waits for the node with the key to satisfy the condition in a snapshot.
func (w *world) node(t *testing.T, key string, holds func(*cluster.Node) bool) *cluster.Node {
	t.Helper()
	var found *cluster.Node
	require.Eventually(t, func() bool {
		for _, n := range w.state.Snapshot().Nodes {
			if n.Key() == key && holds(n) {
				found = n
				return true
			}
		}
		return false
	}, 10*time.Second, 5*time.Millisecond, "node %s", key)
	return found
}

func any(*cluster.Node) bool { return true }

func list(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

func makeNode(name, provider string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: provider, Taints: taints},
		Status:     corev1.NodeStatus{Allocatable: list("2"), Capacity: list("2")},
	}
}

func makeClaim(name, provider string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{karpv1.LabelNodePool: "default", "team": "a"}},
		Spec: karpv1.NodeClaimSpec{
			Taints:        []corev1.Taint{taint("dedicated", corev1.TaintEffectNoSchedule)},
			StartupTaints: []corev1.Taint{taint("cni", corev1.TaintEffectNoSchedule)},
		},
		Status: karpv1.NodeClaimStatus{ProviderID: provider, Allocatable: list("4"), Capacity: list("4")},
	}
}

func makePod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func TestTaintsThatCount(t *testing.T) {
	t.Parallel()
	all := []corev1.Taint{
		taint("dedicated", corev1.TaintEffectNoSchedule), taint("cni", corev1.TaintEffectNoSchedule),
		taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), karpv1.UnregisteredNoExecuteTaint,
	}
	dedicated := []corev1.Taint{taint("dedicated", corev1.TaintEffectNoSchedule)}
	registered := map[string]string{karpv1.LabelNodePool: "default", karpv1.LabelRegistered: "true"}
	initialized := map[string]string{karpv1.LabelNodePool: "default", karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true"}
	tests := map[string]struct {
		node *corev1.Node
		want []corev1.Taint
	}{
		"before registration the claim's taints count":                      {node: makeNode("n", "p", nil, all...), want: dedicated},
		"PROV-045 startup and ephemeral taints of a young node are nothing": {node: makeNode("n", "p", registered, all...), want: dedicated},
		"PROV-046 all count once it is initialized":                         {node: makeNode("n", "p", initialized, all...), want: all},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, []runtime.Object{tc.node}, []runtime.Object{makeClaim("c", "p")}, nil)
			require.Equal(t, tc.want, w.node(t, "n", any).Taints)
		})
	}
}

func TestNodesAndClaimsJoinByProviderID(t *testing.T) {
	t.Parallel()
	w := start(t, []runtime.Object{makeNode("foreign", "", nil)}, []runtime.Object{makeClaim("c", ""), makeClaim("launched", "p1")}, nil)
	require.Equal(t, "launched", w.node(t, "launched", any).ClaimName)
	require.Empty(t, w.node(t, "foreign", any).ClaimName, "an empty provider ID never matches")

	_, err := w.kube.CoreV1().Nodes().Create(t.Context(), makeNode("n1", "p1", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	n := w.node(t, "n1", any)
	require.Equal(t, "launched", n.ClaimName)
	require.Equal(t, "a", n.Labels["team"], "the claim's labels reach the node at registration")
	require.EqualValues(t, 2000, n.Allocatable.MilliCPU)
	snapshot := w.state.Snapshot()
	require.Len(t, snapshot.Nodes, 3, "the claim is counted once")
	require.Equal(t, resources.FromList(list("2")).Add(resources.FromList(list("4"))).With(karpv1.ResourceNodes, 2), snapshot.PoolUsage["default"])

	require.NoError(t, w.kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	require.Empty(t, w.node(t, "launched", any).Name, "without its node the claim is in flight again")
}

func TestUnlaunchedClaimsAreTakenForTheLeastOfTheirTypes(t *testing.T) {
	t.Parallel()
	small := &catalog.InstanceType{Name: "small", Capacity: resources.FromList(list("2"))}
	large := &catalog.InstanceType{Name: "large", Capacity: resources.FromList(list("8"))}
	w := start(t, nil, nil, func(*karpv1.NodeClaim) []*catalog.InstanceType { return []*catalog.InstanceType{large, small} })
	before := w.state.Snapshot().Generation
	w.state.Track(makeClaim("c", ""))
	n := w.node(t, "c", any)
	require.Equal(t, small.Capacity, n.Allocatable)
	require.Equal(t, large.Capacity, n.Capacity, "limits are charged for the largest")
	require.Greater(t, w.state.Snapshot().Generation, before)
}

func TestPodsPromisesAndHiding(t *testing.T) {
	t.Parallel()
	w := start(t, []runtime.Object{makeNode("n", "p", nil), makePod("bound", "n")}, []runtime.Object{makeClaim("c", "p")}, nil)
	now := time.Unix(0, 0)
	w.promises.Promise(makePod("waiting", ""), "c", "", now.Add(time.Hour), now)
	w.promises.Promise(makePod("bound", "n"), "c", "n", now.Add(time.Hour), now)
	n := w.node(t, "n", func(n *cluster.Node) bool { return len(n.Pods) == 1 })
	require.Len(t, n.Promised, 1, "a bound pod takes room once")
	require.Equal(t, "waiting", n.Promised[0].Name)

	require.Same(t, w.state.Snapshot().Nodes[0].Node, n.Node)
	w.state.Hide("n")
	require.True(t, w.node(t, "n", any).Deleting)
	w.state.Unhide("n")
	require.False(t, w.node(t, "n", any).Deleting)

	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "bound", metav1.DeleteOptions{}))
	w.node(t, "n", func(n *cluster.Node) bool { return len(n.Pods) == 0 })
}

func TestDaemonPods(t *testing.T) {
	t.Parallel()
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cni", UID: "ds"},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("1")}}}},
		}},
	}
	w := start(t, []runtime.Object{set}, nil, nil)
	daemons := func() []*corev1.Pod { return w.state.Snapshot().Daemons }
	require.Len(t, daemons(), 1)
	require.EqualValues(t, 1000, resources.PodRequests(daemons()[0]).MilliCPU)

	live := makePod("cni-x", "n")
	live.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	live.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("2")}}}
	live.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	_, err := w.kube.CoreV1().Pods("ns").Create(t.Context(), live, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return resources.PodRequests(daemons()[0]).MilliCPU == 2000 }, 10*time.Second, 5*time.Millisecond)
	require.Nil(t, daemons()[0].Spec.Affinity, "the controller's pin to the live node is dropped")
	require.Empty(t, daemons()[0].Spec.NodeName)
}
