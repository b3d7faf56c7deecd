package disruption_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

func TestDISR001EmptyNodeIsDeleted(t *testing.T) {
	t.Parallel()
	daemon := makePod("daemon", "n1", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	})
	w := newWorld(append(nodes("n1", "n2"), makePool(), daemon, makePod("busy", "n2"))...)
	var tainted, marked bool
	w.ours.PrependReactor("delete", "nodeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		tainted = w.isTainted(t, "n1")
		marked = meta.IsStatusConditionTrue(w.stored(t, "n1-claim").Status.Conditions, karpv1.ConditionDisruptionReason)
		return false, nil, nil
	})
	w.start(t)
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "the empty node goes")
	require.True(t, tainted, "it was tainted first")
	require.True(t, marked, "its claim said why first")
	w.rounds(t, 2)
	require.NotNil(t, w.claim("n2-claim"), "the busy node stays")
	require.True(t, w.has("Normal DisruptionTerminating Disrupting Node: Empty"))
	require.InDelta(t, 1, w.metric(t, "karpenter_voluntary_disruption_decisions_total", map[string]string{"decision": "delete", "reason": "empty", "consolidation_type": "empty"}), 0)
	require.InDelta(t, 1, w.metric(t, "karpenter_nodeclaims_disrupted_total", map[string]string{
		"reason": "empty", "nodepool": "default", "capacity_type": "spot", "consolidation_policy": "when_empty", "termination_mode": "graceful",
	}), 0, "OPS-006")
}

func TestNodesThatStay(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(w *world, node *corev1.Node, claim *karpv1.NodeClaim, pool *karpv1.NodePool)
		pod    *corev1.Pod
		event  string
	}{
		"a node with a pod": {pod: makePod("p", "n1")},
		"DISR-007 the pool never consolidates": {
			change: func(_ *world, _ *corev1.Node, _ *karpv1.NodeClaim, pool *karpv1.NodePool) {
				pool.Spec.Disruption.ConsolidateAfter = karpv1.NeverElapses()
			},
			event: `Normal Unconsolidatable NodePool "default" has consolidation disabled`,
		},
		"DISR-027 the node asks not to be disrupted": {
			change: func(_ *world, node *corev1.Node, _ *karpv1.NodeClaim, _ *karpv1.NodePool) {
				node.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			},
			event: `Normal DisruptionBlocked Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation`,
		},
		"DISR-035 the budget is zero": {
			change: func(_ *world, _ *corev1.Node, _ *karpv1.NodeClaim, pool *karpv1.NodePool) {
				pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
			},
			event: "Normal DisruptionBlocked No allowed disruptions for disruption reason Empty due to blocking budget",
		},
		"DISR-041 the budget cannot be read": {
			change: func(_ *world, _ *corev1.Node, _ *karpv1.NodeClaim, pool *karpv1.NodePool) {
				pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "5", Schedule: new("a b c d e"), Duration: &metav1.Duration{Duration: time.Hour}}}
			},
		},
		"DISR-077 a pod was promised to it": {
			change: func(w *world, _ *corev1.Node, claim *karpv1.NodeClaim, _ *karpv1.NodePool) {
				w.promises.Promise(makePod("waiting", ""), claim.Name, "n1", t0.Add(time.Hour), t0)
			},
			event: "Normal DisruptionBlocked Node is nominated for a pending pod",
		},
		"a pod is on its way there": {
			change: func(w *world, _ *corev1.Node, _ *karpv1.NodeClaim, _ *karpv1.NodePool) { w.hider.taken["n1"] = true },
		},
		"a static pool keeps its nodes": {
			change: func(_ *world, _ *corev1.Node, _ *karpv1.NodeClaim, pool *karpv1.NodePool) {
				pool.Spec.Replicas = new(int64(1))
			},
		},
		"a node of another provider": {
			change: func(_ *world, _ *corev1.Node, claim *karpv1.NodeClaim, pool *karpv1.NodePool) {
				claim.Spec.NodeClassRef.Group, pool.Spec.Template.Spec.NodeClassRef.Group = "karpenter.azure.com", "karpenter.azure.com"
			},
		},
		"a node that is not initialized": {
			change: func(_ *world, node *corev1.Node, _ *karpv1.NodeClaim, _ *karpv1.NodePool) {
				delete(node.Labels, karpv1.LabelInitialized)
			},
			event: "Normal DisruptionBlocked Node isn't initialized",
		},
		"a protected daemon": {
			pod: makePod("d", "n1", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
				p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			}),
			event: `Normal DisruptionBlocked Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=ns/d)`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, claim := makeNode("n1")
			pool := makePool()
			objects := []runtime.Object{node, claim, pool}
			if tc.pod != nil {
				objects = append(objects, tc.pod)
			}
			w := newWorld()
			if tc.change != nil {
				tc.change(w, node, claim, pool)
			}
			promises, taken := w.promises, w.hider.taken
			w = newWorld(objects...)
			w.promises, w.hider.taken = promises, taken
			w.start(t)
			w.rounds(t, 3)
			require.NotNil(t, w.claim("n1-claim"))
			require.False(t, w.isTainted(t, "n1"))
			require.False(t, w.hider.isHidden("n1"))
			if tc.event != "" {
				require.True(t, w.has(tc.event), "%q", w.seen)
			}
		})
	}
}

