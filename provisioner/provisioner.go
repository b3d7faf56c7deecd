package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/batch"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/launch"
	"github.com/berth-dev/berth/provisioner/lifecycle"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/state"
	"github.com/berth-dev/berth/provisioner/volume"
)

// Deps are the things that a Provisioner works with; all are required unless they say otherwise.
type Deps struct {
	Kube      kubernetes.Interface
	Karpenter versioned.Interface
	// Core and Ours are started by whoever made them, after New.
	Core informers.SharedInformerFactory
	Ours externalversions.SharedInformerFactory

	Cloud cloud.Provider
	// Fit may be nil, in which case placements are not confirmed; only tests do that.
	Fit solver.Fit
	// DefaultSpread returns the topology spread constraints that the pod's profile adds to a pod without
	// any; may be nil.
	DefaultSpread func(pod *corev1.Pod) []corev1.TopologySpreadConstraint
	Promises      *promise.Table
	Events        *events.Recorder
	Clock         clock.WithTicker
	Registry      prometheus.Registerer
	// Activate makes the scheduler try these pods again now. It must return at once.
	Activate func(ctx context.Context, pods []*corev1.Pod)
	// Adjust returns the pool's types as node overlays correct them, or why the pool has to wait; may be nil.
	// It must not change what it is given.
	Adjust func(pool *karpv1.NodePool, types []*catalog.InstanceType) (adjusted []*catalog.InstanceType, wait string)
	// Lacking reports whether nodes of the type are known to come without a resource that an overlay
	// declares; may be nil.
	Lacking func(pool, instanceType string, name corev1.ResourceName) bool
	// Registration hears whether a launch of a pool led to a node; may be nil.
	Registration func(pool string, ok bool)
	// Braked hears which pool a safety brake holds back, and why; may be nil.
	Braked func(pool, why string)
}

// Options of a Provisioner. The zero value is valid; Complete fills defaults and reports every fault.
type Options struct {
	// SchedulerNames are the profiles whose pods are provisioned for; default "berth".
	SchedulerNames []string
	Batch          batch.Options
	Launch         launch.Options
	Lifecycle      lifecycle.Options
	// NodeCost is what a node costs beside its instance, in USD per hour; default 0.005.
	NodeCost float64
	// Preferences says what the pods' preferences do; default Guide.
	Preferences solver.PreferencePolicy
	// RelaxMinValues lets pools plan with fewer values than minValues asks for (MIN_VALUES_POLICY=BestEffort).
	RelaxMinValues bool
	// RetryRefused is how often refused pods ask again without an event, because offerings and prices
	// change silently; default 30 s.
	RetryRefused time.Duration
	// Workers reconcile NodeClaims in parallel; default 50.
	Workers int
}

// Complete fills in defaults and validates.
func (o Options) Complete() (Options, error) {
	var errBatch, errLaunch error
	o.Batch, errBatch = o.Batch.Complete()
	o.Launch, errLaunch = o.Launch.Complete()
	if len(o.SchedulerNames) == 0 {
		o.SchedulerNames = []string{"berth"}
	}
	o.NodeCost, o.RetryRefused, o.Workers = cmp.Or(o.NodeCost, 0.005), cmp.Or(o.RetryRefused, 30*time.Second), cmp.Or(o.Workers, 50)
	var errCost error
	if o.NodeCost < 0 {
		errCost = fmt.Errorf("nodeCost %g is negative; use USD per hour and node, such as 0.005", o.NodeCost)
	}
	return o, errors.Join(errBatch, errLaunch, errCost)
}

