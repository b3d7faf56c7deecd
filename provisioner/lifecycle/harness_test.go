package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/events"
	oursfake "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/lifecycle"
)

// fakeCloud keeps the promises of cloud.Provider: the same group launches once.
type fakeCloud struct {
	mu        sync.Mutex
	fail      error // what Create answers, while set
	instances map[string]*cloud.Instance
	groups    map[string][]cloud.Created
	creates   int // calls that launched something
	deletes   []string
}

// firstInstance is the provider ID that a fake cloud gives first.
const firstInstance = "aws:///us-east-1a/i-0"

func newFakeCloud() *fakeCloud {
	return &fakeCloud{instances: map[string]*cloud.Instance{}, groups: map[string][]cloud.Created{}}
}

func (f *fakeCloud) Create(_ context.Context, group cloud.Group) ([]cloud.Created, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	key := fmt.Sprintf("%s-%d", group.ID, group.Attempt)
	if replies, ok := f.groups[key]; ok {
		return replies, nil
	}
	f.creates++
	var replies []cloud.Created
	for _, claim := range group.Claims {
		id := fmt.Sprintf("aws:///us-east-1a/i-%d", len(f.instances))
		instance := &cloud.Instance{
			ProviderID: id, ClaimName: claim.Name, LaunchGroup: group.ID, ImageID: "ami-1", LaunchTime: time.Now(),
			Labels:   map[string]string{corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-east-1a", karpv1.LabelCapacityType: "spot"},
			Capacity: list("2"), Allocatable: list("1900m"),
		}
		f.instances[id] = instance
		replies = append(replies, cloud.Created{Instance: instance})
	}
	f.groups[key] = replies
	return replies, nil
}

var errGone = &cloud.NotFoundError{Err: errors.New("no such instance")}

func (f *fakeCloud) Delete(_ context.Context, claim *karpv1.NodeClaim) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.instances[claim.Status.ProviderID]; !ok {
		return errGone
	}
	delete(f.instances, claim.Status.ProviderID) // gone at the next look
	f.deletes = append(f.deletes, claim.Status.ProviderID)
	return nil
}

func (f *fakeCloud) Get(_ context.Context, id string) (*cloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.instances[id]; ok {
		return i, nil
	}
	return nil, errGone
}

func (f *fakeCloud) List(context.Context) ([]*cloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*cloud.Instance
	for _, i := range f.instances {
		out = append(out, i)
	}
	return out, nil
}

func (f *fakeCloud) InstanceTypes(context.Context, *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	return nil, nil
}
func (f *fakeCloud) IsDrifted(context.Context, *karpv1.NodeClaim) (cloud.DriftReason, error) {
	return "", nil
}
func (f *fakeCloud) RepairPolicies() []cloud.RepairPolicy { return nil }

func (f *fakeCloud) setFail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeCloud) counts() (living, creates, deletes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.instances), f.creates, len(f.deletes)
}

// vanish takes the instance away without anybody having asked.
func (f *fakeCloud) vanish(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instances, id)
}

