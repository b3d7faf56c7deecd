package overlay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/overlay"
)

// world is a controller over a fake API server, with a model and a provider that tests set.
type world struct {
	client     *fake.Clientset
	clock      *clocktesting.FakeClock
	sink       *record.FakeRecorder
	snapshot   atomic.Pointer[cluster.Snapshot]
	changes    atomic.Int32
	listings   atomic.Int32 // of types
	controller *overlay.Controller

	mu    sync.Mutex
	types []*catalog.InstanceType // nil: they cannot be listed
}

func (w *world) Snapshot() *cluster.Snapshot { return w.snapshot.Load() }
func (w *world) Synced() bool                { return true }

func (w *world) InstanceTypes(context.Context, *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listings.Add(1)
	if w.types == nil {
		return nil, errors.New("no subnets found")
	}
	return w.types, nil
}

func (w *world) sell(types ...*catalog.InstanceType) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.types = types
}

func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{client: fake.NewSimpleClientset(), clock: clocktesting.NewFakeClock(t0), sink: record.NewFakeRecorder(1000)}
	for _, object := range objects { // the fake guesses a wrong plural of overlays that it is made with
		var err error
		switch o := object.(type) {
		case *v1alpha1.NodeOverlay:
			_, err = w.client.KarpenterV1alpha1().NodeOverlays().Create(t.Context(), o, metav1.CreateOptions{})
		case *karpv1.NodePool:
			_, err = w.client.KarpenterV1().NodePools().Create(t.Context(), o, metav1.CreateOptions{})
		}
		require.NoError(t, err)
	}
	w.sell(machine("m.large"), machine("m.xlarge"), machine("m.2xlarge"), machine("m.4xlarge"))
	w.snapshot.Store(&cluster.Snapshot{})
	w.run(t)
	return w
}

// run starts a controller; a second one is a restart.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	ours := externalversions.NewSharedInformerFactory(w.client, 0)
	controller, err := overlay.New(overlay.Deps{
		Karpenter: w.client, Ours: ours, State: w, Cloud: w, Clock: w.clock, Events: events.NewRecorder(w.sink, w.clock),
		Changed: func() { w.changes.Add(1) },
	}, overlay.Options{})
	require.NoError(t, err)
	w.controller = controller
	ctx, cancel := context.WithCancel(t.Context())
	ours.StartWithContext(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { controller.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		ours.Shutdown()
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) overlay(t *testing.T, name string) *v1alpha1.NodeOverlay {
	t.Helper()
	o, err := w.client.KarpenterV1alpha1().NodeOverlays().Get(context.WithoutCancel(t.Context()), name, metav1.GetOptions{})
	require.NoError(t, err)
	return o
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 10*time.Second, 2*time.Millisecond, what)
}

// condition waits until the condition has the status and reason, and returns it.
func (w *world) condition(t *testing.T, name, kind string, status metav1.ConditionStatus, reason string) (found metav1.Condition) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s, %s", kind, status, reason), func() bool {
		c := meta.FindStatusCondition(w.overlay(t, name).Status.Conditions, kind)
		if c != nil {
			found = *c
		}
		return c != nil && c.Status == status && c.Reason == reason
	})
	return found
}