// Provisioner turns asks into nodes.
type Provisioner struct {
	Deps
	options Options
	metrics *metrics

	asks      *batch.Batcher[types.UID, *corev1.Pod]
	state     *state.State
	launcher  *launch.Launcher
	lifecycle *lifecycle.Controller

	podLister   corelisters.PodLister
	poolLister  karplisters.NodePoolLister
	claimLister karplisters.NodeClaimLister
	volumes     volume.Listers

	budgetLister policylisters.PodDisruptionBudgetLister
	csiLister    storagelisters.CSINodeLister
	synced       []cache.InformerSynced
	leaving      chan struct{} // a node has begun to go away
	departures   departures
	changed      chan struct{} // the world changed: refused pods may ask again

	typesMu sync.Mutex
	types   map[string]map[string]*catalog.InstanceType // by pool and name, as of the last solve
}

// New makes a Provisioner; the options must be complete. It starts nothing, and must be called before
// the informers start.
func New(deps Deps, options Options) (*Provisioner, error) {
	pods := deps.Core.Core().V1().Pods()
	pools, claims := deps.Ours.Karpenter().V1().NodePools(), deps.Ours.Karpenter().V1().NodeClaims()
	pvcs, pvs, classes := deps.Core.Core().V1().PersistentVolumeClaims(), deps.Core.Core().V1().PersistentVolumes(), deps.Core.Storage().V1().StorageClasses()
	budgets, csiNodes := deps.Core.Policy().V1().PodDisruptionBudgets(), deps.Core.Storage().V1().CSINodes()
	p := &Provisioner{
		Deps: deps, options: options, metrics: newMetrics(deps.Registry, deps.Promises),
		asks:      batch.New[types.UID, *corev1.Pod](options.Batch, deps.Clock),
		podLister: pods.Lister(), poolLister: pools.Lister(), claimLister: claims.Lister(),
		volumes: volume.Listers{Claims: pvcs.Lister(), Volumes: pvs.Lister(), Classes: classes.Lister()},
		synced: []cache.InformerSynced{
			pods.Informer().HasSynced, pools.Informer().HasSynced, claims.Informer().HasSynced,
			pvcs.Informer().HasSynced, pvs.Informer().HasSynced, classes.Informer().HasSynced,
			budgets.Informer().HasSynced, csiNodes.Informer().HasSynced,
		},
		budgetLister: budgets.Lister(), csiLister: csiNodes.Lister(), leaving: make(chan struct{}, 1), changed: make(chan struct{}, 1), types: map[string]map[string]*catalog.InstanceType{},
	}
	var err error
	p.state, err = state.New(state.Deps{Core: deps.Core, Ours: deps.Ours, Promises: deps.Promises, TypesOf: p.typesOf, Leaving: p.nodeLeaves})
	if err != nil {
		return nil, fmt.Errorf("make cluster model: %w", err)
	}
	p.lifecycle, err = lifecycle.New(lifecycle.Deps{
		Kube: deps.Kube, Karpenter: deps.Karpenter, Core: deps.Core, Ours: deps.Ours, Cloud: deps.Cloud,
		Events: deps.Events, Clock: deps.Clock, Registry: deps.Registry,
		Hooks: lifecycle.Hooks{NodeNamed: p.NodeNamed, ClaimFailed: p.ClaimGone, Tracked: p.state.Track, Registration: deps.Registration, Lacking: deps.Lacking, Placed: p.Placed},
	}, options.Lifecycle)
	if err != nil {
		return nil, fmt.Errorf("make lifecycle controller: %w", err)
	}
	p.launcher = launch.New(launch.Deps{
		Karpenter: deps.Karpenter, Pools: p.poolLister, Promises: deps.Promises, Events: deps.Events, Starter: p.lifecycle,
		Clock: deps.Clock, Registry: deps.Registry, Pending: p.isPending, Usage: p.usage, Track: p.state.Track, Refuse: p.refuseAll, Braked: deps.Braked,
	}, options.Launch)
	if err := p.watch(); err != nil {
		return nil, fmt.Errorf("watch the cluster: %w", err)
	}
	return p, nil
}

// State is the model that disruption plans on, too.
func (p *Provisioner) State() *state.State { return p.state }

