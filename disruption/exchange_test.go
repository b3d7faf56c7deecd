package disruption_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/disruption"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/poolhash"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// planner answers every what-if with the same kind of plan, and launches claims without nodes.
type planner struct {
	w     *world
	model disruption.State

	mu        sync.Mutex
	claims    int   // new nodes that each plan has
	homeless  bool  // no pod finds a place
	carryErr  error // of Carry
	carried   [][]string
	forgotten int
	shunned   map[string]bool // by node name, as the last what-if asked
}

func (p *planner) World(context.Context) disruption.World { return &what{p, p.model.Snapshot()} }

type what struct {
	p        *planner
	snapshot *cluster.Snapshot
}

func (w *what) Snapshot() *cluster.Snapshot          { return w.snapshot }
func (w *what) Types(string) []*catalog.InstanceType { return []*catalog.InstanceType{cheapMachine()} }

func cheapMachine() *catalog.InstanceType {
	return &catalog.InstanceType{Name: "cheap", Requirements: requirement.Set{}, Capacity: resources.Vector{Pods: 10}, Offerings: []catalog.Offering{
		{Zone: "a", CapacityType: karpv1.CapacityTypeOnDemand, Price: 1, Available: true, Requirements: requirement.Set{}},
	}}
}

func (w *what) Without(_ context.Context, nodes []*cluster.Node, shun func(*cluster.Node) bool, _ bool) solver.Plan {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.shunned = map[string]bool{}
	for _, node := range w.snapshot.Nodes {
		w.p.shunned[node.Name] = shun(node)
	}
	var plan solver.Plan
	for _, node := range nodes {
		for _, pod := range node.Pods {
			if w.p.homeless {
				plan.Unfit = append(plan.Unfit, solver.Unfit{Pod: pod, Reasons: []solver.PoolReason{{Reason: "nowhere"}}})
			}
		}
	}
	for range w.p.claims {
		plan.Claims = append(plan.Claims, solver.Claim{
			Pool: "default", Types: []*catalog.InstanceType{cheapMachine()}, Cheapest: solver.Choice{Type: "cheap", Price: 1},
			Requirements: requirement.Set{}, Pods: nodes[0].Pods,
		})
	}
	return plan
}

func (p *planner) Carry(ctx context.Context, plan solver.Plan, _ string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.carryErr != nil {
		return nil, p.carryErr
	}
	var created []string
	for i := range plan.Claims {
		name := "new-" + string(rune('a'+len(p.carried)+i))
		_, claim := makeNode(name)
		claim.Name, claim.Status.Conditions = name, nil
		if _, err := p.w.ours.KarpenterV1().NodeClaims().Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		created = append(created, name)
		p.w.promises.Promise(plan.Claims[i].Pods[0].DeepCopy(), name, "", t0.Add(1000*time.Hour), t0)
	}
	p.carried = append(p.carried, created)
	return created, nil
}

func (p *planner) Forget(solver.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten++
}

func (p *planner) count() (carried, forgotten int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.carried), p.forgotten
}

// come makes the node of a launched claim appear, ready and initialized.
func (w *world) come(t *testing.T, name string) {
	t.Helper()
	node, ready := makeNode(name)
	_, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	claim := w.claim(name)
	claim.Status = ready.Status
	_, err = w.ours.KarpenterV1().NodeClaims().UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func underutilized(pool *karpv1.NodePool) {
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.WhenEmptyOrUnderutilized
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
}

func owned(owner string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: new(true)}}
	}
}

// onDemand makes the nodes of the objects on demand, where the price rules are simple.
func onDemand(objects []runtime.Object) []runtime.Object {
	for _, o := range objects {
		if node, ok := o.(*corev1.Node); ok {
			node.Labels[karpv1.LabelCapacityType] = karpv1.CapacityTypeOnDemand
		}
	}
	return objects
}

// planning gives the world a planner; each plan has so many new nodes.
func (w *world) planning(claims int) *planner {
	w.planner = &planner{w: w, claims: claims}
	return w.planner
}

func (w *world) markedFor(name string) string {
	claim := w.claim(name)
	if claim == nil {
		return ""
	}
	if c := meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDisruptionReason); c != nil {
		return c.Reason
	}
	return ""
}

