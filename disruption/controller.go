package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/disruption/budget"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
)

// State is the part of the cluster model that the controller reads.
type State interface {
	Snapshot() *cluster.Snapshot
	Synced() bool
}

// Hider keeps nodes out of scheduling and planning.
type Hider interface {
	// Hide makes the node no target for pods from now on. It refuses with an error when a pod is on its
	// way there that snapshots may not show yet; the node is not hidden then.
	Hide(node string) error
	// Unhide takes that back. A node that is not hidden stays as it is.
	Unhide(node string)
}

// Deps of a Controller; all are required but Price, Planner and Drifts.
type Deps struct {
	Kube      kubernetes.Interface
	Karpenter versioned.Interface
	Core      informers.SharedInformerFactory
	Ours      externalversions.SharedInformerFactory
	State     State
	Hider     Hider
	Events    *events.Recorder
	Clock     clock.WithTicker
	Registry  prometheus.Registerer
	// Price is the node's hourly price in USD, 0 when it is not known. Dear nodes go first.
	Price func(node *cluster.Node) float64
	// Planner finds places for the pods of nodes that are to go. Without it only empty and expired nodes
	// are removed.
	Planner Planner
	// Drifts tells what the provider knows about drift; may be nil.
	Drifts Drifts
	// Repairs are the node conditions for which nodes are given up; none means that nodes are not repaired
	// (gate NodeRepair).
	Repairs []cloud.RepairPolicy
	// Static keeps pools with spec.replicas at their number; nil leaves them alone (gate StaticCapacity).
	Static Static
}

// Options of a Controller. The zero value is valid.
type Options struct {
	// NodeClassGroup is the API group of the classes that this provider serves; nodes of others are not
	// touched. Default "karpenter.k8s.aws".
	NodeClassGroup string
	// Interval is how often nodes are looked at; default 1 s.
	Interval time.Duration
	// ReportInterval is how often blocked nodes, faulty budgets and gauges are reported; default 10 s.
	ReportInterval time.Duration
	// ValidationDelay is how long a node must stay chosen before anything is done about it. Default 0:
	// the delay exists so that pods which are about to land show themselves, but here the node is
	// hidden first, pods on their way refuse that, and the last check asks the API server and not a
	// cache. Waiting would only keep an empty node.
	ValidationDelay time.Duration
	// ConsolidationInterval is how often the fleet is searched for something to consolidate; default 5 s.
	// ConsolidationTime is how long one search may take; default 2 s.
	ConsolidationInterval, ConsolidationTime time.Duration
	// NodeCost is what each node costs beside its instance, USD per hour.
	NodeCost float64
	// SpotToSpot allows spot nodes to be replaced by cheaper spot nodes (gate SpotToSpotConsolidation).
	SpotToSpot bool
	// MaxUnhealthy is how many nodes of a pool may ail before none of them is given up any more: a number,
	// or a percentage, rounded up. So much trouble at once has another cause. Default "20%".
	MaxUnhealthy string
}

func (o Options) withDefaults() Options {
	if o.NodeClassGroup == "" {
		o.NodeClassGroup = ec2v1.Group
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.ReportInterval <= 0 {
		o.ReportInterval = 10 * time.Second
	}
	if o.ConsolidationInterval <= 0 {
		o.ConsolidationInterval = 5 * time.Second
	}
	if o.ConsolidationTime <= 0 {
		o.ConsolidationTime = 2 * time.Second
	}
	if o.MaxUnhealthy == "" {
		o.MaxUnhealthy = "20%"
	}
	return o
}

// Controller looks for nodes to remove.
type Controller struct {
	Deps
	options Options
	metrics *metrics
	pools   karplisters.NodePoolLister
	pdbs    policylisters.PodDisruptionBudgetLister
	synced  []cache.InformerSynced

	// The rest is used by one round at a time.
	reported time.Time            // when the last full report was made
	chosen   map[string]time.Time // nodes by since when they could go, for ValidationDelay

	exchanges         []*exchange
	lastConsolidation lastLook
	drifts            map[types.UID]providerSays         // by claim
	pauses            map[string]pause                   // by pool
	offered           map[string][]*catalog.InstanceType // what each pool could buy at offeredAt
	offeredAt         time.Time
	fills             map[string]*fill        // by static pool
	deleted           map[types.UID]bool      // claims that were deleted whatever holds them, until they are gone
	repairHeld        map[types.UID]time.Time // claims of ailing nodes that may not be given up before then

	mu       sync.Mutex
	commands map[string]types.UID    // hidden nodes by name, with the claim that is being removed
	resting  map[types.UID]time.Time // claims whose removal did not work out, until when they are left alone
}

// New makes a Controller. It must be called before the informers start, and, when both use one
// Registry, after the lifecycle controller, whose disrupted_total it shares.
func New(deps Deps, options Options) (*Controller, error) {
	pools, pdbs := deps.Ours.Karpenter().V1().NodePools(), deps.Core.Policy().V1().PodDisruptionBudgets()
	options = options.withDefaults()
	if _, err := budget.Share(options.MaxUnhealthy, 0); err != nil {
		return nil, fmt.Errorf("option MaxUnhealthy: %w", err)
	}
	m, err := newMetrics(deps.Registry)
	return &Controller{
		Deps: deps, options: options, metrics: m, pools: pools.Lister(), pdbs: pdbs.Lister(),
		synced: []cache.InformerSynced{pools.Informer().HasSynced, pdbs.Informer().HasSynced, deps.State.Synced},
		chosen: map[string]time.Time{}, commands: map[string]types.UID{}, resting: map[types.UID]time.Time{},
		drifts: map[types.UID]providerSays{}, pauses: map[string]pause{}, offered: map[string][]*catalog.InstanceType{}, deleted: map[types.UID]bool{}, fills: map[string]*fill{},
		repairHeld: map[types.UID]time.Time{},
	}, err
}

// Run works until ctx ends; it returns when every goroutine of the controller has ended.
func (c *Controller) Run(ctx context.Context) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return
	}
	defer c.unhideAll()
	ticker := c.Clock.NewTicker(c.options.Interval)
	defer ticker.Stop()
	for {
		c.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// round is one look at the whole cluster.
func (c *Controller) round(ctx context.Context) {
	now := c.Clock.Now()
	v, err := c.view(now)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reading pools and disruption budgets failed, will retry")
		return
	}
	c.settle(v.snapshot)
	c.cleanUp(ctx, v)
	if now.Sub(c.reported) >= c.options.ReportInterval {
		c.reported = now
		c.report(ctx, v)
	}
	c.forgetGone(v)
	c.advance(ctx, v.snapshot)
	c.repair(ctx, v)
	c.keepReplicas(ctx, v)
	c.removeEmpty(ctx, v)
	c.expire(ctx, v)
	c.replaceDrifted(ctx, v)
	c.consolidate(ctx, v)
	c.markConsolidatable(ctx, v)
	c.markDrift(ctx, v)
}