func TestDISR006ConsolidatableFollowsTheLastPodEvent(t *testing.T) {
	t.Parallel()
	node, claim := makeNode("n1")
	claim.Status.LastPodEventTime = metav1.NewTime(t0)
	pool := makePool(func(p *karpv1.NodePool) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.DurationOf(5 * time.Minute)
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
	})
	w := newWorld(node, claim, pool)
	w.start(t)
	consolidatable := func() bool {
		return meta.IsStatusConditionTrue(w.claim("n1-claim").Status.Conditions, karpv1.ConditionConsolidatable)
	}
	w.rounds(t, 2)
	require.False(t, consolidatable())
	w.clock.SetTime(t0.Add(5 * time.Minute))
	w.eventually(t, consolidatable, "it becomes consolidatable")

	w.eventually(t, func() bool {
		moved := w.claim("n1-claim")
		moved.Status.LastPodEventTime = metav1.NewTime(w.clock.Now().Add(time.Hour))
		_, err := w.ours.KarpenterV1().NodeClaims().UpdateStatus(t.Context(), moved, metav1.UpdateOptions{})
		return err == nil && !consolidatable() // again, since the fake lets writes of an older version pass
	}, "a pod event starts the time over")
}

func TestDISR036BudgetLimitsNodesAtOnce(t *testing.T) {
	t.Parallel()
	var objects []runtime.Object
	for i := range 19 {
		objects = append(objects, nodes(fmt.Sprintf("n%0*d", i+1, i))...) // longer names are dearer
	}
	objects = append(objects, makePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}} }))
	w := newWorld(objects...)
	w.keepDeleted(t)
	w.start(t)
	w.rounds(t, 5)
	var deleting []string
	list, err := w.ours.KarpenterV1().NodeClaims().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, claim := range list.Items {
		if claim.DeletionTimestamp != nil {
			deleting = append(deleting, claim.Status.NodeName)
		}
	}
	require.ElementsMatch(t, []string{fmt.Sprintf("n%0*d", 18, 17), fmt.Sprintf("n%0*d", 19, 18)}, deleting, "the dearest two")
	w.eventually(t, func() bool {
		return w.metric(t, "karpenter_nodepools_nodes_consuming_budgets", map[string]string{"nodepool": "default", "reason": "Empty"}) == 2
	}, "both use up the budget")
	require.InDelta(t, 2, w.metric(t, "karpenter_nodepools_allowed_disruptions", map[string]string{"nodepool": "default", "reason": "Empty"}), 0)
}

func TestDISR042NodeIsGivenBackWhenAPodCame(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"seen by the API server only": func(w *world) {
			w.kube.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
				if action.(k8stesting.ListAction).GetListRestrictions().Fields.Empty() {
					return false, nil, nil // the informer's
				}
				return true, &corev1.PodList{Items: []corev1.Pod{*makePod("late", "n1")}}, nil
			})
		},
		"DISR-043 that must not be disrupted": func(w *world) {
			w.kube.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
				if action.(k8stesting.ListAction).GetListRestrictions().Fields.Empty() {
					return false, nil, nil
				}
				late := makePod("late", "n1", func(p *corev1.Pod) {
					p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
					p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
				})
				return true, &corev1.PodList{Items: []corev1.Pod{*late}}, nil
			})
		},
		"promised right after the node was hidden": func(w *world) {
			w.hider.on = func(node string) { w.promises.Promise(makePod("late", ""), "", node, t0.Add(time.Hour), t0) }
		},
		"the pods cannot be listed": func(w *world) {
			w.kube.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
				if action.(k8stesting.ListAction).GetListRestrictions().Fields.Empty() {
					return false, nil, nil
				}
				return true, nil, apierrors.NewServiceUnavailable("down")
			})
		},
		"the claim cannot be deleted": func(w *world) {
			w.ours.PrependReactor("delete", "nodeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("down")
			})
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(append(nodes("n1"), makePool())...)
			prepare(w)
			var taints atomic.Int32
			w.kube.PrependReactor("patch", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
				if strings.Contains(string(action.(k8stesting.PatchAction).GetPatch()), karpv1.TaintKeyDisrupted) {
					taints.Add(1)
				}
				return false, nil, nil
			})
			w.start(t)
			w.rounds(t, 3)
			require.LessOrEqual(t, taints.Load(), int32(1), "the node rests before it is tried again")
			require.NotNil(t, w.claim("n1-claim"))
			w.eventually(t, func() bool {
				return !w.isTainted(t, "n1") && !w.hider.isHidden("n1") &&
					meta.FindStatusCondition(w.claim("n1-claim").Status.Conditions, karpv1.ConditionDisruptionReason) == nil
			}, "everything is taken back")
			require.False(t, w.has("Normal DisruptionTerminating Disrupting Node: Empty"))
		})
	}
}