// Ask tells that the scheduler found no node for the pod. It returns at once and may be called inside
// the scheduling cycle. A pod that has asked already, or has a promise, does not ask again.
func (p *Provisioner) Ask(pod *corev1.Pod) {
	if p.Promises.Ask(pod, p.Clock.Now()) {
		p.asks.Add(pod.UID, pod)
	}
}

// Run works until ctx ends, and returns when every goroutine has ended. It is called by the leader only.
func (p *Provisioner) Run(ctx context.Context) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, append(p.synced, p.state.Synced)...) {
		return
	}
	p.restore(ctx)
	p.resume()
	var wg sync.WaitGroup
	wg.Go(func() { p.lifecycle.Run(ctx, p.options.Workers) })
	wg.Go(func() { p.tend(ctx) })
	wg.Go(func() {
		for asked := p.asks.Next(ctx); asked != nil; asked = p.asks.Next(ctx) {
			p.provision(ctx, asked)
		}
	})
	klog.FromContext(ctx).Info("Provisioning for pods", "schedulerNames", p.options.SchedulerNames)
	wg.Wait()
}

// resume puts pods into the first batch that asked before this process led: a standby takes asks but
// plans nothing.
func (p *Provisioner) resume() {
	for _, e := range p.Promises.Asking() {
		p.asks.Add(e.Pod.UID, e.Pod)
	}
}

func (p *Provisioner) isPending(pod *corev1.Pod) bool {
	current, err := p.podLister.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || current.UID != pod.UID {
		return false
	}
	return waitsForNode(current) || pod.Spec.NodeName != "" && !isFinished(current) // its successor will
}

// usage returns what counts against limits, and the number of nodes and claims in flight.
func (p *Provisioner) usage() (map[string]resources.Vector, int) {
	snapshot := p.state.Snapshot()
	usage := make(map[string]resources.Vector, len(snapshot.PoolUsage))
	for pool, v := range snapshot.PoolUsage {
		usage[pool] = v
	}
	return usage, len(snapshot.Nodes)
}

// refuseAll tells pods why their part of a plan is not carried out.
func (p *Provisioner) refuseAll(pods []*corev1.Pod, reason string) {
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			p.departures.excuse(pod) // it runs; a place for its successor is looked for again soon
			continue
		}
		p.Promises.Refuse(pod, reason, p.Clock.Now())
	}
	p.Activate(context.Background(), pods)
}

// rememberTypes keeps the catalogue of the last solve for claims that are not launched yet.
func (p *Provisioner) rememberTypes(pools []solver.Pool) {
	p.typesMu.Lock()
	defer p.typesMu.Unlock()
	for _, pool := range pools {
		byName := make(map[string]*catalog.InstanceType, len(pool.Types))
		for _, it := range pool.Types {
			byName[it.Name] = it
		}
		p.types[pool.NodePool.Name] = byName
	}
}

// typesOf returns the instance types that the claim's requirements list.
func (p *Provisioner) typesOf(claim *karpv1.NodeClaim) []*catalog.InstanceType {
	p.typesMu.Lock()
	defer p.typesMu.Unlock()
	known := p.types[claim.Labels[karpv1.LabelNodePool]]
	var list []*catalog.InstanceType
	for _, r := range claim.Spec.Requirements {
		if r.Key != corev1.LabelInstanceTypeStable || r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		for _, name := range r.Values {
			if it := known[name]; it != nil {
				list = append(list, it)
			}
		}
	}
	return list
}

// Price returns the hourly price of the node's offering in USD, 0 when it is not known.
func (p *Provisioner) Price(node *cluster.Node) float64 {
	p.typesMu.Lock()
	defer p.typesMu.Unlock()
	it := p.types[node.Pool][node.Labels[corev1.LabelInstanceTypeStable]]
	if it == nil {
		return 0
	}
	for _, o := range it.Offerings {
		if o.Zone == node.Labels[corev1.LabelTopologyZone] && o.CapacityType == node.Labels[karpv1.LabelCapacityType] {
			return o.Price
		}
	}
	return 0
}
