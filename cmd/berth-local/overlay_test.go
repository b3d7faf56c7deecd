package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const overlays = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: devices}
spec:
  requirements: [{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ["7"]}]
  capacity: {vendor.example/device: "4"}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: contract}
spec:
  requirements:
  - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["16"]}
  - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  price: "0.0001"
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: contradiction}
spec:
  requirements: [{key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["16"]}]
  priceAdjustment: "+10%"
`

// A pod asks for a device that no node in the cluster has. The overlay says which machines will have it, and
// what they really cost; when the device plugin has started there, the pod runs.
func TestOverlaysBeforeANodeExists(t *testing.T) {
	s := newScene(t)
	startScheduler(t, "FEATURE_GATES=NodeOverlay=true")
	s.apply(nodeClass, nodePool, overlays)
	t.Cleanup(func() {
		_ = shared.Karpenter.KarpenterV1alpha1().NodeOverlays().DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	state := func(name, kind string) metav1.Condition {
		o, err := shared.Karpenter.KarpenterV1alpha1().NodeOverlays().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return metav1.Condition{}
		}
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil {
			return metav1.Condition{}
		}
		return *c
	}
	s.eventually("the overlays are judged", func() bool {
		return state("devices", "Ready").Status == metav1.ConditionTrue && state("contract", "ValidationSucceeded").Reason == "Conflict"
	})
	require.Contains(t, state("contract", "ValidationSucceeded").Message, "NodeOverlay contradiction sets the price of")
	require.NoError(t, shared.Karpenter.KarpenterV1alpha1().NodeOverlays().Delete(t.Context(), "contradiction", metav1.DeleteOptions{}))
	s.eventually("the conflict is over", func() bool { return state("contract", "Ready").Status == metav1.ConditionTrue })

	s.apply(strings.Replace(deployment("web", 1, ""), "memory: 512Mi}}", "memory: 512Mi, vendor.example/device: 1}, limits: {vendor.example/device: 1}}", 1))
	plugged := func() bool { // what a device plugin does, through the kubelet
		claims := s.claims()
		if len(claims) == 0 || claims[0].Status.NodeName == "" {
			return false
		}
		amounts := `{"vendor.example/device":"4"}`
		_, err := shared.Kube.CoreV1().Nodes().Patch(t.Context(), claims[0].Status.NodeName, types.MergePatchType,
			[]byte(`{"status":{"capacity":`+amounts+`,"allocatable":`+amounts+`}}`), metav1.PatchOptions{}, "status")
		return err == nil
	}
	s.eventually("the pod runs", func() bool {
		pods := s.pods()
		return plugged() && len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning
	})
	require.Len(t, s.claims(), 1)
	claim := s.claims()[0]
	require.Equal(t, "on-demand", claim.Labels["karpenter.sh/capacity-type"], "cheaper than spot, by the overlay")
	require.Equal(t, "16", claim.Labels["karpenter.k8s.aws/instance-cpu"], "the cheapest, by the overlay")
	require.Equal(t, "true", claim.Annotations["karpenter.sh/price-overlay-applied"])
	require.Equal(t, "true", claim.Annotations["karpenter.sh/capacity-overlay-applied"])
	declared := claim.Status.Capacity["vendor.example/device"]
	require.Equal(t, "4", declared.String())
	s.scale("web", "0")
	s.eventually("the empty node goes", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}
