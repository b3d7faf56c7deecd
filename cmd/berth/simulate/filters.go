package simulate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/berth-dev/berth/plugins/nodeprovision"
	"github.com/berth-dev/berth/provisioner/fit"
	"github.com/berth-dev/berth/provisioner/promise"
)

// filters are the plugins of a scheduler that never runs, over objects out of files.
type filters struct {
	fit       *fit.Fit
	informers informers.SharedInformerFactory // not started
}

// silent takes the asks of a plugin that is never run.
type silent struct{}

func (silent) Ask(*corev1.Pod) {}

// newFilters builds the scheduler of the configuration. Pods that name another scheduler are filtered by
// the first profile.
func newFilters(ctx context.Context, configuration []byte, objects []runtime.Object, pods []*corev1.Pod) (*filters, error) {
	decoded, _, err := scheme.Codecs.UniversalDecoder().Decode(configuration, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	config, ok := decoded.(*schedulerconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("read scheduler configuration: kind: is %T, want KubeSchedulerConfiguration", decoded)
	}
	if len(config.Profiles) == 0 {
		return nil, fmt.Errorf("read scheduler configuration: profiles: is empty, want at least one")
	}
	client := fake.NewSimpleClientset(objects...) //nolint:staticcheck // the other constructor tracks field managers, which nobody reads here
	f := &filters{informers: scheduler.NewInformerFactory(client, 0, nil)}
	ours := frameworkruntime.Registry{nodeprovision.Name: nodeprovision.Factory(nodeprovision.Deps{Asker: silent{}, Promises: promise.NewTable()})}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, f.informers, nil,
		func(name string) events.EventRecorderLogger {
			return broadcaster.NewRecorder(clientscheme.Scheme, name)
		},
		scheduler.WithProfiles(config.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(ours),
		scheduler.WithPodInitialBackoffSeconds(config.PodInitialBackoffSeconds), scheduler.WithPodMaxBackoffSeconds(config.PodMaxBackoffSeconds))
	if err != nil {
		return nil, fmt.Errorf("set up the scheduler's plugins: %w", err)
	}
	options := fit.Options{Registry: frameworkplugins.NewInTreeRegistry(), Exclude: []string{nodeprovision.Name}, Foreign: map[string]string{}}
	if err := options.Registry.Merge(ours); err != nil {
		return nil, fmt.Errorf("register plugins: %w", err)
	}
	for _, p := range config.Profiles {
		options.Profiles = append(options.Profiles, fit.Profile{Config: p, Running: sched.Profiles[p.SchedulerName]})
	}
	for _, pod := range pods {
		if _, known := sched.Profiles[pod.Spec.SchedulerName]; !known {
			options.Foreign[pod.Spec.SchedulerName] = config.Profiles[0].SchedulerName
		}
	}
	if f.fit, err = fit.New(ctx, options); err != nil {
		return nil, err
	}
	return f, nil
}

// start fills the informers' caches.
func (f *filters) start(ctx context.Context) {
	f.informers.Start(ctx.Done())
	f.informers.WaitForCacheSync(ctx.Done())
}