func list(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

// world is one API server with one cloud; controllers come and go on it.
type world struct {
	t     *testing.T
	kube  *fake.Clientset
	ours  *oursfake.Clientset
	cloud *fakeCloud
	sink  *record.FakeRecorder

	writes  sync.Mutex // one write to claims at a time
	version int

	mu      sync.Mutex
	named   map[string]string
	failed  []string
	blocked bool   // PDBs refuse evictions
	lacking string // pool, type and resource that no overlay should have declared
}

func newWorld(t *testing.T, core []runtime.Object, ours ...runtime.Object) *world {
	w := &world{
		t: t, kube: fake.NewClientset(core...), ours: oursfake.NewClientset(ours...), cloud: newFakeCloud(),
		sink: record.NewFakeRecorder(1000), named: map[string]string{},
	}
	// The fake clientset knows neither finalizers nor the eviction subresource.
	w.ours.PrependReactor("delete", "nodeclaims", w.deleteClaim)
	w.ours.PrependReactor("update", "nodeclaims", w.updateClaim)
	w.ours.PrependReactor("patch", "nodeclaims", w.patchClaim)
	w.kube.PrependReactor("delete", "nodes", w.deleteNode)
	w.kube.PrependReactor("update", "nodes", w.updateNode)
	w.kube.PrependReactor("create", "pods", w.evict)
	return w
}

func (w *world) deleteClaim(action ktesting.Action) (bool, runtime.Object, error) {
	w.writes.Lock()
	defer w.writes.Unlock()
	name := action.(ktesting.DeleteAction).GetName()
	object, err := w.ours.Tracker().Get(action.GetResource(), "", name)
	if err != nil {
		return true, nil, err
	}
	claim := object.(*karpv1.NodeClaim).DeepCopy()
	if len(claim.Finalizers) == 0 {
		return false, nil, nil
	}
	if claim.DeletionTimestamp == nil {
		now := metav1.Now()
		claim.DeletionTimestamp = &now
		w.version++
		claim.ResourceVersion = fmt.Sprint(w.version)
		return true, nil, w.ours.Tracker().Update(action.GetResource(), claim, "")
	}
	return true, nil, nil
}

func (w *world) updateClaim(action ktesting.Action) (bool, runtime.Object, error) {
	w.writes.Lock()
	defer w.writes.Unlock()
	return w.putClaim(action, action.(ktesting.UpdateAction).GetObject().(*karpv1.NodeClaim).DeepCopy())
}

func (w *world) patchClaim(action ktesting.Action) (bool, runtime.Object, error) {
	w.writes.Lock()
	defer w.writes.Unlock()
	patch := action.(ktesting.PatchAction)
	object, err := w.ours.Tracker().Get(action.GetResource(), "", patch.GetName())
	if err != nil {
		return true, nil, err
	}
	claim := object.(*karpv1.NodeClaim).DeepCopy()
	if err := json.Unmarshal(patch.GetPatch(), claim); err != nil { // as a merge patch, if it takes nothing away
		return true, nil, err
	}
	return w.putClaim(action, claim)
}

// putClaim refuses writes from stale copies and keeps status and the rest apart,
// as an API server does.
func (w *world) putClaim(action ktesting.Action, claim *karpv1.NodeClaim) (bool, runtime.Object, error) {
	object, err := w.ours.Tracker().Get(action.GetResource(), "", claim.Name)
	if err != nil {
		return true, nil, err
	}
	current := object.(*karpv1.NodeClaim)
	if claim.ResourceVersion != current.ResourceVersion {
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), claim.Name, errors.New("stale"))
	}
	if action.GetSubresource() == "status" {
		status := claim.Status
		claim = current.DeepCopy()
		claim.Status = status
	} else {
		claim.Status = current.Status
	}
	if claim.DeletionTimestamp != nil && len(claim.Finalizers) == 0 {
		return true, claim, w.ours.Tracker().Delete(action.GetResource(), "", claim.Name)
	}
	w.version++
	claim.ResourceVersion = fmt.Sprint(w.version)
	return true, claim, w.ours.Tracker().Update(action.GetResource(), claim, "")
}

func (w *world) deleteNode(action ktesting.Action) (bool, runtime.Object, error) {
	name := action.(ktesting.DeleteAction).GetName()
	object, err := w.kube.Tracker().Get(action.GetResource(), "", name)
	if err != nil {
		return true, nil, err
	}
	node := object.(*corev1.Node).DeepCopy()
	if len(node.Finalizers) == 0 {
		return false, nil, nil
	}
	if node.DeletionTimestamp == nil {
		now := metav1.Now()
		node.DeletionTimestamp = &now
		return true, nil, w.kube.Tracker().Update(action.GetResource(), node, "")
	}
	return true, nil, nil
}

func (w *world) updateNode(action ktesting.Action) (bool, runtime.Object, error) {
	node := action.(ktesting.UpdateAction).GetObject().(*corev1.Node)
	if node.DeletionTimestamp != nil && len(node.Finalizers) == 0 {
		return true, node, w.kube.Tracker().Delete(action.GetResource(), "", node.Name)
	}
	return false, nil, nil
}