func TestDISR009PodsThatFitElsewhereFreeTheirNode(t *testing.T) {
	t.Parallel()
	w := newWorld(append(onDemand(nodes("n1")), makePool(underutilized), makePod("p", "n1", owned("web")))...)
	w.planning(0)
	w.start(t)
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "the node goes at once: its pods fit elsewhere")
	w.eventually(t, func() bool { return w.has("Normal DisruptionTerminating Disrupting Node: Underutilized") }, "it is told")
	require.InDelta(t, 1, w.metric(t, "karpenter_voluntary_disruption_decisions_total", map[string]string{"decision": "delete", "reason": "underutilized", "consolidation_type": "single"}), 0)
}

func TestDISR010OldNodeGoesWhenTheNewOneIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(append(onDemand(nodes("n1")), makePool(underutilized), makePod("p", "n1", owned("web")))...)
	p := w.planning(1)
	w.start(t)
	w.eventually(t, func() bool { return w.claim("new-a") != nil }, "a replacement is launched")
	require.Eventually(t, func() bool {
		w.clock.Step(10 * time.Millisecond)
		return w.has("Normal DisruptionWaitingReadiness Waiting for readiness to continue disruption")
	}, 10*time.Second, 5*time.Millisecond)
	require.NotNil(t, w.claim("n1-claim"), "the old node stays until the new one is ready")
	require.True(t, w.isTainted(t, "n1"))
	require.True(t, w.hider.isHidden("n1"))
	require.Equal(t, "Underutilized", w.markedFor("n1-claim"))
	w.come(t, "new-a")
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "then it goes")
	carried, forgotten := p.count()
	require.Equal(t, 1, carried, "it was replaced once")
	require.Zero(t, forgotten)
}

func TestDISR052And053ReplacementsThatDoNotCome(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, w *world){
		"DISR-052 the replacement is gone": func(t *testing.T, w *world) {
			t.Helper()
			require.NoError(t, w.ours.KarpenterV1().NodeClaims().Delete(t.Context(), "new-a", metav1.DeleteOptions{}))
		},
		"DISR-053 it is not ready in ten minutes": func(_ *testing.T, w *world) { w.clock.Step(11 * time.Minute) },
	}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(append(onDemand(nodes("n1")), makePool(underutilized), makePod("p", "n1", owned("web")))...)
			p := w.planning(1)
			w.start(t)
			w.eventually(t, func() bool { return w.claim("new-a") != nil }, "a replacement is launched")
			require.Eventually(t, func() bool {
				w.clock.Step(10 * time.Millisecond) // slow enough for the watch to tell of the claim first
				return w.has("Normal DisruptionWaitingReadiness Waiting for readiness to continue disruption")
			}, 10*time.Second, 5*time.Millisecond)
			p.mu.Lock()
			p.homeless = true // so that it is not tried again
			p.mu.Unlock()
			fail(t, w)
			w.eventually(t, func() bool {
				return !w.isTainted(t, "n1") && w.markedFor("n1-claim") == "" && !w.hider.isHidden("n1")
			}, "the old node is given back")
			require.NotNil(t, w.claim("n1-claim"))
			_, forgotten := p.count()
			require.Equal(t, 1, forgotten, "its pods' places are given up")
			failures := map[string]string{"decision": "replace", "reason": "underutilized", "consolidation_type": "single"}
			w.eventually(t, func() bool { return w.metric(t, "karpenter_voluntary_disruption_queue_failures_total", failures) == 1 }, "it is counted")
		})
	}
}

func TestLaunchThatFailsGivesTheNodeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(append(onDemand(nodes("n1")), makePool(underutilized), makePod("p", "n1", owned("web")))...)
	w.planning(1).carryErr = errors.New("limits")
	w.start(t)
	w.eventually(t, func() bool {
		return w.metric(t, "karpenter_voluntary_disruption_failed_validations_total", map[string]string{"consolidation_type": "single"}) >= 1
	}, "it was tried")
	w.planner.mu.Lock()
	w.planner.homeless = true // so that it is not tried again
	w.planner.mu.Unlock()
	w.eventually(t, func() bool { return !w.isTainted(t, "n1") && !w.hider.isHidden("n1") }, "and given back")
	require.NotNil(t, w.claim("n1-claim"))
}

