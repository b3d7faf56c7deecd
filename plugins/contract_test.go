package plugins_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
	kubeschedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerappconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// This file names every signature of the scheduler that plugins, provisioner/fit and
// cmd/berth-scheduler rely on. A Kubernetes version that changes one fails here, by name.

// The extension points as nodeprovision.Plugin implements them.
type extensionPoints interface {
	Name() string
	PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status)
	PreFilterExtensions() fwk.PreFilterExtensions
	Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status
	PostFilter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status)
	PodGroupPostFilter(context.Context, fwk.PodGroupCycleState, fwk.PodGroupInfo, fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status)
	Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status
	Unreserve(context.Context, fwk.CycleState, *corev1.Pod, string)
	PostBind(context.Context, fwk.CycleState, *corev1.Pod, string)
	SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status)
	EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error)
}

// Whoever has all of these methods is a plugin at all of these points.
var _ = func(p extensionPoints) []fwk.Plugin {
	var (
		preFilter  fwk.PreFilterPlugin          = p
		filter     fwk.FilterPlugin             = p
		postFilter fwk.PostFilterPlugin         = p
		group      fwk.PodGroupPostFilterPlugin = p
		reserve    fwk.ReservePlugin            = p
		postBind   fwk.PostBindPlugin           = p
		sign       fwk.SignPlugin               = p
		enqueue    fwk.EnqueueExtensions        = p
	)
	return []fwk.Plugin{preFilter, filter, postFilter, group, reserve, postBind, sign, enqueue}
}

// What fit and the composition root call on a framework.
var _ interface {
	RunPreFilterPlugins(context.Context, fwk.CycleState, *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
	RunPreFilterExtensionAddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status
	RunFilterPlugins(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status
	RunReservePluginsReserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status
	RunReservePluginsUnreserve(context.Context, fwk.CycleState, *corev1.Pod, string)
	ListPlugins() *schedulerconfig.Plugins
	ClientSet() kubernetes.Interface
	KubeConfig() *rest.Config
	SharedInformerFactory() informers.SharedInformerFactory
	SnapshotSharedLister() fwk.SharedLister
	SharedDRAManager() fwk.SharedDRAManager
	SharedCSIManager() fwk.CSIManager
	PodGroupManager() fwk.PodGroupManager
} = framework.Framework(nil)

// What fit hands to a framework.
var (
	_ func(context.Context, frameworkruntime.Registry, *schedulerconfig.KubeSchedulerProfile, ...frameworkruntime.Option) (framework.Framework, error) = frameworkruntime.NewFramework
	_ func(fwk.SharedLister) frameworkruntime.Option                                                                                                   = frameworkruntime.WithSnapshotSharedLister
	_ func(fwk.CSIManager) frameworkruntime.Option                                                                                                     = frameworkruntime.WithSharedCSIManager
	_ func(fwk.SharedDRAManager) frameworkruntime.Option                                                                                               = frameworkruntime.WithSharedDRAManager
	_ func(fwk.PodGroupManager) frameworkruntime.Option                                                                                                = frameworkruntime.WithPodGroupManager
	_ func() *framework.CycleState                                                                                                                     = framework.NewCycleState
	_ func(...*corev1.Pod) *framework.NodeInfo                                                                                                         = framework.NewNodeInfo
	_ func(*corev1.Pod) (*framework.PodInfo, error)                                                                                                    = framework.NewPodInfo
	_ func() frameworkruntime.Registry                                                                                                                 = frameworkplugins.NewInTreeRegistry
)

// What the composition root uses.
var (
	_ func(context.Context, *options.Options, ...kubeschedulerapp.Option) (*schedulerappconfig.CompletedConfig, *scheduler.Scheduler, error) = kubeschedulerapp.Setup
	_ func(string, frameworkruntime.PluginFactory) kubeschedulerapp.Option                                                                   = kubeschedulerapp.WithPlugin
	_ func() *options.Options                                                                                                                = options.NewOptions
	_ func(*scheduler.Scheduler, context.Context)                                                                                            = (*scheduler.Scheduler).Run
	_ func(*scheduler.Scheduler, context.Context) error                                                                                      = (*scheduler.Scheduler).WaitForHandlersSync
	_ func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)                                                                  = frameworkruntime.PluginFactory(nil)
)

func TestNamesOfUpstreamPlugins(t *testing.T) {
	t.Parallel()
	registry := frameworkplugins.NewInTreeRegistry()
	for _, name := range []string{
		names.DefaultPreemption, names.DefaultBinder, names.PrioritySort, names.DynamicResources,
		names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
		names.NodeResourcesFit, names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone,
		names.PodTopologySpread, names.InterPodAffinity, names.NodeDeclaredFeatures, names.DeferredPodScheduling,
	} {
		require.Contains(t, registry, name)
	}
}
