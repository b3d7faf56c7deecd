package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

const staticPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec:
  replicas: 2
  limits: {nodes: 3}
  template:
    metadata: {labels: {generation: one}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
  disruption: {budgets: [{nodes: "100%"}]}
`

// A static pool has its nodes before any pod, keeps its number, rolls them within its limit, and shrinks.
func TestStaticPoolKeepsItsNumber(t *testing.T) {
	s := newScene(t)
	startScheduler(t, "FEATURE_GATES=StaticCapacity=true")
	s.apply(nodeClass, staticPool)
	ready := func(count int, generation string) func() bool {
		return func() bool {
			pool, err := shared.Karpenter.KarpenterV1().NodePools().Get(t.Context(), "fixed", metav1.GetOptions{})
			claims := s.claims()
			return err == nil && pool.Status.Nodes == int64(count) && len(claims) == count && !slices.ContainsFunc(claims, func(c karpv1.NodeClaim) bool {
				return c.DeletionTimestamp != nil || c.Labels["generation"] != generation || c.Status.NodeName == ""
			})
		}
	}
	change := func(patch string) {
		t.Helper()
		_, err := shared.Karpenter.KarpenterV1().NodePools().Patch(t.Context(), "fixed", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	s.eventually("two nodes without a pod", ready(2, "one"))
	s.apply(deployment("web", 2, ""))
	s.running(2)
	require.Len(t, s.claims(), 2, "pods use the nodes that are there")

	change(`{"spec":{"template":{"metadata":{"labels":{"generation":"two"}}}}}`)
	most := 0
	s.eventually("both nodes are replaced", func() bool {
		most = max(most, len(s.claims()))
		return ready(2, "two")()
	})
	require.LessOrEqual(t, most, 3, "within the limit of nodes")
	s.running(2)

	change(`{"spec":{"replicas":1}}`)
	s.eventually("one node is left", ready(1, "two"))
	change(`{"spec":{"replicas":0}}`)
	s.scale("web", "0")
	s.eventually("none is left", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}
