package provisioner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/plugins/schedulertest"
	"github.com/berth-dev/berth/provisioner/promise"
)

func running(name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := waiting(name, cpu, change...)
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// The kubelet still holds two CPUs for the pod although one is asked for, so the node is full.
func TestShrinkingPods(t *testing.T) {
	t.Parallel()
	t.Run("PROV-079", func(t *testing.T) {
		t.Parallel()
		shrinks := running("shrinks", "n", "1", func(p *corev1.Pod) {
			held := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "c", AllocatedResources: held, Resources: &corev1.ResourceRequirements{Requests: held},
			}}
		})
		pod := waiting("p", "1")
		w := open(t, node("n", "a", "2"), shrinks, pod)
		w.claim(t, w.verdicts(t, pod)["p"])
	})
	t.Run("PROV-079 afterwards its room is free", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1")
		w := open(t, node("n", "a", "2"), running("shrunk", "n", "1"), pod)
		require.Equal(t, "n", w.verdicts(t, pod)["p"].Node)
	})
}

// What devices a new node will have is not known before it runs.
func TestResourceClaims(t *testing.T) {
	t.Parallel()
	t.Run("PROV-076", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
		})
		w := open(t, pod)
		e := w.verdicts(t, pod)["p"]
		require.Equal(t, promise.Refused, e.State)
		require.Contains(t, e.Reason, "Dynamic Resource Allocation requirements that are not yet supported")
		require.Empty(t, w.claims(t))
		w.heard(t, "FailedScheduling")
	})
}

const spreadConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: berth
  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]
`

// replicas makes a ReplicaSet with its pods.
func replicas(n int, name, cpu string) (*appsv1.ReplicaSet, []*corev1.Pod) {
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, waiting(fmt.Sprintf("%s-%d", name, i), cpu, func(p *corev1.Pod) {
			p.Labels["app"] = name
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		}))
	}
	return set, pods
}

func TestDefaultConstraints(t *testing.T) {
	t.Parallel()
	// zonesOf counts the pods by where their new nodes must be; one node could hold them all.
	zonesOf := func(t *testing.T, config string, pods []*corev1.Pod, objects ...runtime.Object) map[string]int {
		t.Helper()
		for _, pod := range pods {
			objects = append(objects, pod)
		}
		w := openWith(t, config, objects...)
		found := map[string]int{}
		for _, e := range w.verdicts(t, pods...) {
			found[strings.Join(w.zones(t, e), "")]++
			require.Empty(t, e.Pod.Spec.TopologySpreadConstraints, "promises are about the pods of the cluster")
		}
		return found
	}
	t.Run("PROV-077", func(t *testing.T) {
		t.Parallel()
		set, pods := replicas(6, "web", "100m")
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, zonesOf(t, spreadConfig, pods, set))
	})
	t.Run("PROV-077 the pods of a service, too", func(t *testing.T) {
		t.Parallel()
		_, pods := replicas(3, "web", "100m")
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, zonesOf(t, spreadConfig, pods, service))
	})
	t.Run("PROV-077 not pods that nothing selects", func(t *testing.T) {
		t.Parallel()
		require.Len(t, zonesOf(t, spreadConfig, []*corev1.Pod{waiting("p", "100m"), waiting("q", "100m")}), 1)
	})
	t.Run("PROV-077 not pods with constraints of their own", func(t *testing.T) {
		t.Parallel()
		set, pods := replicas(3, "web", "100m")
		own := corev1.TopologySpreadConstraint{MaxSkew: 3, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: set.Spec.Selector}
		for _, pod := range pods {
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{own}
		}
		w := openWith(t, spreadConfig, set, pods[0], pods[1], pods[2])
		claims := map[string]bool{}
		for _, e := range w.verdicts(t, pods...) {
			claims[e.Claim] = true
		}
		require.Len(t, claims, 1, "a skew of 3 lets all of them onto one node")
	})
	t.Run("without default constraints", func(t *testing.T) {
		t.Parallel()
		set, pods := replicas(6, "web", "100m")
		require.Len(t, zonesOf(t, plainConfig, pods, set), 1)
	})
}

// The selector is deduced for each pod, so one in the configuration is a mistake.
func TestDefaultConstraintsTakeNoSelector(t *testing.T) {
	t.Parallel()
	t.Run("PROV-078", func(t *testing.T) {
		t.Parallel()
		config := strings.Replace(spreadConfig, "DoNotSchedule}", "DoNotSchedule, labelSelector: {matchLabels: {app: web}}}", 1)
		_, err := schedulertest.New(t.Context(), schedulertest.NewClient(), []byte(config), nil)
		require.ErrorContains(t, err, "constraint must not define a selector, as they deduced for each pod")
	})
}
