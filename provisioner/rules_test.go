package provisioner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