func TestNodesThatAreNotConsolidated(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(w *world, pool *karpv1.NodePool, pod *corev1.Pod)
		event  string
	}{
		"DISR-008 the policy is WhenEmpty": {change: func(_ *world, pool *karpv1.NodePool, _ *corev1.Pod) {
			pool.Spec.Disruption.ConsolidationPolicy = karpv1.WhenEmpty
		}},
		"DISR-019 a pod would become pending": {
			change: func(w *world, _ *karpv1.NodePool, _ *corev1.Pod) { w.planner.homeless = true },
			event:  "Normal Unconsolidatable not all pods would schedule, ns/p => nowhere",
		},
		"DISR-011 it would cost the same": {
			change: func(w *world, _ *karpv1.NodePool, _ *corev1.Pod) { w.planner.claims = 2 },
			event:  "Normal Unconsolidatable Can't replace with a cheaper node",
		},
		"DISR-023 the pod must not be disrupted": {change: func(_ *world, _ *karpv1.NodePool, pod *corev1.Pod) {
			pod.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		}},
		"the budget for this reason is zero": {change: func(_ *world, pool *karpv1.NodePool, _ *corev1.Pod) {
			pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonUnderutilized}}}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, pod := makePool(underutilized), makePod("p", "n1", owned("web"))
			objects := append(onDemand(nodes("n1")), pool, pod)
			w := newWorld()
			w.planning(0)
			tc.change(w, pool, pod)
			fresh := newWorld(objects...)
			fresh.planner = w.planner
			fresh.planner.w = fresh
			fresh.start(t)
			if tc.event != "" {
				fresh.eventually(t, func() bool { return fresh.has(tc.event) }, tc.event)
			}
			fresh.rounds(t, 12)
			require.NotNil(t, fresh.claim("n1-claim"))
			carried, _ := fresh.planner.count()
			require.Zero(t, carried)
		})
	}
}

func TestDISR021And022TargetsMustBeUpAndQuiet(t *testing.T) {
	t.Parallel()
	objects := append(onDemand(nodes("n1", "n2", "n3")), makePod("p", "n1", owned("web")), makePod("q", "n2", owned("web")), makePod("r", "n3", owned("web")),
		makePool(underutilized, func(pool *karpv1.NodePool) {
			pool.Spec.Disruption.ConsolidateAfter = karpv1.DurationOf(30 * time.Minute)
		}))
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			if o.Name == "n3" {
				delete(o.Labels, karpv1.LabelInitialized)
			}
		case *karpv1.NodeClaim:
			if o.Name == "n2-claim" {
				o.Status.LastPodEventTime = metav1.NewTime(t0)
			}
		}
	}
	w := newWorld(objects...)
	p := w.planning(0)
	p.homeless = true
	w.start(t)
	w.eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.shunned != nil }, "a what-if was asked")
	p.mu.Lock()
	defer p.mu.Unlock()
	require.True(t, p.shunned["n2"], "DISR-022: pods came or went there just now")
	require.True(t, p.shunned["n3"], "DISR-021: it is not initialized")
	require.False(t, p.shunned["n1"])
}

// drifted makes the pool's template another one than the claims were made from.
func drifted(objects []runtime.Object) []runtime.Object {
	for _, o := range objects {
		switch o := o.(type) {
		case *karpv1.NodePool:
			o.Annotations = map[string]string{karpv1.AnnotationNodePoolHash: "new", karpv1.AnnotationNodePoolHashVersion: poolhash.HashVersion}
		case *karpv1.NodeClaim:
			o.Annotations = map[string]string{karpv1.AnnotationNodePoolHash: "old", karpv1.AnnotationNodePoolHashVersion: poolhash.HashVersion}
			o.CreationTimestamp = metav1.NewTime(t0)
			o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: karpv1.ConditionLaunched, Status: metav1.ConditionTrue})
		}
	}
	return objects
}