// view is what one round sees.
type view struct {
	now      time.Time
	snapshot *cluster.Snapshot
	nodes    []*cluster.Node // those of this provider
	pools    map[string]*karpv1.NodePool
}

func (c *Controller) view(now time.Time) (*view, error) { return c.viewOf(c.State.Snapshot(), now) }

func (c *Controller) viewOf(snapshot *cluster.Snapshot, now time.Time) (*view, error) {
	v := &view{now: now, snapshot: snapshot, pools: map[string]*karpv1.NodePool{}}
	pools, err := c.pools.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, pool := range pools {
		if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil && ref.Group == c.options.NodeClassGroup {
			v.pools[pool.Name] = pool
		}
	}
	for _, node := range v.snapshot.Nodes {
		if node.Claim == nil {
			continue
		}
		if ref := node.Claim.Spec.NodeClassRef; ref != nil && ref.Group == c.options.NodeClassGroup {
			v.nodes = append(v.nodes, node)
		}
	}
	return v, nil
}

// find returns the node in the view that has this name and claim, nil when it is gone.
func (v *view) find(name string, claim types.UID) *cluster.Node {
	for _, node := range v.nodes {
		if node.Name == name && node.Claim.UID == claim {
			return node
		}
	}
	return nil
}

// settle ends commands whose node or claim is gone. A name may come again with another claim.
func (c *Controller) settle(snapshot *cluster.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	maps.DeleteFunc(c.resting, func(_ types.UID, until time.Time) bool { return !now.Before(until) })
	if len(c.commands) == 0 {
		return
	}
	alive := make(map[string]types.UID, len(c.commands))
	for _, node := range snapshot.Nodes {
		if node.Name != "" && node.Claim != nil {
			alive[node.Name] = node.Claim.UID
		}
	}
	for name, claim := range c.commands {
		if alive[name] != claim {
			delete(c.commands, name)
			c.Hider.Unhide(name)
		}
	}
}

// forgetGone drops what is remembered about claims that are gone.
func (c *Controller) forgetGone(v *view) {
	alive := make(map[types.UID]bool, len(v.nodes))
	for _, node := range v.nodes {
		alive[node.Claim.UID] = true
	}
	maps.DeleteFunc(c.deleted, func(uid types.UID, _ bool) bool { return !alive[uid] })
	maps.DeleteFunc(c.repairHeld, func(uid types.UID, _ time.Time) bool { return !alive[uid] })
}

// unhideAll gives every hidden node back to scheduling, which may outlive this controller. Those that
// are on their way out have the taint.
func (c *Controller) unhideAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.commands {
		c.Hider.Unhide(name)
	}
	clear(c.commands)
}

// restFor is how long a node is left alone after its removal did not work out, so that a cause which
// lasts does not make its taint flap.
const restFor = 10 * time.Second

// begin notes a command for the node; end forgets it, because it did not work out; isOurs reports
// whether there is one.
func (c *Controller) begin(node *cluster.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands[node.Name] = node.Claim.UID
}

func (c *Controller) end(node *cluster.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.commands, node.Name)
	c.resting[node.Claim.UID] = c.Clock.Now().Add(restFor)
}

// mayTry reports whether the node is neither in a command nor resting from one.
func (c *Controller) mayTry(node *cluster.Node, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ours := c.commands[node.Name]
	return !ours && !now.Before(c.resting[node.Claim.UID])
}

func (c *Controller) isOurs(node *cluster.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim, ok := c.commands[node.Name]
	return ok && node.Claim != nil && claim == node.Claim.UID
}

// cleanUp takes the marks of a removal off nodes that nobody is removing: a restart or a failed
// roll-back left them, or a user set them.
func (c *Controller) cleanUp(ctx context.Context, v *view) {
	for _, node := range v.nodes {
		if node.Node == nil || node.Node.DeletionTimestamp != nil || node.Claim.DeletionTimestamp != nil || c.isOurs(node) {
			continue
		}
		err := errors.Join(c.untaint(ctx, node.Node), c.clearReason(ctx, node.Claim))
		if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cleaning up the marks of a removal failed, will retry", "node", klog.KObj(node.Node))
		}
	}
}
