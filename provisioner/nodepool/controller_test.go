package nodepool_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/nodepool"
	"github.com/berth-dev/berth/provisioner/poolhash"
	"github.com/berth-dev/berth/provisioner/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// model is a State that tests set.
type model struct {
	snapshot atomic.Pointer[cluster.Snapshot]
	synced   atomic.Bool
}

func (m *model) Snapshot() *cluster.Snapshot { return m.snapshot.Load() }
func (m *model) Synced() bool                { return m.synced.Load() }

func (m *model) use(pool string, v resources.Vector) {
	m.snapshot.Store(&cluster.Snapshot{PoolUsage: map[string]resources.Vector{pool: v}})
}

type world struct {
	client     *fake.Clientset
	clock      *clocktesting.FakeClock
	sink       *record.FakeRecorder
	model      *model
	controller *nodepool.Controller
}

func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{
		client: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(t0),
		sink: record.NewFakeRecorder(1000), model: &model{},
	}
	w.model.use("default", resources.Vector{})
	w.model.synced.Store(true)
	w.run(t)
	return w
}

// run starts a controller on the world; a second one is a restart.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	ours := externalversions.NewSharedInformerFactory(w.client, 0)
	controller, err := nodepool.New(nodepool.Deps{
		Karpenter: w.client, Ours: ours, State: w.model, Clock: w.clock, Events: events.NewRecorder(w.sink, w.clock),
	}, nodepool.Options{})
	require.NoError(t, err)
	w.controller = controller
	ctx, cancel := context.WithCancel(t.Context())
	ours.StartWithContext(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { controller.Run(ctx, 2) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		ours.Shutdown()
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) get(t *testing.T) *karpv1.NodePool {
	t.Helper()
	pool, err := w.client.KarpenterV1().NodePools().Get(context.WithoutCancel(t.Context()), "default", metav1.GetOptions{})
	require.NoError(t, err)
	return pool
}

// wait returns the pool once it satisfies the condition.
func (w *world) wait(t *testing.T, holds func(*karpv1.NodePool) bool) *karpv1.NodePool {
	t.Helper()
	var pool *karpv1.NodePool
	require.Eventually(t, func() bool {
		pool = w.get(t)
		return holds(pool)
	}, 10*time.Second, 5*time.Millisecond)
	return pool
}

// is makes a condition for wait; an empty reason is any.
func is(kind string, status metav1.ConditionStatus, reason string) func(*karpv1.NodePool) bool {
	return func(p *karpv1.NodePool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		return c != nil && c.Status == status && (reason == "" || c.Reason == reason)
	}
}

func makePool() *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool-uid", Generation: 1, CreationTimestamp: metav1.NewTime(t0.Add(-time.Hour))}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: ec2v1.Group, Kind: "EC2NodeClass", Name: "default"}
	return pool
}

func makeClass(status metav1.ConditionStatus, reason, message string) *ec2v1.EC2NodeClass {
	class := &ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 3}}
	class.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message}}
	return class
}