func TestDriftedNodeIsReplaced(t *testing.T) {
	t.Parallel()
	never := func(pool *karpv1.NodePool) { pool.Spec.Disruption.ConsolidateAfter = karpv1.NeverElapses() }
	w := newWorld(drifted(append(nodes("n1"), makePool(never), makePod("p", "n1", owned("web"))))...)
	w.planning(2) // DISR-051: dearer and more of them is no obstacle
	w.start(t)
	w.eventually(t, func() bool { return w.claim("new-a") != nil }, "replacements are launched")
	require.True(t, meta.IsStatusConditionTrue(w.claim("n1-claim").Status.Conditions, karpv1.ConditionDrifted) || w.markedFor("n1-claim") == "Drifted")
	w.come(t, "new-a")
	w.rounds(t, 2)
	require.NotNil(t, w.claim("n1-claim"), "it waits for both")
	w.come(t, "new-b")
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "the drifted node goes")
	w.eventually(t, func() bool { return w.has("Normal DisruptionTerminating Disrupting Node: Drifted") }, "it is told")
}

func TestDriftedConditionComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(drifted(append(nodes("n1"), makePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} }), makePod("p", "n1", owned("web"))))...)
	w.planning(0)
	w.start(t)
	w.eventually(t, func() bool {
		c := meta.FindStatusCondition(w.claim("n1-claim").Status.Conditions, karpv1.ConditionDrifted)
		return c != nil && c.Reason == "NodePoolDrifted"
	}, "DISR-045")
	w.eventually(t, func() bool {
		return w.has("Normal DisruptionBlocked No allowed disruptions for disruption reason Drifted due to blocking budget")
	}, "DISR-035")
	pool, err := w.ours.KarpenterV1().NodePools().Get(t.Context(), "default", metav1.GetOptions{})
	require.NoError(t, err)
	pool.Annotations[karpv1.AnnotationNodePoolHash] = "old"
	_, err = w.ours.KarpenterV1().NodePools().Update(t.Context(), pool, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually(t, func() bool {
		return meta.FindStatusCondition(w.claim("n1-claim").Status.Conditions, karpv1.ConditionDrifted) == nil
	}, "the template is as it was")
	require.NotNil(t, w.claim("n1-claim"))
}

// drifts is a provider that finds every claim drifted, or fails.
type drifts struct{ err error }

func (d drifts) IsDrifted(context.Context, *karpv1.NodeClaim) (cloud.DriftReason, error) {
	return "AMIDrift", d.err
}

func TestProviderDrift(t *testing.T) {
	t.Parallel()
	objects := append(nodes("n1"), makePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} }), makePod("p", "n1", owned("web")))
	for _, o := range objects {
		if claim, ok := o.(*karpv1.NodeClaim); ok {
			claim.CreationTimestamp = metav1.NewTime(t0)
			claim.Status.Conditions = append(claim.Status.Conditions, metav1.Condition{Type: karpv1.ConditionLaunched, Status: metav1.ConditionTrue})
		}
	}
	w := newWorld(objects...)
	w.planning(0)
	w.drifts = drifts{}
	w.start(t)
	w.eventually(t, func() bool {
		c := meta.FindStatusCondition(w.claim("n1-claim").Status.Conditions, karpv1.ConditionDrifted)
		return c != nil && c.Reason == "AMIDrift"
	}, "what the provider says is on the claim")
}

func TestDriftAndPods(t *testing.T) {
	t.Parallel()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
	for name, grace := range map[string]bool{"DISR-033 the grace period ends a budget's say": true, "DISR-034 without one the budget keeps the node": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := drifted(append(nodes("n1"), makePool(), makePod("p", "n1", owned("web")), budget.DeepCopy()))
			for _, o := range objects {
				if claim, ok := o.(*karpv1.NodeClaim); ok && grace {
					claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Minute}
				}
			}
			w := newWorld(objects...)
			w.planning(0)
			w.start(t)
			if grace {
				w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "it goes")
				return
			}
			w.rounds(t, 5)
			require.NotNil(t, w.claim("n1-claim"))
			require.True(t, w.has("Normal DisruptionBlocked Pdb prevents pod evictions (PodDisruptionBudget=[ns/b])") || anyEvent(w, "b"), "the event names the budget: %v", w.seen)
		})
	}
}

