package provisioner_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/plugins/schedulertest"
	"github.com/berth-dev/berth/provisioner"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/batch"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/fit"
	oursfake "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

const plainConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: berth}]
`

// slowCloud sells one machine type in zones a, b and c, and has not answered a launch yet: the tests
// look at what is asked for.
type slowCloud struct{ done chan struct{} }

func (s slowCloud) Create(ctx context.Context, _ cloud.Group) ([]cloud.Created, error) {
	select {
	case <-ctx.Done():
	case <-s.done:
	}
	return nil, context.Canceled
}
func (slowCloud) Delete(context.Context, *karpv1.NodeClaim) error { return nil }
func (slowCloud) Get(context.Context, string) (*cloud.Instance, error) {
	return &cloud.Instance{}, nil
}
func (slowCloud) List(context.Context) ([]*cloud.Instance, error) { return nil, nil }
func (slowCloud) IsDrifted(context.Context, *karpv1.NodeClaim) (cloud.DriftReason, error) {
	return "", nil
}
func (slowCloud) RepairPolicies() []cloud.RepairPolicy { return nil }
func (slowCloud) InstanceTypes(context.Context, *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	return []*catalog.InstanceType{machine("m.large", 2), machine("m.2xlarge", 8)}, nil
}

const zones = "abc"

func machine(name string, cpus int) *catalog.InstanceType {
	it := &catalog.InstanceType{
		Name: name,
		Requirements: requirement.FromLabels(map[string]string{
			corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		}),
		Capacity: resources.FromList(amounts(fmt.Sprint(cpus))),
	}
	for _, zone := range strings.Split(zones, "") {
		it.Offerings = append(it.Offerings, catalog.Offering{
			Zone: zone, CapacityType: "on-demand", Price: 0.05 * float64(cpus), Available: true,
			Requirements: requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: zone, karpv1.LabelCapacityType: "on-demand"}),
		})
	}
	return it
}

func amounts(cpu string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
}

// world is a provisioner with the filters of a real scheduler over fake API servers.
type world struct {
	kube     *schedulertest.Scheduler
	ours     *oursfake.Clientset
	promises *promise.Table
	said     *record.FakeRecorder
	facade   *provisioner.Provisioner
}

// open starts a world with one pool. The scheduler itself does not run: the tests ask in its place.
func open(t *testing.T, objects ...runtime.Object) *world {
	return openWith(t, plainConfig, objects...)
}

func openWith(t *testing.T, config string, objects ...runtime.Object) *world {
	t.Helper()
	return openAround(t, config, oursfake.NewClientset(pool()), nil, objects...)
}

// extension adds a controller to a world: it may change what the provisioner is made with, and returns what
// makes the controller and how that runs.
type extension func(deps *provisioner.Deps) (open func(p *provisioner.Provisioner) (run func(context.Context)))

func openAround(t *testing.T, config string, client *oursfake.Clientset, extend extension, objects ...runtime.Object) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{ours: client, promises: promise.NewTable(), said: record.NewFakeRecorder(1000)}
	w.ours.PrependReactor("create", "nodeclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
		claim := action.(ktesting.CreateAction).GetObject().(*karpv1.NodeClaim)
		claim.UID, claim.CreationTimestamp = types.UID(claim.Name), metav1.Now() // as the API server does
		return false, nil, nil
	})
	var err error
	w.kube, err = schedulertest.New(ctx, schedulertest.NewClient(objects...), []byte(config), nil)
	require.NoError(t, err)
	o := fit.Options{Registry: w.kube.Registry}
	for _, p := range w.kube.Profiles {
		o.Profiles = append(o.Profiles, fit.Profile{Config: p, Running: w.kube.Scheduler.Profiles[p.SchedulerName]})
	}
	filters, err := fit.New(ctx, o)
	require.NoError(t, err)
	options, err := provisioner.Options{Batch: batch.Options{Idle: 20 * time.Millisecond}, RetryRefused: time.Hour}.Complete()
	require.NoError(t, err)
	ours := externalversions.NewSharedInformerFactory(w.ours, 0)
	sold := slowCloud{make(chan struct{})}
	deps := provisioner.Deps{
		Kube: w.kube.Client, Karpenter: w.ours, Core: w.kube.Informers, Ours: ours, Cloud: sold, Fit: filters, DefaultSpread: filters.DefaultSpread, Promises: w.promises,
		Events: events.NewRecorder(w.said, clock.RealClock{}), Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
		Activate: func(context.Context, []*corev1.Pod) {},
	}
	extended := func(*provisioner.Provisioner) func(context.Context) { return func(context.Context) {} }
	if extend != nil {
		extended = extend(&deps)
	}
	p, err := provisioner.New(deps, options)
	require.NoError(t, err)
	w.facade = p
	runs := []func(context.Context){p.Run, extended(p)}
	w.kube.Informers.Start(ctx.Done())
	ours.Start(ctx.Done())
	w.kube.Informers.WaitForCacheSync(ctx.Done())
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() { run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		close(sold.done)
		wg.Wait()
		w.kube.Informers.Shutdown()
		ours.Shutdown()
	})
	return w
}

func pool() *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	p.Status.Conditions = []metav1.Condition{{Type: karpv1.ConditionReady, Status: metav1.ConditionTrue}}
	return p
}

// verdicts waits until every pod has one, and returns them by pod name.
func (w *world) verdicts(t *testing.T, pods ...*corev1.Pod) map[string]promise.Entry {
	t.Helper()
	found := map[string]promise.Entry{}
	require.Eventually(t, func() bool {
		for _, pod := range pods {
			if e, ok := w.promises.Lookup(pod.UID); ok && e.State != promise.Asked {
				found[pod.Name] = e
			}
		}
		return len(found) == len(pods)
	}, 20*time.Second, 5*time.Millisecond, "every pod has a verdict")
	return found
}

// claim returns the NodeClaim on which the pod has its promise.
func (w *world) claim(t *testing.T, e promise.Entry) *karpv1.NodeClaim {
	t.Helper()
	require.Equal(t, promise.Promised, e.State, e.Reason)
	require.NotEmpty(t, e.Claim, "a new node")
	claim, err := w.ours.KarpenterV1().NodeClaims().Get(t.Context(), e.Claim, metav1.GetOptions{})
	require.NoError(t, err)
	return claim
}

// zones returns where the pod's new node may be.
func (w *world) zones(t *testing.T, e promise.Entry) []string {
	t.Helper()
	return requirement.FromClaim(w.claim(t, e).Spec.Requirements).Get(corev1.LabelTopologyZone).Values()
}

func (w *world) claims(t *testing.T) []karpv1.NodeClaim {
	t.Helper()
	list, err := w.ours.KarpenterV1().NodeClaims().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

// heard waits for an event that contains the text.
func (w *world) heard(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case event := <-w.said.Events:
			if strings.Contains(event, text) {
				return
			}
		case <-deadline:
			require.Fail(t, "no such event", text)
			return
		}
	}
}

// waiting makes a pod that the scheduler has found no node for.
func waiting(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}},
		Spec: corev1.PodSpec{SchedulerName: "berth", Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// node makes a node in use of the pool, with room for cpu.
func node(name, zone, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelInstanceTypeStable: "m.large",
		}},
		Spec: corev1.NodeSpec{ProviderID: "id-" + name},
		Status: corev1.NodeStatus{
			Allocatable: amounts(cpu), Capacity: amounts(cpu),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(n)
	}
	return n
}