func TestReadinessFollowsTheClass(t *testing.T) {
	t.Parallel()
	deleting := makeClass(metav1.ConditionTrue, "Ready", "")
	deleting.DeletionTimestamp, deleting.Finalizers = &metav1.Time{Time: t0}, []string{"x"}
	silent := makeClass("", "", "")
	silent.Status.Conditions = nil
	otherKind := makePool()
	otherKind.Spec.Template.Spec.NodeClassRef.Kind = "Other"
	tests := map[string]struct {
		pool        *karpv1.NodePool
		class       *ec2v1.EC2NodeClass
		want        metav1.ConditionStatus
		wantReason  string
		wantMessage string
	}{
		"a ready class makes a ready pool":            {class: makeClass(metav1.ConditionTrue, "Ready", ""), want: metav1.ConditionTrue, wantReason: "NodeClassReady"},
		"CORE-033 a missing class":                    {want: metav1.ConditionFalse, wantReason: "NodeClassNotFound", wantMessage: "There is no EC2NodeClass default in karpenter.k8s.aws"},
		"CORE-034 a class that is deleted":            {class: deleting, want: metav1.ConditionFalse, wantReason: "NodeClassTerminating", wantMessage: "EC2NodeClass default is being deleted"},
		"CORE-035 the class's own reason is copied":   {class: makeClass(metav1.ConditionFalse, "X", "no subnet"), want: metav1.ConditionFalse, wantReason: "X", wantMessage: "no subnet"},
		"a class that was not looked at yet":          {class: silent, want: metav1.ConditionFalse, wantReason: "NodeClassReadinessUnknown", wantMessage: "EC2NodeClass default does not say yet whether it is ready"},
		"a kind of class that does not exist is told": {pool: otherKind, class: makeClass(metav1.ConditionTrue, "Ready", ""), want: metav1.ConditionFalse, wantReason: "NodeClassNotFound", wantMessage: "There is no Other default in karpenter.k8s.aws"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := tc.pool
			if pool == nil {
				pool = makePool()
			}
			objects := []runtime.Object{pool}
			if tc.class != nil {
				objects = append(objects, tc.class)
			}
			got := start(t, objects...).wait(t, is("NodeClassReady", tc.want, tc.wantReason))
			require.Equal(t, tc.wantMessage, meta.FindStatusCondition(got.Status.Conditions, "NodeClassReady").Message)
			root := got.Status.Conditions[len(got.Status.Conditions)-1]
			require.Equal(t, "Ready", root.Type)
			require.Equal(t, tc.want, root.Status)
			if tc.want == metav1.ConditionFalse {
				require.Equal(t, "UnhealthyDependents", root.Reason)
				require.Equal(t, "NodeClassReady=False", root.Message)
			}
			require.EqualValues(t, 1, root.ObservedGeneration)
		})
	}
}

func TestClassThatBecomesReadyMakesThePoolReady(t *testing.T) {
	t.Parallel()
	w := start(t, makePool())
	w.wait(t, is("Ready", metav1.ConditionFalse, ""))
	_, err := w.client.EC2V1().EC2NodeClasses().Create(t.Context(), makeClass(metav1.ConditionTrue, "Ready", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	w.wait(t, is("Ready", metav1.ConditionTrue, "Ready"))
	require.Eventually(t, func() bool {
		select {
		case e := <-w.sink.Events:
			return e == "Normal NodeClassReady Status condition transitioned, Type: NodeClassReady, Status: False -> True, Reason: NodeClassReady"
		default:
			return false
		}
	}, 10*time.Second, time.Millisecond, "CORE-045 the transition is told")
}

func TestCORE029InvalidPoolIsNotReady(t *testing.T) {
	t.Parallel()
	pool := makePool()
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "team", Operator: corev1.NodeSelectorOpIn, Values: []string{"a b"}}}
	w := start(t, pool, makeClass(metav1.ConditionTrue, "Ready", ""))
	got := w.wait(t, is("Ready", metav1.ConditionFalse, "UnhealthyDependents"))
	require.True(t, is("ValidationSucceeded", metav1.ConditionFalse, "NodePoolValidationFailed")(got))
	require.Contains(t, meta.FindStatusCondition(got.Status.Conditions, "ValidationSucceeded").Message, `value "a b"`)
}

func TestForeignPoolsAreNotWritten(t *testing.T) {
	t.Parallel()
	foreign := makePool()
	foreign.Name, foreign.Spec.Template.Spec.NodeClassRef.Group = "foreign", "karpenter.azure.com"
	w := start(t, foreign, makePool())
	w.wait(t, is("Ready", metav1.ConditionFalse, ""))
	got, err := w.client.KarpenterV1().NodePools().Get(t.Context(), "foreign", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, got.Annotations)
	require.Empty(t, got.Status)
}