func anyEvent(w *world, mention string) bool {
	w.has("")
	for _, e := range w.seen {
		if strings.Contains(e, "DisruptionBlocked") && strings.Contains(e, mention) {
			return true
		}
	}
	return false
}

// Never are all pods of one workload on the move at the same time.
func TestReplicasOfOneWorkloadMoveOneAfterAnother(t *testing.T) {
	t.Parallel()
	all := func(pool *karpv1.NodePool) { pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}} }
	w := newWorld(drifted(append(nodes("n1", "n2"), makePool(all), makePod("p", "n1", owned("web")), makePod("q", "n2", owned("web"))))...)
	w.planning(1)
	w.start(t)
	w.eventually(t, func() bool { return w.claim("new-a") != nil }, "one node is being replaced")
	w.rounds(t, 5)
	require.Nil(t, w.claim("new-b"), "the other one waits: the budget would let it go, the workload would be without a pod")
}

func TestDISR056ExpiredNodeGoesWhateverHoldsIt(t *testing.T) {
	t.Parallel()
	objects := append(nodes("n1"), makePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} }),
		makePod("p", "n1", owned("web"), func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }))
	for _, o := range objects {
		if claim, ok := o.(*karpv1.NodeClaim); ok {
			claim.CreationTimestamp, claim.Spec.ExpireAfter = metav1.NewTime(t0), karpv1.DurationOf(time.Hour)
		}
	}
	w := newWorld(objects...)
	w.planning(0)
	w.start(t)
	w.clock.Step(58 * time.Minute)
	w.rounds(t, 3)
	require.NotNil(t, w.claim("n1-claim"), "before its deadline budgets and pods hold it")
	w.clock.Step(2 * time.Minute)
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "at its deadline it goes")
	expired := map[string]string{"reason": "expired", "nodepool": "default", "capacity_type": "spot", "consolidation_policy": "when_empty", "termination_mode": "graceful"}
	w.eventually(t, func() bool { return w.metric(t, "karpenter_nodeclaims_disrupted_total", expired) == 1 }, "it is counted")
}

func TestExpiringNodeIsReplacedBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	objects := append(nodes("n1"), makePool(), makePod("p", "n1", owned("web")))
	for _, o := range objects {
		if claim, ok := o.(*karpv1.NodeClaim); ok {
			claim.CreationTimestamp, claim.Spec.ExpireAfter = metav1.NewTime(t0), karpv1.DurationOf(10*time.Hour)
		}
	}
	w := newWorld(objects...)
	w.planning(1)
	w.start(t)
	w.clock.Step(8*time.Hour + 55*time.Minute)
	w.rounds(t, 2)
	require.Nil(t, w.claim("new-a"), "not before the last tenth of its life")
	w.clock.Step(35*time.Minute + time.Second)
	w.eventually(t, func() bool { return w.claim("new-a") != nil }, "then its replacement is launched")
	require.NotNil(t, w.claim("n1-claim"))
	w.come(t, "new-a")
	w.eventually(t, func() bool { return w.claim("n1-claim") == nil }, "and it goes when that is ready")
}

// A pool whose replacements fail is left alone for a while, longer each time.
func TestFailingReplacementsPauseTheirPool(t *testing.T) {
	t.Parallel()
	w := newWorld(drifted(append(nodes("n1"), makePool(), makePod("p", "n1", owned("web"))))...)
	p := w.planning(1)
	w.start(t)
	w.eventually(t, func() bool { return w.claim("new-a") != nil }, "a replacement is launched")
	require.Eventually(t, func() bool {
		w.clock.Step(10 * time.Millisecond)
		return w.has("Normal DisruptionWaitingReadiness Waiting for readiness to continue disruption")
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, w.ours.KarpenterV1().NodeClaims().Delete(t.Context(), "new-a", metav1.DeleteOptions{}))
	w.eventually(t, func() bool { _, forgotten := p.count(); return forgotten == 1 }, "it failed")
	w.rounds(t, 15)
	carried, _ := p.count()
	require.Equal(t, 1, carried, "the pool rests")
	w.clock.Step(time.Minute)
	w.eventually(t, func() bool { return w.claim("new-b") != nil }, "and is tried again later")
}
