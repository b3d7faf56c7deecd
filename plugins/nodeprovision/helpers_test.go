package nodeprovision

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
)

var epoch = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// asker notes who asked, as the facade would.
type asker struct {
	table *promise.Table
	mu    sync.Mutex
	asked []string
}

func (a *asker) Ask(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.table.Ask(pod, epoch) {
		a.asked = append(a.asked, pod.Name)
	}
}

func (a *asker) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.asked...)
}

// handle is the part of the framework that the plugin uses.
type handle struct {
	fwk.Handle
	snapshot   *internalcache.Snapshot
	postFilter []string
	nominated  map[string][]*corev1.Pod
}

func (h *handle) SnapshotSharedLister() fwk.SharedLister { return h.snapshot }

func (h *handle) NominatedPodsForNode(node string) []fwk.PodInfo {
	var infos []fwk.PodInfo
	for _, pod := range h.nominated[node] {
		infos = append(infos, &framework.PodInfo{Pod: pod})
	}
	return infos
}

func (h *handle) Activate(klog.Logger, map[string]*corev1.Pod) {}

func (h *handle) ListPlugins() *schedulerconfig.Plugins {
	p := &schedulerconfig.Plugins{}
	for _, name := range h.postFilter {
		p.PostFilter.Enabled = append(p.PostFilter.Enabled, schedulerconfig.Plugin{Name: name})
	}
	return p
}

var shippedOrder = []string{Name, "DynamicResources", "DefaultPreemption"}

type fixture struct {
	*Plugin
	asker  *asker
	table  *promise.Table
	hidden *Hidden
	handle *handle
}

func newFixture(tb testing.TB, args string, order []string, pods []*corev1.Pod, nodes ...*corev1.Node) *fixture {
	tb.Helper()
	f := &fixture{table: promise.NewTable(), hidden: NewHidden(), handle: &handle{snapshot: internalcache.NewSnapshot(pods, nodes), postFilter: order}}
	f.asker = &asker{table: f.table}
	plugin, err := Factory(Deps{Asker: f.asker, Promises: f.table, Hidden: f.hidden})(tb.Context(), &runtime.Unknown{Raw: []byte(args)}, f.handle)
	require.NoError(tb, err)
	f.Plugin = plugin.(*Plugin)
	return f
}

// filter runs PreFilter and Filter as the framework does.
func (f *fixture) filter(tb testing.TB, pod *corev1.Pod, node string) *fwk.Status {
	tb.Helper()
	state := framework.NewCycleState()
	_, status := f.PreFilter(tb.Context(), state, pod, nil)
	if status.IsSkip() {
		return nil
	}
	require.True(tb, status.IsSuccess(), status.Message())
	info, err := f.handle.snapshot.NodeInfos().Get(node)
	require.NoError(tb, err)
	return f.Filter(tb.Context(), state, pod, info)
}

func amounts(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}
}

func makePod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{SchedulerName: "berth", Containers: []corev1.Container{
			{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: amounts(cpu)}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func withPriority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &n }
}

func ownedBy(kind, uid string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: uid, UID: types.UID(uid), Controller: &yes}}
	}
}

func onNode(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = node }
}

func makeNode(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	a := amounts(cpu)
	a[corev1.ResourceMemory] = resource.MustParse("64Gi")
	a[corev1.ResourcePods] = resource.MustParse("110")
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Allocatable: a, Capacity: a},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func initialized(n *corev1.Node) {
	n.Labels[karpv1.LabelNodePool], n.Labels[karpv1.LabelInitialized] = "default", karpv1.ValueTrue
}

func tainted(keys ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
}

const notReady = "node.kubernetes.io/not-ready"