func TestUsageIsPublishedOncePerInterval(t *testing.T) {
	t.Parallel()
	w := start(t, makePool())
	got := w.wait(t, func(p *karpv1.NodePool) bool { return len(p.Status.Resources) > 0 })
	for _, name := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage", "nodes"} {
		amount, ok := got.Status.Resources[name]
		require.True(t, ok && amount.IsZero(), "%s is there although there are no nodes", name)
	}
	w.model.use("default", resources.FromList(corev1.ResourceList{"cpu": resource.MustParse("8"), "nodes": resource.MustParse("2")}))
	require.Eventually(t, w.clock.HasWaiters, 10*time.Second, time.Millisecond)
	w.controller.RecordRegistration("default", true)
	got = w.wait(t, is("NodeRegistrationHealthy", metav1.ConditionTrue, ""))
	require.Zero(t, got.Status.Nodes, "another reason to write does not publish usage early")
	w.clock.Step(5 * time.Second)
	got = w.wait(t, func(p *karpv1.NodePool) bool { return p.Status.Nodes == 2 })
	require.Equal(t, "8", got.Status.Resources.Cpu().String())
}

func TestUsageIsNotPublishedBeforeTheModelIsSynced(t *testing.T) {
	t.Parallel()
	w := &world{
		client: fake.NewClientset(makePool()), clock: clocktesting.NewFakeClock(t0),
		sink: record.NewFakeRecorder(1000), model: &model{},
	}
	w.model.use("default", resources.Vector{})
	w.run(t)
	require.Empty(t, w.wait(t, is("Ready", metav1.ConditionFalse, "")).Status.Resources)
}

func TestRegistrationHealth(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		outcomes   []bool
		want       metav1.ConditionStatus
		wantReason string
	}{
		"nothing launched is unknown":        {want: metav1.ConditionUnknown, wantReason: "AwaitingReconciliation"},
		"one node is healthy":                {outcomes: []bool{true}, want: metav1.ConditionTrue},
		"one failure is still healthy":       {outcomes: []bool{false}, want: metav1.ConditionTrue},
		"two failures of four are unhealthy": {outcomes: []bool{false, true, false, true}, want: metav1.ConditionFalse, wantReason: "RegistrationFailed"},
		"only the last four count":           {outcomes: []bool{false, false, true, true, true}, want: metav1.ConditionTrue},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, makePool(), makeClass(metav1.ConditionTrue, "Ready", ""))
			w.wait(t, is("NodeRegistrationHealthy", metav1.ConditionUnknown, "AwaitingReconciliation"))
			for _, ok := range tc.outcomes {
				w.controller.RecordRegistration("default", ok)
			}
			got := w.wait(t, is("NodeRegistrationHealthy", tc.want, tc.wantReason))
			require.True(t, is("Ready", metav1.ConditionTrue, "")(got), "health is for information only")
		})
	}
}

func TestCORE036RegistrationHealthStartsOver(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, w *world){
		"when the pool changes": func(t *testing.T, w *world) {
			pool := w.get(t)
			pool.Generation = 2
			_, err := w.client.KarpenterV1().NodePools().Update(t.Context(), pool, metav1.UpdateOptions{})
			require.NoError(t, err)
		},
		"when the class changes": func(t *testing.T, w *world) {
			class := makeClass(metav1.ConditionTrue, "Ready", "")
			class.Generation = 4
			_, err := w.client.EC2V1().EC2NodeClasses().Update(t.Context(), class, metav1.UpdateOptions{})
			require.NoError(t, err)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, makePool(), makeClass(metav1.ConditionTrue, "Ready", ""))
			w.controller.RecordRegistration("default", true)
			require.EqualValues(t, 3, w.wait(t, is("NodeRegistrationHealthy", metav1.ConditionTrue, "")).Status.NodeClassObservedGeneration)
			w.wait(t, func(p *karpv1.NodePool) bool {
				change(t, w) // again, since the fake lets writes of an older version pass
				return is("NodeRegistrationHealthy", metav1.ConditionUnknown, "AwaitingReconciliation")(p)
			})
		})
	}
}

