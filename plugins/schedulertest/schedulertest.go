package schedulertest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Scheduler is a scheduler that has been built and not started.
type Scheduler struct {
	*scheduler.Scheduler
	Client    *fake.Clientset
	Informers informers.SharedInformerFactory
	// Profiles are completed, in the order of the configuration.
	Profiles []schedulerconfig.KubeSchedulerProfile
	// Registry has every factory, in-tree ones included.
	Registry frameworkruntime.Registry
}

// NewClient returns a fake API server that binds pods as the real one does: the binding subresource sets
// the node's name and clears the nomination.
func NewClient(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewSimpleClientset(objects...) //nolint:staticcheck // the other constructor tracks field managers, which nobody reads here
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok || action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding, ok := create.GetObject().(*corev1.Binding)
		if !ok {
			return false, nil, nil
		}
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		obj, err := client.Tracker().Get(pods, action.GetNamespace(), binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := obj.(*corev1.Pod).DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		pod.Status.NominatedNodeName = ""
		return true, binding, client.Tracker().Update(pods, pod, pod.Namespace)
	})
	return client
}

// New builds the scheduler with a KubeSchedulerConfiguration in YAML and plugins beside the in-tree ones.
func New(ctx context.Context, client *fake.Clientset, configuration []byte, plugins frameworkruntime.Registry) (*Scheduler, error) {
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode(configuration, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	config, ok := obj.(*schedulerconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("decode configuration: got %T", obj)
	}
	s := &Scheduler{Client: client, Registry: frameworkplugins.NewInTreeRegistry(), Profiles: config.Profiles}
	if err := s.Registry.Merge(plugins); err != nil {
		return nil, err
	}
	s.Informers = scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	var real clientset.Interface = client
	s.Scheduler, err = scheduler.New(ctx, real, s.Informers, nil,
		func(name string) events.EventRecorderLogger {
			return broadcaster.NewRecorder(clientscheme.Scheme, name)
		},
		scheduler.WithProfiles(config.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(plugins),
		scheduler.WithPodInitialBackoffSeconds(config.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(config.PodMaxBackoffSeconds),
		scheduler.WithParallelism(2),
	)
	if err != nil {
		return nil, fmt.Errorf("build scheduler: %w", err)
	}
	return s, nil
}

// Start syncs the informers and runs the scheduler until ctx ends. It returns when pods are being
// scheduled; done is closed when the scheduler has stopped.
func (s *Scheduler) Start(ctx context.Context) (done <-chan struct{}, err error) {
	s.Informers.Start(ctx.Done())
	s.Informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, fmt.Errorf("wait for handlers: %w", err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Run(ctx)
	}()
	return stopped, nil
}
