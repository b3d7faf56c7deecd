package provisioner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/solver"
)

func TestRefusalGroupsPoolsByReason(t *testing.T) {
	t.Parallel()
	reason := func(pool, text string) solver.PoolReason { return solver.PoolReason{Pool: pool, Reason: text} }
	tests := map[string]struct {
		reasons []solver.PoolReason
		want    string
	}{
		"no pool at all": {reasons: []solver.PoolReason{reason("", "no nodepools found")}, want: "no new node can help: no nodepools found"},
		"one pool":       {reasons: []solver.PoolReason{reason("a", "too small")}, want: "no new node can help: nodepool a: too small"},
		"equal reasons share a clause, in the order of first mention": {
			reasons: []solver.PoolReason{reason("b", "too small"), reason("c", "tainted"), reason("a", "too small")},
			want:    "no new node can help: nodepools b, a: too small; nodepool c: tainted",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, refusal(tc.reasons))
		})
	}
	long := refusal([]solver.PoolReason{reason("a", strings.Repeat("ä", 2000))})
	require.LessOrEqual(t, len(long), maxRefusal)
	require.True(t, strings.HasSuffix(long, "..."))
}

func TestWhyNotReady(t *testing.T) {
	t.Parallel()
	ready := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: karpv1.ConditionReady, Status: status, ObservedGeneration: generation, Reason: "Why", Message: "because"}}
	}
	replicas := int64(1)
	tests := map[string]struct {
		pool karpv1.NodePool
		want string
	}{
		"ready": {pool: karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: karpv1.NodePoolStatus{Conditions: ready("True", 2)}}},
		"the class is at fault": {pool: karpv1.NodePool{Status: karpv1.NodePoolStatus{Conditions: append(ready("False", 0),
			metav1.Condition{Type: karpv1.ConditionNodeClassReady, Status: "False", Message: "EC2NodeClass default is being deleted"})}}, want: "it is not ready: EC2NodeClass default is being deleted"},
		"PROV-005 not ready":         {pool: karpv1.NodePool{Status: karpv1.NodePoolStatus{Conditions: ready("False", 0)}}, want: "it is not ready: Why because"},
		"PROV-006 being deleted":     {pool: karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, Status: karpv1.NodePoolStatus{Conditions: ready("True", 0)}}, want: "it is being deleted"},
		"static":                     {pool: karpv1.NodePool{Spec: karpv1.NodePoolSpec{Replicas: &replicas}, Status: karpv1.NodePoolStatus{Conditions: ready("True", 0)}}, want: "it is static (spec.replicas is set)"},
		"not looked at yet":          {want: "it has not been checked yet"},
		"changed since it was ready": {pool: karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: karpv1.NodePoolStatus{Conditions: ready("True", 2)}}, want: "its latest change has not been checked yet"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, whyNotReady(&tc.pool))
		})
	}
	was, is := tests["not looked at yet"].pool, tests["ready"].pool
	require.True(t, poolChanged(&was, &is), "a pool that has become ready may help refused pods")
	require.False(t, poolChanged(&is, &is))
}

func TestWaitsForNode(t *testing.T) {
	t.Parallel()
	require.True(t, waitsForNode(&corev1.Pod{}))
	require.False(t, waitsForNode(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}))
	require.False(t, waitsForNode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}))
	require.False(t, waitsForNode(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}))
}

func TestOptionsNameTheFault(t *testing.T) {
	t.Parallel()
	o, err := Options{}.Complete()
	require.NoError(t, err)
	require.Equal(t, []string{"berth"}, o.SchedulerNames)
	_, err = Options{NodeCost: -1}.Complete()
	require.ErrorContains(t, err, "nodeCost -1 is negative")
}
