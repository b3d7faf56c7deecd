package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/disruption"
	"github.com/berth-dev/berth/interruption"
	"github.com/berth-dev/berth/plugins/config"
	"github.com/berth-dev/berth/plugins/nodeprovision"
	"github.com/berth-dev/berth/provisioner"
	"github.com/berth-dev/berth/provisioner/batch"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	ourscheme "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/scheme"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/launch"
	"github.com/berth-dev/berth/provisioner/nodepool"
	"github.com/berth-dev/berth/provisioner/overlay"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/state"
)

// buyer is the provisioner as the composition root sees it. Every Run builds its controllers anew, so
// that one which lost its lease can come back without the process being restarted.
type buyer struct {
	in      Inputs
	client  versioned.Interface
	process context.Context //nolint:containedctx // bounds the shared informers, which outlive a Run
	current atomic.Pointer[provisioner.Provisioner]
}

// newProvisioner makes the real provisioner.
func newProvisioner(ctx context.Context, in Inputs) (Provisioner, error) {
	config := rest.CopyConfig(in.RESTConfig)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // custom resources have no protobuf
	if in.Leads != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{next: next, leads: in.Leads} })
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for karpenter.sh: %w", err)
	}
	// Asked for now, these are started and synced with the scheduler's own.
	for _, informer := range []interface{ HasSynced() bool }{
		in.Informers.Core().V1().Pods().Informer(), in.Informers.Core().V1().Nodes().Informer(),
		in.Informers.Core().V1().Namespaces().Informer(), in.Informers.Core().V1().PersistentVolumes().Informer(),
		in.Informers.Apps().V1().DaemonSets().Informer(), in.Informers.Storage().V1().VolumeAttachments().Informer(),
		in.Informers.Policy().V1().PodDisruptionBudgets().Informer(),
	} {
		_ = informer
	}
	return &buyer{in: in, client: client, process: ctx}, nil
}

// Ask wants a node for the pod. Before Run the ask only stands in the table, where Run finds it.
func (b *buyer) Ask(pod *corev1.Pod) {
	if p := b.current.Load(); p != nil {
		p.Ask(pod)
		return
	}
	b.in.Promises.Ask(pod, clock.RealClock{}.Now())
}

// Run buys and removes nodes until ctx ends.
func (b *buyer) Run(ctx context.Context) error {
	registry := &scopedRegistry{Registerer: b.in.Metrics}
	defer registry.close()
	ours := externalversions.NewSharedInformerFactory(b.client, 0)
	recorder, sink, stopEvents := b.recorder(ctx)
	defer stopEvents()
	real := clock.RealClock{}

	overlays := overlaid{on: b.in.Settings.Gates["NodeOverlay"]}
	provider, err := newCloud(ctx, b.in, b.client, ours, recorder, sink, registry, overlays.launch())
	if err != nil {
		return fmt.Errorf("set up AWS: %w", err)
	}
	var pools *nodepool.Controller // made below: it needs the model of the facade
	options, err := b.options()
	if err != nil {
		return err
	}
	adjust, lacking := overlays.plan()
	facade, err := provisioner.New(provisioner.Deps{
		Kube: b.in.Client, Karpenter: b.client, Core: b.in.Informers, Ours: ours, Cloud: provider, Fit: b.in.Fit,
		DefaultSpread: b.in.DefaultSpread, Promises: b.in.Promises,
		Events: recorder, Clock: real, Registry: registry, Activate: b.in.Activate,
		Registration: func(pool string, ok bool) { pools.RecordRegistration(pool, ok) },
		Braked:       func(pool, why string) { pools.RecordBrake(pool, why) },
		Adjust:       adjust, Lacking: lacking,
	}, options)
	if err != nil {
		return fmt.Errorf("make provisioner: %w", err)
	}
	pools, err = nodepool.New(nodepool.Deps{
		Karpenter: b.client, Ours: ours, State: facade.State(), Events: recorder, Clock: real,
	}, nodepool.Options{})
	if err != nil {
		return fmt.Errorf("make NodePool controller: %w", err)
	}
	if err := overlays.open(overlay.Deps{
		Karpenter: b.client, Ours: ours, State: facade.State(), Cloud: provider, Events: recorder, Clock: real,
		Changed: func() { facade.State().Touch(); facade.WorldChanged() },
	}); err != nil {
		return err
	}
	remover, err := disruption.New(disruption.Deps{
		Kube: b.in.Client, Karpenter: b.client, Core: b.in.Informers, Ours: ours, State: facade.State(),
		Hider: hider{b.in.Hidden, facade.State(), facade.WorldChanged}, Events: recorder, Clock: real, Registry: registry, Price: facade.Price,
		Planner: planner{facade}, Drifts: provider, Repairs: b.repairs(provider), Static: b.static(facade),
	}, disruption.Options{
		NodeCost: b.in.Settings.NodeCost, SpotToSpot: b.in.Settings.Gates["SpotToSpotConsolidation"], MaxUnhealthy: b.in.Settings.MaxUnhealthy,
	})
	if err != nil {
		return fmt.Errorf("make disruption controller: %w", err)
	}
	sdk, err := loadAWS(ctx, b.in.AWS)
	if err != nil {
		return fmt.Errorf("set up SQS: %w", err)
	}
	listener, err := interruption.New(interruption.Deps{
		Queue: sqs.NewFromConfig(sdk), Health: provider, Karpenter: b.client, Core: b.in.Informers, Ours: ours,
		Shortages: provider, Events: recorder, Clock: real, Registry: registry,
	}, b.in.Settings.InterruptionQueue)
	if err != nil {
		return fmt.Errorf("make interruption controller: %w", err)
	}
	// Kinds that only these controllers need may have been asked for just now.
	b.in.Informers.StartWithContext(b.process)
	ours.StartWithContext(ctx)
	defer ours.Shutdown()

	b.current.Store(facade)
	defer b.current.Store(nil)
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){
		provider.Run, facade.Run, remover.Run, listener.Run, overlays.run, func(ctx context.Context) { pools.Run(ctx, 10) },
	} {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return nil
}

