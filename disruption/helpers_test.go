package disruption_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/disruption"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
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
	planner  *planner
	drifts   disruption.Drifts
	repairs  []cloud.RepairPolicy
	static   disruption.Static
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

// start runs a controller; stop ends it before the test does.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	deps := w.deps(t)
	core, ours := deps.Core, deps.Ours
	controller, err := disruption.New(deps, w.options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	core.StartWithContext(ctx)
	ours.StartWithContext(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { controller.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		core.Shutdown()
		ours.Shutdown()
	})
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return w.clock.ended.Load() > 0 }, 10*time.Second, time.Millisecond)
	return stop
}

// deps are what a controller of this world needs.
func (w *world) deps(t *testing.T) disruption.Deps {
	t.Helper()
	core, ours := informers.NewSharedInformerFactory(w.kube, 0), externalversions.NewSharedInformerFactory(w.ours, 0)
	model, err := state.New(state.Deps{
		Core: core, Ours: ours, Promises: w.promises, TypesOf: func(*karpv1.NodeClaim) []*catalog.InstanceType { return nil },
	})
	require.NoError(t, err)
	w.hider.model = model
	deps := disruption.Deps{
		Kube: w.kube, Karpenter: w.ours, Core: core, Ours: ours, State: model, Hider: w.hider,
		Events: events.NewRecorder(w.sink, w.clock), Clock: w.clock, Registry: w.registry,
		Price: func(n *cluster.Node) float64 { return float64(len(n.Name)) }, Drifts: w.drifts, Repairs: w.repairs, Static: w.static,
	}
	if w.planner != nil {
		w.planner.model = model
		deps.Planner = w.planner
	}
	return deps
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

// keepDeleted makes deleted claims stay for a while, as those with a finalizer do.
func (w *world) keepDeleted(t *testing.T) {
	t.Helper()
	w.ours.PrependReactor("delete", "nodeclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		claim := w.stored(t, action.(k8stesting.DeleteAction).GetName()).DeepCopy()
		claim.DeletionTimestamp, claim.Finalizers = &metav1.Time{Time: t0}, []string{karpv1.TerminationFinalizer}
		return true, nil, w.ours.Tracker().Update(claimResource, claim, "")
	})
}
