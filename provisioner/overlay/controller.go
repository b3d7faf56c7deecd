package overlay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
	overlaylisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1alpha1"
)

// State is the part of the cluster model that the controller reads.
type State interface {
	Snapshot() *cluster.Snapshot
	Synced() bool
}

// Types is the part of the provider that the controller needs.
type Types interface {
	// InstanceTypes returns the types that the pool's class allows, without any overlay.
	InstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error)
}

// Deps of a Controller; all are required but Changed.
type Deps struct {
	Karpenter versioned.Interface
	Ours      externalversions.SharedInformerFactory
	State     State
	Cloud     Types
	Events    *events.Recorder
	Clock     clock.WithTicker
	// Changed hears that types are adjusted in another way than before. It must return at once; may be nil.
	Changed func()
}

// Options of a Controller. The zero value is valid.
type Options struct {
	// NodeClassGroup is the API group of the classes that this provider serves; pools of others are not
	// looked at. Default "karpenter.k8s.aws".
	NodeClassGroup string
	// Interval is how often the overlays are judged anew without any change; default 6 h.
	Interval time.Duration
	// LookInterval is how often nodes are compared with what overlays declare; default 30 s.
	LookInterval time.Duration
	// Grace is how long a node that is otherwise complete may lack a declared resource; default 5 min.
	Grace time.Duration
}

func (o Options) withDefaults() Options {
	if o.NodeClassGroup == "" {
		o.NodeClassGroup = ec2v1.Group
	}
	if o.Interval <= 0 {
		o.Interval = 6 * time.Hour
	}
	if o.LookInterval <= 0 {
		o.LookInterval = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 5 * time.Minute
	}
	return o
}

// request is what the queue holds: there is one kind of work, about all overlays at once, because each may
// be in the way of each.
type request struct{}

// Controller judges overlays and keeps their conditions. Its Book adjusts types.
type Controller struct {
	Deps
	Book
	options  Options
	overlays overlaylisters.NodeOverlayLister
	pools    karplisters.NodePoolLister
	synced   []cache.InformerSynced
	queue    workqueue.TypedRateLimitingInterface[request]

	mu      sync.Mutex // over learner; verdicts are made and published under it
	learner Learner
}

// New makes a Controller and registers its informer handlers; it must be called before the informers
// start.
func New(deps Deps, options Options) (*Controller, error) {
	options = options.withDefaults()
	overlays, pools := deps.Ours.Karpenter().V1alpha1().NodeOverlays(), deps.Ours.Karpenter().V1().NodePools()
	c := &Controller{
		Deps: deps, options: options, overlays: overlays.Lister(), pools: pools.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[request](100*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[request]{Clock: deps.Clock}),
		learner: Learner{Grace: options.Grace},
	}
	return c, errors.Join(
		c.watch(overlays.Informer()), c.watch(pools.Informer()), c.watch(deps.Ours.EC2().V1().EC2NodeClasses().Informer()))
}

// watch has everything judged anew when an object comes, goes, or has another spec than before.
func (c *Controller) watch(informer cache.SharedIndexInformer) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.queue.Add(request{}) },
		UpdateFunc: func(before, after any) {
			if generationOf(before) != generationOf(after) {
				c.queue.Add(request{})
			}
		},
		DeleteFunc: func(any) { c.queue.Add(request{}) },
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	c.synced = append(c.synced, registration.HasSynced)
	return nil
}

// generationOf also tells objects of one name apart that follow each other.
func generationOf(object any) (id struct {
	types.UID
	int64
}) {
	if o, ok := object.(interface {
		GetUID() types.UID
		GetGeneration() int64
	}); ok {
		id.UID, id.int64 = o.GetUID(), o.GetGeneration()
	}
	return id
}

// Adjust returns the pool's types as the overlays correct them, or why the pool has to wait. The result is
// shared, and must not be changed. It may be called from anywhere.
func (c *Controller) Adjust(pool *karpv1.NodePool, list []*catalog.InstanceType) (out []*catalog.InstanceType, wait string) {
	out, ok := c.Book.Adjust(pool, list)
	if !ok {
		c.queue.Add(request{})
		return nil, "the node overlays have not been evaluated for it yet"
	}
	return out, ""
}

// AdjustNamed is Adjust for callers that know the pool by name. Types of a pool that is gone are returned as
// they are; an error says that the pool has to wait, as it does for moments after a start.
func (c *Controller) AdjustNamed(pool string, list []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
	found, err := c.pools.Get(pool)
	if err != nil {
		return list, nil //nolint:nilerr // a cache only ever says that it is not there
	}
	out, wait := c.Adjust(found, list)
	if wait != "" {
		return nil, fmt.Errorf("nodepool %s: %s", pool, wait)
	}
	return out, nil
}