// repairs are the conditions for which nodes are given up, none while the gate is off.
func (b *buyer) repairs(provider cloud.Provider) []cloud.RepairPolicy {
	if !b.in.Settings.Gates["NodeRepair"] {
		return nil
	}
	return provider.RepairPolicies()
}

// static launches the nodes of static pools, nil while the gate is off.
func (b *buyer) static(facade *provisioner.Provisioner) disruption.Static {
	if !b.in.Settings.Gates["StaticCapacity"] {
		return nil
	}
	return facade
}

func (b *buyer) options() (provisioner.Options, error) {
	s := b.in.Settings
	options, err := provisioner.Options{
		SchedulerNames: append(append([]string{}, b.in.SchedulerNames...), b.in.ProvisionFor...),
		Batch:          batch.Options{Idle: s.BatchIdleDuration, Max: s.BatchMaxDuration},
		Launch:         launch.Options{NodeCap: s.NodeCap},
		NodeCost:       s.NodeCost,
		Preferences:    solver.PreferencePolicy(s.PreferencePolicy),
		RelaxMinValues: s.MinValuesPolicy == config.MinValuesBestEffort,
	}.Complete()
	if err != nil {
		return options, fmt.Errorf("settings of the provisioner: %w", err)
	}
	return options, nil
}

// recorder sends events under the name that dashboards know.
func (b *buyer) recorder(ctx context.Context) (*events.Recorder, record.EventRecorder, func()) {
	kinds := runtime.NewScheme()
	_ = scheme.AddToScheme(kinds) // adding generated kinds to an empty scheme cannot fail
	_ = ourscheme.AddToScheme(kinds)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: b.in.Client.CoreV1().Events(metav1.NamespaceAll)})
	sink := broadcaster.NewRecorder(kinds, corev1.EventSource{Component: events.Component})
	return events.NewRecorder(sink, clock.RealClock{}), sink, broadcaster.Shutdown
}

// planner is the facade as disruption sees it.
type planner struct{ *provisioner.Provisioner }

func (p planner) World(ctx context.Context) disruption.World { return p.Provisioner.World(ctx) }

// hider keeps a node out of scheduling first, where a pod may be on its way, and then out of planning.
type hider struct {
	scheduling *nodeprovision.Hidden
	planning   *state.State
	changed    func() // no event wakes the pods that were refused meanwhile
}

var errReserved = errors.New("a pod is on its way to the node")

func (h hider) Hide(node string) error {
	if !h.scheduling.Hide(node) {
		return errReserved
	}
	h.planning.Hide(node)
	return nil
}

func (h hider) Unhide(node string) {
	h.planning.Unhide(node)
	h.scheduling.Show(node)
	h.changed()
}

// scopedRegistry takes back on close what was registered through it.
type scopedRegistry struct {
	prometheus.Registerer
	mu         sync.Mutex
	registered []prometheus.Collector
}

func (s *scopedRegistry) Register(c prometheus.Collector) error {
	if err := s.Registerer.Register(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = append(s.registered, c)
	return nil
}

// MustRegister panics on a collision, which is a fault of the program and shows at every start.
func (s *scopedRegistry) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

func (s *scopedRegistry) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.registered {
		s.Unregister(c)
	}
	s.registered = nil
}