func (w *world) evict(action ktesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(ktesting.CreateAction)
	if !ok || action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	w.mu.Lock()
	blocked := w.blocked
	w.mu.Unlock()
	if blocked {
		return true, nil, tooMany()
	}
	eviction := create.GetObject().(*policyv1.Eviction)
	return true, nil, w.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace, eviction.Name)
}

// start runs a controller on the world; the result ends it, as a crash would.
func (w *world) start(options lifecycle.Options) (controller *lifecycle.Controller, crash func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	core, ours := informers.NewSharedInformerFactory(w.kube, 0), externalversions.NewSharedInformerFactory(w.ours, 0)
	if options.DrainSettle == 0 {
		options.DrainSettle = time.Millisecond
	}
	c, err := lifecycle.New(lifecycle.Deps{
		Kube: w.kube, Karpenter: w.ours, Core: core, Ours: ours, Cloud: w.cloud, Events: events.NewRecorder(w.sink, clock.RealClock{}),
		Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
		Hooks: lifecycle.Hooks{
			NodeNamed: func(_ context.Context, claim, node string) { w.mu.Lock(); w.named[claim] = node; w.mu.Unlock() },
			Lacking: func(pool, instanceType string, name corev1.ResourceName) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.lacking == fmt.Sprint(pool, " ", instanceType, " ", name)
			},
			ClaimFailed: func(_ context.Context, claim string) { w.mu.Lock(); w.failed = append(w.failed, claim); w.mu.Unlock() },
		},
	}, options)
	require.NoError(w.t, err)
	core.StartWithContext(ctx)
	ours.StartWithContext(ctx)
	done := make(chan struct{})
	go func() { c.Run(ctx, 4); close(done) }()
	var once sync.Once
	crash = func() {
		once.Do(func() {
			cancel()
			<-done
			core.Shutdown()
			ours.Shutdown()
		})
	}
	w.t.Cleanup(crash)
	return c, crash
}

func (w *world) claim(name string) *karpv1.NodeClaim {
	claim, err := w.ours.KarpenterV1().NodeClaims().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

func (w *world) node(name string) *corev1.Node {
	node, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return node
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, 15*time.Second, 5*time.Millisecond, what)
}

func (w *world) awaitCondition(claim, kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s is %s (%s)", kind, status, reason), func() bool {
		c := w.claim(claim)
		if c == nil {
			return false
		}
		have := meta.FindStatusCondition(c.Status.Conditions, kind)
		return have != nil && have.Status == status && have.Reason == reason
	})
}

// join registers a Node for the claim's instance, as a kubelet would.
func (w *world) join(name, providerID string, change ...func(*corev1.Node)) {
	w.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{ProviderID: providerID, Taints: []corev1.Taint{karpv1.UnregisteredNoExecuteTaint, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Allocatable: list("1900m"), Capacity: list("2")},
	}
	for _, f := range change {
		f(node)
	}
	_, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// settle makes the Node Ready and takes its not-ready taint off, as the control plane would.
func (w *world) settle(name string) {
	w.t.Helper()
	w.changeNode(name, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	})
}

func (w *world) changeNode(name string, change func(*corev1.Node)) {
	w.t.Helper()
	node := w.node(name).DeepCopy()
	change(node)
	_, err := w.kube.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func newClaim(name string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: typesUID(name), CreationTimestamp: metav1.Now(), Finalizers: []string{karpv1.TerminationFinalizer},
			Labels:      map[string]string{karpv1.LabelNodePool: "default", "team": "a"},
			Annotations: map[string]string{karpv1.AnnotationLaunchGroup: cloud.GroupRef{ID: "g-" + name, Attempt: 1, Members: []string{name}}.Encode(), "note": "x"},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef:  &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
			Taints:        []corev1.Taint{{Key: "dedicated", Value: "a", Effect: corev1.TaintEffectNoSchedule}},
			StartupTaints: []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoSchedule}},
		},
	}
	for _, f := range change {
		f(claim)
	}
	return claim
}

func newPod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: typesUID(name)},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}