// Run works until ctx ends; it returns when every goroutine of the controller has ended.
func (c *Controller) Run(ctx context.Context) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return
	}
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	c.queue.Add(request{}) // without any object there is a verdict, too
	var wg sync.WaitGroup
	wg.Go(func() {
		for r, shutdown := c.queue.Get(); !shutdown; r, shutdown = c.queue.Get() {
			c.process(ctx, r)
		}
	})
	wg.Go(func() { c.lookAround(ctx) })
	wg.Wait()
}

func (c *Controller) process(ctx context.Context, r request) {
	defer c.queue.Done(r)
	switch err := c.reconcile(ctx); {
	case err == nil:
		c.queue.Forget(r)
		c.queue.AddAfter(r, c.options.Interval)
	case ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, "Reconciling NodeOverlays failed, will retry")
		c.queue.AddRateLimited(r)
	}
}

// lookAround compares nodes with what is declared of them, once per interval.
func (c *Controller) lookAround(ctx context.Context) {
	ticker := c.Clock.NewTicker(c.options.LookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if c.State.Synced() && c.learn(ctx) {
			c.queue.Add(request{}) // conditions tell of it
		}
	}
}

// reconcile judges all overlays, puts the verdict in force and then writes what it is.
func (c *Controller) reconcile(ctx context.Context) error {
	overlays, err := c.overlays.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodeoverlays: %w", err)
	}
	slices.SortFunc(overlays, func(a, b *v1alpha1.NodeOverlay) int { return strings.Compare(a.Name, b.Name) })
	pools, err := c.listPools()
	if err != nil {
		return err
	}
	var rules []*Rule
	faults := map[string]error{}
	for _, o := range overlays {
		if o.DeletionTimestamp != nil {
			continue
		}
		if r, err := Parse(o); err != nil {
			faults[o.Name] = err
		} else {
			rules = append(rules, r)
		}
	}
	Order(rules)
	known := c.withTypes(ctx, pools)
	accepted, conflicts := Settle(rules, known)
	c.enforce(accepted, pools, known)
	var errs []error
	for _, o := range overlays {
		if o.DeletionTimestamp == nil {
			errs = append(errs, c.writeStatus(ctx, o, faults[o.Name], conflicts[o.Name]))
		}
	}
	return errors.Join(errs...)
}

// listPools returns the pools of this provider, by name.
func (c *Controller) listPools() ([]*karpv1.NodePool, error) {
	all, err := c.pools.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodepools: %w", err)
	}
	all = slices.DeleteFunc(all, func(p *karpv1.NodePool) bool {
		ref := p.Spec.Template.Spec.NodeClassRef
		return ref == nil || ref.Group != c.options.NodeClassGroup || p.DeletionTimestamp != nil
	})
	slices.SortFunc(all, func(a, b *karpv1.NodePool) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// withTypes adds their types to the pools. Those whose types are not known do not hold up the others: they
// cannot be provisioned for either.
func (c *Controller) withTypes(ctx context.Context, pools []*karpv1.NodePool) []Pool {
	var out []Pool
	for _, pool := range pools {
		list, err := c.Cloud.InstanceTypes(ctx, pool)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Instance types cannot be listed, overlays are judged without them", "nodePool", klog.KObj(pool), "err", err)
			continue
		}
		out = append(out, Pool{pool, list})
	}
	return out
}

// enforce puts the accepted rules in force, for the pools that have been looked at now or before.
func (c *Controller) enforce(accepted []*Rule, pools []*karpv1.NodePool, known []Pool) {
	c.mu.Lock()
	before := c.current()
	next := &verdict{rules: accepted, pools: map[string]types.UID{}, seen: c.learner.Recall(c.Clock.Now(), accepted)}
	for _, p := range known {
		next.pools[p.NodePool.Name] = p.NodePool.UID
	}
	if before != nil {
		for _, p := range pools {
			if uid, ok := before.pools[p.Name]; ok && uid == p.UID {
				next.pools[p.Name] = uid
			}
		}
	}
	same := before != nil && before.sameAs(next)
	if !same {
		c.publish(next)
	}
	c.mu.Unlock()
	if !same && c.Changed != nil {
		c.Changed()
	}
}

// sameAs reports whether the verdicts adjust types in the same way.
func (v *verdict) sameAs(o *verdict) bool {
	if len(v.pools) != len(o.pools) || !v.seen.limitsAs(o.seen) {
		return false
	}
	for name, uid := range v.pools {
		if other, ok := o.pools[name]; !ok || other != uid {
			return false
		}
	}
	return slices.EqualFunc(v.rules, o.rules, func(a, b *Rule) bool { return a.UID == b.UID && a.Generation == b.Generation })
}