func TestRegistrationHealthOutlivesRestarts(t *testing.T) {
	t.Parallel()
	w := &world{
		client: fake.NewClientset(makePool(), makeClass(metav1.ConditionTrue, "Ready", "")), clock: clocktesting.NewFakeClock(t0),
		sink: record.NewFakeRecorder(1000), model: &model{},
	}
	w.model.use("default", resources.Vector{})
	stop := w.run(t)
	w.wait(t, is("NodeRegistrationHealthy", metav1.ConditionUnknown, ""))
	w.controller.RecordRegistration("default", false)
	w.controller.RecordRegistration("default", false)
	w.wait(t, is("NodeRegistrationHealthy", metav1.ConditionFalse, ""))
	stop()
	w.run(t)
	w.controller.RecordRegistration("default", true)
	w.wait(t, func(p *karpv1.NodePool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, "NodeRegistrationHealthy")
		return c.Status == metav1.ConditionFalse && c.Message == "2 of the last 3 nodes failed to register; see the conditions of the pool's NodeClaims"
	})
}

func TestCORE052TakeoverStampsWithoutDrift(t *testing.T) {
	t.Parallel()
	foreign := map[string]string{karpv1.AnnotationNodePoolHash: "1", karpv1.AnnotationNodePoolHashVersion: "v3"}
	claim := func(name, pool string, conds ...metav1.Condition) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.LabelNodePool: pool}, Annotations: foreign}}
		c.Status.Conditions = conds
		return c
	}
	pool := makePool()
	pool.Annotations = foreign
	w := start(t, pool, claim("fresh", "default"), claim("drifted", "default", metav1.Condition{Type: "Drifted", Status: metav1.ConditionTrue}), claim("other", "else"))
	hash := poolhash.Hash(pool)
	w.wait(t, func(p *karpv1.NodePool) bool {
		return p.Annotations[karpv1.AnnotationNodePoolHash] == hash && p.Annotations[karpv1.AnnotationNodePoolHashVersion] == poolhash.HashVersion
	})
	for name, want := range map[string][2]string{"fresh": {hash, poolhash.HashVersion}, "drifted": {"1", poolhash.HashVersion}, "other": {"1", "v3"}} {
		got, err := w.client.KarpenterV1().NodeClaims().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, want, [2]string{got.Annotations[karpv1.AnnotationNodePoolHash], got.Annotations[karpv1.AnnotationNodePoolHashVersion]}, name)
	}
}

func TestChangedTemplateChangesThePoolsHashOnly(t *testing.T) {
	t.Parallel()
	w := start(t, makePool())
	before := w.wait(t, func(p *karpv1.NodePool) bool {
		return p.Annotations[karpv1.AnnotationNodePoolHash] != "" && len(p.Status.Conditions) > 0
	})
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{karpv1.LabelNodePool: "default"}, Annotations: before.Annotations}}
	_, err := w.client.KarpenterV1().NodeClaims().Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	changed := before.DeepCopy()
	changed.Spec.Template.Labels = map[string]string{"team": "b"}
	_, err = w.client.KarpenterV1().NodePools().Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.wait(t, func(p *karpv1.NodePool) bool {
		return p.Annotations[karpv1.AnnotationNodePoolHash] == poolhash.Hash(changed)
	})
	got, err := w.client.KarpenterV1().NodeClaims().Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before.Annotations[karpv1.AnnotationNodePoolHash], got.Annotations[karpv1.AnnotationNodePoolHash])
}

func TestConflictingStatusWriteIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := &world{
		client: fake.NewClientset(makePool()), clock: clocktesting.NewFakeClock(t0),
		sink: record.NewFakeRecorder(1000), model: &model{},
	}
	var conflicts atomic.Int32
	w.client.PrependReactor("update", "nodepools", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" || conflicts.Add(1) > 2 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodepools"}, "default", nil)
	})
	w.model.use("default", resources.Vector{})
	w.run(t)
	w.wait(t, is("Ready", metav1.ConditionFalse, ""))
	require.GreaterOrEqual(t, conflicts.Load(), int32(3))
}