func TestDISR044BudgetIsCheckedAgain(t *testing.T) {
	t.Parallel()
	pool := makePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}} })
	w := newWorld(append(nodes("n1", "other"), pool, makePod("busy", "other"))...)
	once := sync.OnceFunc(func() { w.hider.model.Hide("other") }) // as if another method had chosen it
	w.hider.on = func(string) { once() }
	w.start(t)
	w.rounds(t, 3)
	require.NotNil(t, w.claim("n1-claim"))
	require.False(t, w.hider.isHidden("n1"))
}

func TestDISR054MarksLeftByARestartAreTakenOff(t *testing.T) {
	t.Parallel()
	node, claim := makeNode("n1")
	node.Spec.Taints = []corev1.Taint{{Key: "keep", Effect: corev1.TaintEffectNoSchedule}, karpv1.DisruptedNoScheduleTaint}
	claim.Status.Conditions = append(claim.Status.Conditions, metav1.Condition{Type: karpv1.ConditionDisruptionReason, Status: metav1.ConditionTrue, Reason: "Empty"})
	leaving, leavingClaim := makeNode("leaving")
	leaving.Spec.Taints = []corev1.Taint{karpv1.DisruptedNoScheduleTaint}
	leavingClaim.DeletionTimestamp, leavingClaim.Finalizers = &metav1.Time{Time: t0}, []string{karpv1.TerminationFinalizer}
	w := newWorld(node, claim, leaving, leavingClaim, makePool(), makePod("busy", "n1"))
	w.start(t)
	w.eventually(t, func() bool {
		return !w.isTainted(t, "n1") && meta.FindStatusCondition(w.claim("n1-claim").Status.Conditions, karpv1.ConditionDisruptionReason) == nil
	}, "the marks go")
	got, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []corev1.Taint{{Key: "keep", Effect: corev1.TaintEffectNoSchedule}}, got.Spec.Taints)
	require.True(t, w.isTainted(t, "leaving"), "a node that is leaving keeps its taint")
}

func TestDISR084OneNodeThatCannotBeTaintedKeepsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(append(nodes("n1", "n2"), makePool())...)
	w.kube.PrependReactor("patch", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.(k8stesting.PatchAction).GetName() == "n1" {
			return true, nil, apierrors.NewServiceUnavailable("down")
		}
		return false, nil, nil
	})
	w.start(t)
	w.eventually(t, func() bool { return w.claim("n2-claim") == nil }, "the other node goes")
	w.rounds(t, 1)
	require.NotNil(t, w.claim("n1-claim"))
	require.False(t, w.hider.isHidden("n1"))
}

func TestNodeIsShownAgainWhenItsClaimIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(append(nodes("n1"), makePool())...)
	w.start(t)
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "the empty node goes")
	w.eventually(t, func() bool { return !w.hider.isHidden("n1") }, "its name is free for another node")
}

func TestNodesAreShownAgainWhenTheControllerEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(append(nodes("n1"), makePool())...)
	w.keepDeleted(t)
	stop := w.start(t)
	w.eventually(t, func() bool { return w.claim("n1-claim").DeletionTimestamp != nil }, "the empty node goes")
	w.rounds(t, 2)
	require.True(t, w.hider.isHidden("n1"), "it stays hidden while it leaves")
	stop()
	require.False(t, w.hider.isHidden("n1"))
	require.True(t, w.isTainted(t, "n1"))
}

func TestValidationDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(append(nodes("n1"), makePool())...)
	w.options.ValidationDelay = time.Hour
	w.start(t)
	w.rounds(t, 3)
	require.NotNil(t, w.claim("n1-claim"))
	require.False(t, w.hider.isHidden("n1"))
	w.clock.Step(time.Hour)
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "after the delay it goes")
}

func TestOPS017GaugesOfADeletedPoolVanish(t *testing.T) {
	t.Parallel()
	w := newWorld(makePool())
	w.start(t)
	labels := map[string]string{"nodepool": "default", "reason": "Empty"}
	w.eventually(t, func() bool { return w.metric(t, "karpenter_nodepools_allowed_disruptions", labels) > 0 }, "the gauge is there")
	require.NoError(t, w.ours.KarpenterV1().NodePools().Delete(t.Context(), "default", metav1.DeleteOptions{}))
	w.eventually(t, func() bool { return w.metric(t, "karpenter_nodepools_allowed_disruptions", labels) == -1 }, "the gauge vanishes")
}

func TestDisruptedCounterIsShared(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.registry.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "karpenter_nodeclaims_disrupted_total", Help: "NodeClaims whose removal was begun, by reason.",
	}, []string{"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"}))
	w.start(t)
}
