package provisioner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
)

// deleting makes a node that has been told to go.
func deleting(name, zone, cpu string) *corev1.Node {
	return node(name, zone, cpu, func(n *corev1.Node) {
		n.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.Finalizers = []string{"karpenter.sh/termination"}
	})
}

// runningOn makes a ReplicaSet whose pods run on the node.
func runningOn(node string, n int, name, cpu string) []*corev1.Pod {
	_, pods := replicas(n, name, cpu)
	for _, pod := range pods {
		pod.Spec.NodeName, pod.Status = node, corev1.PodStatus{Phase: corev1.PodRunning}
	}
	return pods
}

func objects(pods []*corev1.Pod, more ...runtime.Object) []runtime.Object {
	for _, pod := range pods {
		more = append(more, pod)
	}
	return more
}

func TestPodsOfNodesThatGoGetTheirPlacesBeforeTheyLeave(t *testing.T) {
	t.Parallel()
	t.Run("PROV-047", func(t *testing.T) {
		t.Parallel()
		pods := runningOn("n", 2, "web", "1")
		w := open(t, objects(pods, deleting("n", "b", "2"))...)
		got := w.verdicts(t, pods...)
		claim := w.claim(t, got["web-0"])
		require.Equal(t, claim.Name, got["web-1"].Claim, "one node is enough for both")
		require.Len(t, w.claims(t), 1)
		for _, pod := range pods {
			_, err := w.kube.Client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
			require.NoError(t, err, "nobody has been evicted")
		}

		// The place outlives the pod, and goes to the one that its controller makes instead.
		core := w.kube.Client.CoreV1().Pods("default")
		require.NoError(t, core.Delete(t.Context(), "web-0", metav1.DeleteOptions{}))
		thief := waiting("thief", "1")
		_, err := core.Create(t.Context(), thief, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NotEqual(t, claim.Name, w.verdicts(t, thief)["thief"].Claim)
		_, next := replicas(1, "web", "1")
		next[0].Name, next[0].UID = "web-next", "uid-web-next"
		_, err = core.Create(t.Context(), next[0], metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, claim.Name, w.verdicts(t, next[0])["web-next"].Claim)
		require.Eventually(t, func() bool {
			_, kept := w.promises.Lookup("uid-web-0")
			return !kept
		}, 10*time.Second, 5*time.Millisecond)
		require.Len(t, w.claims(t), 2, "one for the pods that move, one for the other")
	})
	t.Run("PROV-047 also when the deletion comes later, and where there is room", func(t *testing.T) {
		t.Parallel()
		pods := runningOn("n", 1, "web", "1")
		w := open(t, objects(pods, node("n", "b", "2"), node("other", "b", "2"))...)
		_, err := w.kube.Client.CoreV1().Nodes().Update(t.Context(), deleting("n", "b", "2"), metav1.UpdateOptions{})
		require.NoError(t, err)
		e := w.verdicts(t, pods...)["web-0"]
		require.Equal(t, "other", e.Node)
		require.True(t, e.ForSuccessor())
		require.Empty(t, w.claims(t))
	})
	t.Run("PROV-047 they do not count where they are", func(t *testing.T) {
		t.Parallel()
		pods := runningOn("n", 1, "web", "1")
		pods[0].Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}}}
		pods[0].Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "b"}
		w := open(t, objects(pods, deleting("n", "b", "2"))...)
		require.Equal(t, []string{"b"}, w.zones(t, w.verdicts(t, pods...)["web-0"]))
	})
}

// Of two pods on the node, one may move. The other gets nothing, in the same plan.
func TestPodsThatStayGetNoOtherPlace(t *testing.T) {
	t.Parallel()
	budget := func(change func(*policyv1.PodDisruptionBudgetSpec)) runtime.Object {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "stays"}}
		b.Status.DisruptionsAllowed = 1 // what it says now does not matter
		change(&b.Spec)
		return b
	}
	second := budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromInt32(1)) })
	second.(*policyv1.PodDisruptionBudget).Name = "b2"
	tests := map[string]struct {
		stays   func(*corev1.Pod)
		objects []runtime.Object
		moves   bool
	}{
		"PROV-048 do-not-disrupt":    {stays: func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }},
		"PROV-049 maxUnavailable 0":  {objects: []runtime.Object{budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromInt32(0)) })}},
		"PROV-049 maxUnavailable 0%": {objects: []runtime.Object{budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromString("0%")) })}},
		"PROV-049 minAvailable 100%": {objects: []runtime.Object{budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromString("100%")) })}},
		"PROV-049 several budgets":   {objects: []runtime.Object{budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromInt32(1)) }), second}},
		"PROV-049 not one that blocks only now": {
			objects: []runtime.Object{func() runtime.Object {
				b := budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromInt32(1)) })
				b.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed = 0
				return b
			}()},
			moves: true,
		},
		"a daemon":                      {stays: func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }},
		"a pod that nobody makes again": {stays: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"a pod of another scheduler":    {stays: func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stays, moves := runningOn("n", 1, "stays", "500m")[0], runningOn("n", 1, "moves", "500m")[0]
			if tc.stays != nil {
				tc.stays(stays)
			}
			w := open(t, append(tc.objects, deleting("n", "b", "2"), stays, moves)...)
			w.claim(t, w.verdicts(t, moves)["moves-0"])
			_, promised := w.promises.Lookup(stays.UID)
			require.Equal(t, tc.moves, promised)
		})
	}
}

// The data goes with the node, so the successor may run anywhere in reach of nothing but the zone. A pod
// that waits for such a volume waits for its node.
func TestLocalVolumes(t *testing.T) {
	t.Parallel()
	local := func() []runtime.Object {
		claim, volume := bound("c", map[string]string{corev1.LabelHostname: "n", corev1.LabelTopologyZone: "b"})
		volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt"}}
		return []runtime.Object{claim, volume}
	}
	t.Run("PROV-036", func(t *testing.T) {
		t.Parallel()
		pods := runningOn("n", 1, "db", "1")
		uses("c")(pods[0])
		w := open(t, objects(pods, append(local(), deleting("n", "b", "2"))...)...)
		require.Equal(t, []string{"b"}, w.zones(t, w.verdicts(t, pods...)["db-0"]))
	})
	t.Run("PROV-036 a waiting pod goes where its volume is", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1", uses("c"))
		w := open(t, append(local(), node("n", "b", "2"), node("a", "b", "2"), pod)...)
		require.Equal(t, "n", w.verdicts(t, pod)["p"].Node)
	})
	t.Run("PROV-036 and no node is bought for it elsewhere", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1", uses("c"))
		w := open(t, append(local(), pod)...)
		require.Equal(t, promise.Refused, w.verdicts(t, pod)["p"].State)
		require.Empty(t, w.claims(t))
	})
}
