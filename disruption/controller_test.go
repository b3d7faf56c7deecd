package disruption_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/disruption"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// hider hides nodes in the model, and refuses those that tests say a pod is on its way to.
type hider struct {
	model *state.State

	mu     sync.Mutex
	taken  map[string]bool
	hidden map[string]bool
	on     func(node string) // called after a node was hidden
}

func (h *hider) Hide(node string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken[node] {
		return errors.New("a pod is on its way there")
	}
	h.hidden[node] = true
	h.model.Hide(node)
	if h.on != nil {
		h.on(node)
	}
	return nil
}

func (h *hider) Unhide(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.hidden, node)
	h.model.Unhide(node)
}

func (h *hider) isHidden(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hidden[node]
}

// roundClock counts how often its ticker was waited for: once after each round.
type roundClock struct {
	*clocktesting.FakeClock
	ended atomic.Int64
}

func (c *roundClock) NewTicker(d time.Duration) clock.Ticker {
	return &roundTicker{Ticker: c.FakeClock.NewTicker(d), clock: c}
}

type roundTicker struct {
	clock.Ticker
	clock *roundClock
}

func (t *roundTicker) C() <-chan time.Time {
	t.clock.ended.Add(1)
	return t.Ticker.C()
}

type world struct {
	kube     *kubefake.Clientset
	ours     *fake.Clientset
	clock    *roundClock
	sink     *record.FakeRecorder
	promises *promise.Table
	registry *prometheus.Registry
	hider    *hider
	seen     []string // events
	options  disruption.Options
}

func newWorld(objects ...runtime.Object) *world {
	var core, ours []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *karpv1.NodePool, *karpv1.NodeClaim:
			ours = append(ours, o)
		default:
			core = append(core, o)
		}
	}
	return &world{
		kube: kubefake.NewClientset(core...), ours: fake.NewClientset(ours...), clock: &roundClock{FakeClock: clocktesting.NewFakeClock(t0)},
		sink: record.NewFakeRecorder(10000), promises: promise.NewTable(), registry: prometheus.NewRegistry(),
		hider: &hider{taken: map[string]bool{}, hidden: map[string]bool{}},
	}
}

func (w *world) start(t *testing.T) {
	t.Helper()
	core, ours := informers.NewSharedInformerFactory(w.kube, 0), externalversions.NewSharedInformerFactory(w.ours, 0)
	model, err := state.New(state.Deps{
		Core: core, Ours: ours, Promises: w.promises, TypesOf: func(*karpv1.NodeClaim) []*catalog.InstanceType { return nil },
	})
	require.NoError(t, err)
	w.hider.model = model
	controller, err := disruption.New(disruption.Deps{
		Kube: w.kube, Karpenter: w.ours, Core: core, Ours: ours, State: model, Hider: w.hider,
		Events: events.NewRecorder(w.sink, w.clock), Clock: w.clock, Registry: w.registry,
		Price: func(n *cluster.Node) float64 { return float64(len(n.Name)) },
	}, w.options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	core.StartWithContext(ctx)
	ours.StartWithContext(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { controller.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		core.Shutdown()
		ours.Shutdown()
	})
	require.Eventually(t, func() bool { return w.clock.ended.Load() > 0 }, 10*time.Second, time.Millisecond)
}

// rounds lets at least n whole rounds pass; the first that ends may have begun before.
func (w *world) rounds(t *testing.T, n int) {
	t.Helper()
	for range n + 1 {
		before := w.clock.ended.Load()
		w.clock.Step(time.Second)
		require.Eventually(t, func() bool { return w.clock.ended.Load() > before }, 10*time.Second, time.Millisecond)
	}
}

// eventually steps the clock until the condition holds.
func (w *world) eventually(t *testing.T, holds func() bool, why string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.clock.Step(time.Second)
		return holds()
	}, 10*time.Second, time.Millisecond, why)
}

func (w *world) claim(name string) *karpv1.NodeClaim {
	claim, err := w.ours.KarpenterV1().NodeClaims().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

var claimResource = karpv1.SchemeGroupVersion.WithResource("nodeclaims")

// stored is claim for reactors, in which the client is locked.
func (w *world) stored(t *testing.T, name string) *karpv1.NodeClaim {
	t.Helper()
	object, err := w.ours.Tracker().Get(claimResource, "", name)
	require.NoError(t, err)
	return object.(*karpv1.NodeClaim)
}

func (w *world) isTainted(t *testing.T, name string) bool {
	t.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, taint := range node.Spec.Taints {
		if taint.Key == karpv1.TaintKeyDisrupted {
			return true
		}
	}
	return false
}

// has reports whether the event was sent.
func (w *world) has(event string) bool {
	for {
		select {
		case e := <-w.sink.Events:
			w.seen = append(w.seen, e)
			continue
		default:
		}
		return slices.Contains(w.seen, event)
	}
}

// metric returns the value of a counter or gauge with exactly these labels, -1 when there is none.
func (w *world) metric(t *testing.T, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			got := map[string]string{}
			for _, pair := range m.GetLabel() {
				got[pair.GetName()] = pair.GetValue()
			}
			if maps.Equal(got, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func makePool(changes ...func(*karpv1.NodePool)) *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: ec2v1.Group, Kind: "EC2NodeClass", Name: "default"}
	pool.Spec.Disruption.ConsolidateAfter = karpv1.DurationOf(0)
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.WhenEmpty
	for _, c := range changes {
		c(pool)
	}
	return pool
}

// makeNode returns an initialized node and its claim.
func makeNode(name string) (*corev1.Node, *karpv1.NodeClaim) {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-claim", UID: types.UID(name + "-uid"), Labels: map[string]string{karpv1.LabelNodePool: "default", karpv1.LabelCapacityType: "spot"}},
		Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: ec2v1.Group, Kind: "EC2NodeClass", Name: "default"}},
		Status: karpv1.NodeClaimStatus{NodeName: name, ProviderID: "aws:///" + name, Conditions: []metav1.Condition{
			{Type: karpv1.ConditionInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0.Add(-time.Hour))},
		}},
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
			karpv1.LabelNodePool: "default", karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
		}},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	return node, claim
}

func nodes(names ...string) []runtime.Object {
	var out []runtime.Object
	for _, name := range names {
		node, claim := makeNode(name)
		out = append(out, node, claim)
	}
	return out
}

func makePod(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range changes {
		c(pod)
	}
	return pod
}

func TestDISR001EmptyNodeIsDeleted(t *testing.T) {
	t.Parallel()
	daemon := makePod("daemon", "n1", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: ptr.To(true)}}
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
				pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "5", Schedule: ptr.To("a b c d e"), Duration: &metav1.Duration{Duration: time.Hour}}}
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
				pool.Spec.Replicas = ptr.To[int64](1)
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
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: ptr.To(true)}}
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
	// The claims stay for a while, as those with a finalizer do.
	w.ours.PrependReactor("delete", "nodeclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		claim := w.stored(t, action.(k8stesting.DeleteAction).GetName()).DeepCopy()
		claim.DeletionTimestamp, claim.Finalizers = &metav1.Time{Time: t0}, []string{karpv1.TerminationFinalizer}
		return true, nil, w.ours.Tracker().Update(claimResource, claim, "")
	})
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
					p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: ptr.To(true)}}
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
