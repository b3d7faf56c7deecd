package fit

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// nameSuffix keeps the shadow's index names and metrics apart from the profile's.
const nameSuffix = "-simulation"

// cachedExactly names the plugins whose PreFilter depends on nothing of the pod but what classKey
// covers, and whose answer AddPod keeps exact. With any other plugin nothing is cached.
var cachedExactly = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	names.NodeResourcesFit, names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone,
	names.PodTopologySpread, names.InterPodAffinity, names.DynamicResources, names.NodeDeclaredFeatures,
	names.DeferredPodScheduling,
}

// shadow is the second framework of one profile. The lock is held for one placement: plugins see the
// trial that holds it.
type shadow struct {
	mu        sync.Mutex
	framework framework.Framework
	current   *trial
	cacheable bool
	reserves  bool
	defaults  *defaultSpread // nil when the profile has none
}

func newShadow(ctx context.Context, p Profile, registry frameworkruntime.Registry, exclude []string) (*shadow, error) {
	s := &shadow{defaults: newDefaultSpread(p, p.Running.SharedInformerFactory())}
	running := p.Running.ListPlugins()
	keep := func(set schedulerconfig.PluginSet, also ...string) schedulerconfig.PluginSet {
		return schedulerconfig.PluginSet{Enabled: slices.DeleteFunc(slices.Clone(set.Enabled), func(pl schedulerconfig.Plugin) bool {
			return slices.Contains(exclude, pl.Name) || slices.Contains(also, pl.Name)
		})}
	}
	plugins := &schedulerconfig.Plugins{
		PreFilter: keep(running.PreFilter),
		Filter:    keep(running.Filter),
		// The claims of dynamic resource allocation are shared with the running scheduler.
		Reserve:   keep(running.Reserve, names.DynamicResources),
		QueueSort: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: names.PrioritySort}}},
		Bind:      schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: names.DefaultBinder}}},
	}
	s.reserves = len(plugins.Reserve.Enabled) > 0
	s.cacheable = true
	for _, pl := range slices.Concat(plugins.PreFilter.Enabled, plugins.Filter.Enabled) {
		s.cacheable = s.cacheable && slices.Contains(cachedExactly, pl.Name)
	}
	profile := p.Config.DeepCopy()
	profile.SchedulerName += nameSuffix
	profile.Plugins = plugins
	profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(c schedulerconfig.PluginConfig) bool {
		return slices.Contains(exclude, c.Name)
	})
	own := frameworkruntime.Registry(maps.Clone(registry))
	for _, name := range exclude {
		own[name] = leftOut // a factory nobody calls: plugins that are not enabled are not made
	}
	built, err := frameworkruntime.NewFramework(ctx, own, profile,
		frameworkruntime.WithClientSet(p.Running.ClientSet()),
		frameworkruntime.WithKubeConfig(p.Running.KubeConfig()),
		frameworkruntime.WithInformerFactory(p.Running.SharedInformerFactory()),
		frameworkruntime.WithSharedDRAManager(p.Running.SharedDRAManager()),
		frameworkruntime.WithSharedCSIManager(&csiOverlay{shadow: s, real: p.Running.SharedCSIManager()}),
		frameworkruntime.WithPodGroupManager(p.Running.PodGroupManager()),
		frameworkruntime.WithSnapshotSharedLister(&lister{shadow: s, groups: p.Running.PodGroupManager()}),
		frameworkruntime.WithEventRecorder(silentRecorder{}),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithPodNominator(nobody{}),
		frameworkruntime.WithPodActivator(nobody{}),
		frameworkruntime.WithLogger(klog.LoggerWithName(klog.FromContext(ctx), "fit")),
	)
	if err != nil {
		return nil, err
	}
	s.framework = built
	return s, nil
}

func leftOut(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return nil, nil }

// silentRecorder drops the events of plugins: nothing that happens in a trial has happened.
type silentRecorder struct{}

func (silentRecorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
}
func (silentRecorder) WithLogger(klog.Logger) events.EventRecorderLogger { return silentRecorder{} }

// nobody stands for the scheduling queue, which trials have none of.
type nobody struct{}

func (nobody) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nobody) DeleteNominatedPodIfExists(*corev1.Pod)                        {}
func (nobody) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo)      {}
func (nobody) NominatedPodsForNode(string) []fwk.PodInfo                     { return nil }
func (nobody) Activate(klog.Logger, map[string]*corev1.Pod)                  {}
