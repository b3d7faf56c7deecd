package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Machine is a computer that runs a kubelet.
type Machine struct {
	ID, ProviderID, NodeName, InternalIP         string
	Zone, ZoneID, Region, InstanceType, Arch, OS string
	Labels                                       map[string]string
	Taints                                       []corev1.Taint
	Capacity, Allocatable                        corev1.ResourceList
	// BootDelay passes before the kubelet registers, ReadyDelay from then until the Node is Ready,
	// DeviceDelay from then until device plugins have announced extended resources.
	BootDelay, ReadyDelay, DeviceDelay time.Duration
}

// Event says that a machine runs, or is gone.
type Event struct {
	Gone    bool
	Machine Machine
}

// Deps of Kubelets; all are required.
type Deps struct {
	Kube  kubernetes.Interface
	Clock clock.WithTicker
}

// Options of Kubelets. The zero value is valid.
type Options struct {
	Workers int // parallel writers for pods, and as many for nodes; default 32
	// StartDelay passes between the admission of a pod and its running; default 100 ms.
	StartDelay time.Duration
	// Version that the kubelets report; default "v0.0.0".
	Version string
}

// Kubelets serves every machine.
type Kubelets struct {
	Deps
	options  Options
	informer cache.SharedIndexInformer
	factory  informers.SharedInformerFactory
	pods     workqueue.TypedRateLimitingInterface[string] // by namespace/name
	nodes    workqueue.TypedRateLimitingInterface[string] // by node name

	mu        sync.Mutex
	machines  map[string]*machine // by node name
	addresses netip.Addr          // last pod address given out
}

// machine is what is known of one kubelet.
type machine struct {
	Machine
	bootAt     time.Time
	registered time.Time // zero until the Node is there
	renewed    time.Time
	published  bool              // the EBS driver is up
	ips        map[string]string // pod UID to address
	admitted   map[string]bool   // pod UID
}

// New makes the kubelets; Run starts them.
func New(deps Deps, options Options) *Kubelets {
	if options.Workers == 0 {
		options.Workers = 32
	}
	if options.StartDelay == 0 {
		options.StartDelay = 100 * time.Millisecond
	}
	options.Version = cmp.Or(options.Version, "v0.0.0")
	factory := informers.NewSharedInformerFactory(deps.Kube, 0)
	k := &Kubelets{
		Deps: deps, options: options, factory: factory, informer: factory.Core().V1().Pods().Informer(),
		machines: map[string]*machine{}, addresses: netip.AddrFrom4([4]byte{100, 64, 0, 0}),
	}
	limiter := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second)
	}
	config := workqueue.TypedRateLimitingQueueConfig[string]{Clock: deps.Clock}
	k.pods = workqueue.NewTypedRateLimitingQueueWithConfig(limiter(), config)
	k.nodes = workqueue.NewTypedRateLimitingQueueWithConfig(limiter(), config)
	return k
}

const nodeIndex = "node"

// Run serves machines until ctx ends; events may be closed before. It returns when all goroutines have
// ended.
func (k *Kubelets) Run(ctx context.Context, events <-chan Event) {
	logger := klog.FromContext(ctx)
	err := k.informer.AddIndexers(cache.Indexers{nodeIndex: func(object any) ([]string, error) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}})
	see := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			k.pods.Add(pod.Namespace + "/" + pod.Name)
		}
	}
	_, errHandler := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: k.lostPod,
	})
	if err := errors.Join(err, errHandler); err != nil {
		logger.Error(err, "Watching pods failed, no kubelet runs")
		return
	}
	k.factory.StartWithContext(ctx)
	defer k.factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), k.informer.HasSynced) {
		return
	}
	stop := context.AfterFunc(ctx, func() { k.pods.ShutDown(); k.nodes.ShutDown() })
	defer stop()
	var wg sync.WaitGroup
	for range k.options.Workers {
		wg.Go(func() { work(ctx, k.pods, k.syncPod) })
		wg.Go(func() { work(ctx, k.nodes, k.syncNode) })
	}
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case event, open := <-events:
				if !open {
					return
				}
				k.note(event)
			}
		}
	})
	wg.Wait()
}

// work takes keys until the queue ends. sync returns when it wants to look again; 0 for not by time.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], sync func(context.Context, string) (time.Duration, error)) {
	for key, shutdown := queue.Get(); !shutdown; key, shutdown = queue.Get() {
		after, err := sync(ctx, key)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).V(2).Info("Simulated kubelet failed, will retry", "key", key, "err", err)
			queue.AddRateLimited(key)
		default:
			queue.Forget(key)
			if after > 0 {
				queue.AddAfter(key, after)
			}
		}
		queue.Done(key)
	}
}

// note takes up a machine, or forgets it.
func (k *Kubelets) note(event Event) {
	name := event.Machine.NodeName
	k.mu.Lock()
	defer k.mu.Unlock()
	if event.Gone {
		if have := k.machines[name]; have != nil && have.ID == event.Machine.ID {
			delete(k.machines, name)
		}
		return
	}
	if have := k.machines[name]; have != nil && have.ID == event.Machine.ID {
		return
	}
	k.machines[name] = &machine{
		Machine: event.Machine, bootAt: k.Clock.Now().Add(event.Machine.BootDelay), ips: map[string]string{}, admitted: map[string]bool{},
	}
	k.nodes.AddAfter(name, event.Machine.BootDelay)
}

func (k *Kubelets) machine(node string) *machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.machines[node]
}

// SystemNode is a tainted node that stands for those that a real cluster has before any autoscaler.
func SystemNode(number int) Machine {
	name := fmt.Sprintf("system-%d", number)
	resources := corev1.ResourceList{
		corev1.ResourceCPU: mustQuantity("4"), corev1.ResourceMemory: mustQuantity("16Gi"),
		corev1.ResourcePods: mustQuantity("110"), corev1.ResourceEphemeralStorage: mustQuantity("20Gi"),
	}
	return Machine{
		ID: name, NodeName: name, InternalIP: fmt.Sprintf("10.255.0.%d", number), Arch: "amd64", OS: "linux", Region: "us-east-1", Zone: "us-east-1a",
		Labels:   map[string]string{"berth.dev/system": "true"},
		Taints:   []corev1.Taint{{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
		Capacity: resources, Allocatable: resources,
	}
}