// update changes an overlay as the API server would, with a new generation.
func (w *world) update(t *testing.T, name string, change func(*v1alpha1.NodeOverlay)) {
	t.Helper()
	o := w.overlay(t, name)
	change(o)
	o.Generation++
	_, err := w.client.KarpenterV1alpha1().NodeOverlays().Update(t.Context(), o, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// adjusted waits until the pool may be used, and returns its types by name.
func (w *world) adjusted(t *testing.T, pool *karpv1.NodePool) map[string]*catalog.InstanceType {
	t.Helper()
	out := map[string]*catalog.InstanceType{}
	eventually(t, "pool is evaluated", func() bool {
		list, err := w.InstanceTypes(t.Context(), pool)
		if err != nil {
			return false
		}
		list, wait := w.controller.Adjust(pool, list)
		for _, it := range list {
			out[it.Name] = it
		}
		return wait == ""
	})
	return out
}

func TestConditions(t *testing.T) {
	t.Parallel()
	w := start(t, makePool("default", nil),
		makeOverlay("valid", ofType("m.large"), price("5")),
		makeOverlay("wrong", capacity("nvidia.com/gpu", "1")),
		makeOverlay("also", ofType("m.large"), price("5")))
	valid := w.condition(t, "valid", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	require.EqualValues(t, 1, valid.ObservedGeneration)
	w.condition(t, "valid", v1alpha1.ConditionValidationSucceeded, metav1.ConditionTrue, "ValidationSucceeded")
	wrong := w.condition(t, "wrong", v1alpha1.ConditionValidationSucceeded, metav1.ConditionFalse, "RuntimeValidation")
	require.Contains(t, wrong.Message, "spec.capacity[nvidia.com/gpu]")
	w.condition(t, "wrong", v1alpha1.ConditionReady, metav1.ConditionFalse, "UnhealthyDependents")
	also := w.condition(t, "also", v1alpha1.ConditionValidationSucceeded, metav1.ConditionFalse, "Conflict")
	require.Contains(t, also.Message, "NodeOverlay valid sets the price of m.large")

	w.update(t, "also", func(o *v1alpha1.NodeOverlay) { o.Spec.Weight = new(int32(7)); o.Spec.Price = new("9") })
	w.condition(t, "also", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	require.InDelta(t, 9, w.adjusted(t, makePool("default", nil))["m.large"].Offerings[0].Price, 1e-9)

	require.NoError(t, w.client.KarpenterV1alpha1().NodeOverlays().Delete(t.Context(), "also", metav1.DeleteOptions{}))
	eventually(t, "the other one has its way", func() bool {
		return w.adjusted(t, makePool("default", nil))["m.large"].Offerings[0].Price == 5
	})
	require.NotEmpty(t, w.sink.Events)
}

func TestPoolsWaitUntilTheyAreEvaluated(t *testing.T) {
	t.Parallel()
	w := start(t, makePool("default", nil), makeOverlay("o", price("5")))
	w.condition(t, "o", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	other := makePool("other", nil)
	_, wait := w.controller.Adjust(other, nil)
	require.Equal(t, "the node overlays have not been evaluated for it yet", wait)
	list, err := w.controller.AdjustNamed("other", []*catalog.InstanceType{machine("m.large")})
	require.NoError(t, err, "a pool that is gone")
	require.InDelta(t, 1.4, list[0].Offerings[0].Price+list[0].Offerings[1].Price, 1e-9)

	before := w.changes.Load()
	_, err = w.client.KarpenterV1().NodePools().Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	require.InDelta(t, 5, w.adjusted(t, other)["m.large"].Offerings[0].Price, 1e-9)
	require.Greater(t, w.changes.Load(), before, "refused pods may ask again")
	successor := makePool("other", nil)
	successor.UID = "another"
	_, wait = w.controller.Adjust(successor, nil)
	require.NotEmpty(t, wait, "a pool of the same name that came later")
}

func TestPoolsWithoutTypesDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	w := start(t, makePool("default", nil))
	w.sell()
	_, err := w.client.KarpenterV1alpha1().NodeOverlays().Create(t.Context(), makeOverlay("o", price("5")), metav1.CreateOptions{})
	require.NoError(t, err)
	w.condition(t, "o", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	w.sell(machine("m.large"))
	require.InDelta(t, 5, w.adjusted(t, makePool("default", nil))["m.large"].Offerings[0].Price, 1e-9, "asking has it evaluated")
}

func TestAnUnchangedWorldCostsNothing(t *testing.T) {
	t.Parallel()
	w := start(t, makePool("default", nil), makeOverlay("o", price("5")))
	w.condition(t, "o", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	pool := makePool("default", nil)
	w.adjusted(t, pool)
	list := w.types
	first, wait := w.controller.Adjust(pool, list)
	require.Empty(t, wait)
	second, _ := w.controller.Adjust(pool, list)
	require.Same(t, &first[0], &second[0])

	fresh := append([]*catalog.InstanceType{}, list...)
	third, _ := w.controller.Adjust(pool, fresh)
	require.NotSame(t, &first[0], &third[0], "another list")
	writes, waiting := len(w.client.Actions()), w.listings.Load()
	eventually(t, "evaluated again after 6 h", func() bool {
		w.clock.Step(6 * time.Hour)
		return w.listings.Load() > waiting
	})
	require.Len(t, w.client.Actions(), writes, "nothing is written again")
}

// come makes a node of the type that has so much of the resource, for a claim that was promised so much.
func come(name, instanceType string, born time.Time, promised, have int64, reason string) *cluster.Node {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, CreationTimestamp: metav1.NewTime(born)}}
	claim.Status.Capacity = corev1.ResourceList{vendor: *resource.NewQuantity(promised, resource.DecimalSI)}
	status := metav1.ConditionUnknown
	if reason == "" {
		status, reason = metav1.ConditionTrue, karpv1.ConditionInitialized
	}
	claim.Status.Conditions = []metav1.Condition{{Type: karpv1.ConditionInitialized, Status: status, Reason: reason}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if have > 0 {
		node.Status.Capacity = corev1.ResourceList{vendor: *resource.NewQuantity(have, resource.DecimalSI)}
	}
	return &cluster.Node{
		Name: name, ClaimName: claim.Name, Claim: claim, Node: node, Pool: "default",
		Labels: map[string]string{corev1.LabelInstanceTypeStable: instanceType},
	}
}

func TestLearning(t *testing.T) {
	t.Parallel()
	pool := makePool("default", nil)
	w := start(t, pool, makeOverlay("o", capacity(vendor, "4")))
	w.condition(t, "o", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	require.EqualValues(t, 4, w.adjusted(t, pool)["m.large"].Capacity.Get(vendor))
	require.False(t, w.controller.Lacking("default", "m.large", vendor))

	w.snapshot.Store(&cluster.Snapshot{Nodes: []*cluster.Node{come("n1", "m.large", t0, 4, 0, karpv1.ReasonResourceNotRegistered)}})
	eventually(t, "the first real node tells", func() bool {
		w.clock.Step(time.Minute)
		return w.controller.Lacking("default", "m.large", vendor)
	})
	types := w.adjusted(t, pool)
	require.Zero(t, types["m.large"].Capacity.Get(vendor))
	require.EqualValues(t, 4, types["m.xlarge"].Capacity.Get(vendor))
	c := w.condition(t, "o", v1alpha1.ConditionCapacityObserved, metav1.ConditionFalse, "ResourceMissing")
	require.Equal(t, "spec.capacity[vendor/x]: 4 is declared, but node n1 of NodePool default came up with 0; no more than that is counted on for m.large there; "+
		"make the device plugin run on such nodes, or correct spec.capacity or spec.requirements: a change of the overlay has it tried again", c.Message)
	w.condition(t, "o", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")

	w.snapshot.Store(&cluster.Snapshot{Nodes: []*cluster.Node{come("n1", "m.large", t0, 4, 4, "")}})
	eventually(t, "the device plugin has come after all", func() bool {
		w.clock.Step(time.Minute)
		return !w.controller.Lacking("default", "m.large", vendor)
	})
	require.EqualValues(t, 4, w.adjusted(t, pool)["m.large"].Capacity.Get(vendor))
	w.condition(t, "o", v1alpha1.ConditionCapacityObserved, metav1.ConditionTrue, "CapacityObserved")
}
