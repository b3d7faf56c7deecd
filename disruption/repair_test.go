package disruption_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/disruption"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

var repairPolicies = []cloud.RepairPolicy{
	{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, Toleration: 30 * time.Minute},
	{ConditionType: "KernelReady", ConditionStatus: corev1.ConditionFalse, Toleration: 10 * time.Minute},
}

// ail gives the node a condition since some time ago.
func ail(node *corev1.Node, kind corev1.NodeConditionType, status corev1.ConditionStatus, since time.Duration) {
	node.Status.Conditions = append(node.Status.Conditions[:0:0], corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(t0.Add(-since))})
}

// fleet is ten nodes with a pod each that nothing may disrupt, of which so many ail.
func fleet(ailing int, since time.Duration) []runtime.Object {
	objects := []runtime.Object{makePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} })}
	for i := range 10 {
		node, claim := makeNode(fmt.Sprintf("n%d", i))
		claim.Status.ImageID = "ami-1"
		if i < ailing {
			ail(node, corev1.NodeReady, corev1.ConditionUnknown, since)
		}
		pod := makePod("p"+node.Name, node.Name, func(p *corev1.Pod) {
			p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		})
		objects = append(objects, node, claim, pod)
	}
	return objects
}

func TestPROV074UnhealthyNodeIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(fleet(1, 29*time.Minute+55*time.Second)...)
	w.repairs = repairPolicies
	w.keepDeleted(t)
	w.start(t)
	w.rounds(t, 2)
	require.Nil(t, w.claim("n0-claim").DeletionTimestamp, "it is given its time")
	w.eventually(t, func() bool { return w.claim("n0-claim").DeletionTimestamp != nil }, "then it goes, whatever budgets and pods say")
	at, err := time.Parse(time.RFC3339, w.claim("n0-claim").Annotations[karpv1.AnnotationTerminationTimestamp])
	require.NoError(t, err)
	require.False(t, at.After(w.clock.Now()), "its termination is forced from the start")
	require.False(t, at.Before(t0), "from when it was given up")
	w.rounds(t, 3)
	require.Nil(t, w.claim("n1-claim").DeletionTimestamp, "healthy nodes stay")
	require.True(t, w.has("Normal DisruptionTerminating Disrupting Node: Unhealthy"))
	require.InDelta(t, 1, w.metric(t, "karpenter_nodeclaims_disrupted_total", map[string]string{
		"reason": "unhealthy", "nodepool": "default", "capacity_type": "spot", "consolidation_policy": "when_empty", "termination_mode": "forceful",
	}), 0, "counted once")
	require.InDelta(t, 1, w.metric(t, "karpenter_nodeclaims_unhealthy_disrupted_total", map[string]string{
		"condition": "ready", "nodepool": "default", "capacity_type": "spot", "image_id": "ami-1",
	}), 0)
}

func TestPROV075TooManyUnhealthyNodesAreKept(t *testing.T) {
	t.Parallel()
	const blocked = `Warning NodeRepairBlocked 3 of 10 nodes of NodePool "default" are unhealthy, more than %s, so none is replaced; look for a cause that they share, such as network or control plane`
	tests := map[string]struct {
		breaker string
		ailing  int
		event   string // "" when nodes go
	}{
		"a fifth by default":       {ailing: 3, event: fmt.Sprintf(blocked, "20%")},
		"exactly a fifth may go":   {ailing: 2},
		"an absolute number":       {breaker: "2", ailing: 3, event: fmt.Sprintf(blocked, "2")},
		"an absolute number holds": {breaker: "3", ailing: 3},
		"a larger share":           {breaker: "30%", ailing: 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(fleet(tc.ailing, time.Hour)...)
			w.repairs, w.options.MaxUnhealthy = repairPolicies, tc.breaker
			w.start(t)
			w.rounds(t, 3)
			require.Equal(t, tc.event == "", w.claim("n0-claim") == nil)
			if tc.event != "" {
				require.True(t, w.has(tc.event))
			}
		})
	}
}

func TestNodesThatRecoverTogetherAreGivenTime(t *testing.T) {
	t.Parallel()
	w := newWorld(fleet(3, time.Hour)...)
	w.repairs = repairPolicies
	w.start(t)
	w.rounds(t, 1)
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
	ail(node, corev1.NodeReady, corev1.ConditionTrue, 0)
	_, err = w.kube.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.rounds(t, 5)
	require.NotNil(t, w.claim("n0-claim"), "few enough ail now, but they may recover as well")
	w.clock.Step(5 * time.Minute)
	w.eventually(t, func() bool { return w.claim("n0-claim") == nil && w.claim("n2-claim") == nil }, "after five minutes they are given up")
	require.NotNil(t, w.claim("n1-claim"))
}

func TestNodesThatAreNotGivenUp(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world, node *corev1.Node, claim *karpv1.NodeClaim){
		"gate off": func(w *world, node *corev1.Node, _ *karpv1.NodeClaim) {
			w.repairs = nil
			ail(node, corev1.NodeReady, corev1.ConditionUnknown, time.Hour)
		},
		"a condition of no policy": func(_ *world, node *corev1.Node, _ *karpv1.NodeClaim) {
			ail(node, "MyReady", corev1.ConditionFalse, time.Hour)
		},
		"a status of no policy": func(_ *world, node *corev1.Node, _ *karpv1.NodeClaim) {
			ail(node, "KernelReady", corev1.ConditionUnknown, time.Hour)
		},
		"not for long enough": func(_ *world, node *corev1.Node, _ *karpv1.NodeClaim) {
			ail(node, "KernelReady", corev1.ConditionFalse, 9*time.Minute)
		},
		"of another provider": func(_ *world, node *corev1.Node, claim *karpv1.NodeClaim) {
			claim.Spec.NodeClassRef.Group = "karpenter.azure.com"
			ail(node, corev1.NodeReady, corev1.ConditionUnknown, time.Hour)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, claim := makeNode("n1")
			w := &world{repairs: repairPolicies}
			change(w, node, claim)
			w = rebuilt(w, node, claim, makePool(), makePod("p", "n1"))
			w.start(t)
			w.rounds(t, 3)
			require.NotNil(t, w.claim("n1-claim"))
		})
	}
}

// rebuilt is a world with these objects and the other's settings.
func rebuilt(w *world, objects ...runtime.Object) *world {
	fresh := newWorld(objects...)
	fresh.repairs, fresh.options = w.repairs, w.options
	return fresh
}

func TestStandaloneNodesAreJudgedByTheCluster(t *testing.T) {
	t.Parallel()
	objects := fleet(1, time.Hour)
	for i, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			delete(o.Labels, karpv1.LabelNodePool)
		case *karpv1.NodeClaim:
			delete(o.Labels, karpv1.LabelNodePool)
			if i < 4 {
				o.Annotations = map[string]string{karpv1.AnnotationTerminationTimestamp: "soon"}
			}
		}
	}
	w := newWorld(objects...)
	w.repairs = repairPolicies
	w.start(t)
	w.eventually(t, func() bool { return w.claim("n0-claim") == nil }, "one of ten in the cluster goes; a deadline that is no time is replaced")
}

func TestWrongBreakerIsRefused(t *testing.T) {
	t.Parallel()
	_, err := disruption.New(newWorld().deps(t), disruption.Options{MaxUnhealthy: "many"})
	require.EqualError(t, err, `option MaxUnhealthy: "many" is neither a number nor a percentage up to 100%`)
}
