package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// eagerPool consolidates whatever has been quiet for a moment.
const eagerPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata: {labels: {generation: one}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge, m5.2xlarge]}
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 5s
    budgets: [{nodes: "100%"}]
`

// capacity is the cpu of all claims that are not leaving, in cores.
func (s *scene) capacity() int64 {
	var cores int64
	for _, claim := range s.claims() {
		if claim.DeletionTimestamp == nil {
			cores += claim.Status.Capacity.Cpu().Value()
		}
	}
	return cores
}

func (s *scene) scale(name string, replicas string) {
	s.t.Helper()
	_, err := shared.Kube.AppsV1().Deployments(s.namespace).Patch(s.t.Context(), name, types.MergePatchType,
		[]byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// A fleet that has become too large shrinks: pods move to where the plan has kept places for them.
func TestFleetShrinksWithItsLoad(t *testing.T) {
	s := newScene(t)
	startScheduler(t)
	s.apply(nodeClass, eagerPool, deployment("web", 24, zoneSpread))
	s.running(24)
	require.Greater(t, s.capacity(), int64(8))
	s.scale("web", "5")
	s.eventually("the fleet has shrunk", func() bool { return s.capacity() <= 6 })
	s.running(5)
	s.eventually("nothing is left behind", func() bool { return shared.LivingInstances() == len(s.claims()) })
	s.scale("web", "0")
	s.eventually("empty nodes go", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}

// A change of the pool's template replaces its nodes one after another, and no pod waits for a node.
func TestDriftedNodesAreReplaced(t *testing.T) {
	s := newScene(t)
	startScheduler(t)
	s.apply(nodeClass, eagerPool, deployment("web", 6, zoneSpread))
	s.running(6)
	old := map[string]bool{}
	for _, claim := range s.claims() {
		old[claim.Name] = true
	}
	_, err := shared.Karpenter.KarpenterV1().NodePools().Patch(t.Context(), "default", types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"labels":{"generation":"two"}}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.eventually("every node is of the new generation", func() bool {
		claims := s.claims()
		for _, claim := range claims {
			if old[claim.Name] || claim.Labels["generation"] != "two" {
				return false
			}
		}
		return len(claims) > 0
	})
	s.running(6)
	s.scale("web", "0")
	s.eventually("empty nodes go", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}

// A node that reaches its age is replaced before its deadline.
func TestExpiringNodesAreReplacedInTime(t *testing.T) {
	s := newScene(t)
	startScheduler(t)
	s.apply(nodeClass, eagerPool)
	_, err := shared.Karpenter.KarpenterV1().NodePools().Patch(t.Context(), "default", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"expireAfter":"60s"}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.apply(deployment("web", 2, ""))
	s.running(2)
	first := s.claims()[0]
	require.NotNil(t, first.Spec.ExpireAfter.Duration)
	s.eventually("the first node is gone", func() bool {
		_, err := shared.Karpenter.KarpenterV1().NodeClaims().Get(t.Context(), first.Name, metav1.GetOptions{})
		return err != nil
	})
	s.running(2)
	require.NotEmpty(t, s.claims())
	require.NotEqual(t, first.UID, s.claims()[0].UID)
	s.scale("web", "0")
	s.eventually("empty nodes go", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}
