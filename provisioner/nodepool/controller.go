package nodepool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
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

// Deps of a Controller; all are required but Classes.
type Deps struct {
	Karpenter versioned.Interface
	Ours      externalversions.SharedInformerFactory
	State     State
	Events    *events.Recorder
	Clock     clock.WithTicker
	// Classes defaults to the EC2NodeClasses of Ours.
	Classes Classes
}

// Options of a Controller. The zero value is valid.
type Options struct {
	// NodeClassGroup is the API group of the classes that this provider serves; pools of others are not
	// touched. Default "karpenter.k8s.aws".
	NodeClassGroup string
	// UsageInterval is how often status.resources may change; default 5 s.
	UsageInterval time.Duration
}

func (o Options) withDefaults() Options {
	if o.NodeClassGroup == "" {
		o.NodeClassGroup = ec2v1.Group
	}
	if o.UsageInterval <= 0 {
		o.UsageInterval = 5 * time.Second
	}
	return o
}

// Controller keeps NodePools' status and hash.
type Controller struct {
	Deps
	options       Options
	pools         karplisters.NodePoolLister
	synced        []cache.InformerSynced
	queue         workqueue.TypedRateLimitingInterface[string]
	registrations registrations
	brakes        brakes
	due           sync.Map // pools whose usage may be written again, by name
}

// New makes a Controller and registers its informer handlers; it must be called before the informers
// start.
func New(deps Deps, options Options) (*Controller, error) {
	pools, classes := deps.Ours.Karpenter().V1().NodePools(), deps.Ours.EC2().V1().EC2NodeClasses()
	if deps.Classes == nil {
		deps.Classes = ec2Classes{lister: classes.Lister()}
	}
	c := &Controller{
		Deps: deps, options: options.withDefaults(), pools: pools.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute)),
		registrations: registrations{byPool: map[string]history{}}, brakes: brakes{byPool: map[string]braked{}},
	}
	return c, errors.Join(
		c.watch(pools.Informer(), func(object any) { c.enqueue(object) }),
		c.watch(classes.Informer(), c.enqueuePoolsOf),
	)
}

// watch calls see for every object that comes, changes or goes.
func (c *Controller) watch(informer cache.SharedIndexInformer, see func(object any)) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: see,
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	c.synced = append(c.synced, registration.HasSynced)
	return nil
}

func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(key)
	}
}

// enqueuePoolsOf looks again at every pool of a class that changed.
func (c *Controller) enqueuePoolsOf(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	for _, pool := range c.list() {
		if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil && ref.Name == key {
			c.queue.Add(pool.Name)
		}
	}
}

func (c *Controller) list() []*karpv1.NodePool {
	pools, err := c.pools.List(labels.Everything())
	if err != nil {
		return nil // a cache does not fail
	}
	return pools
}

// RecordRegistration notes that a launch of the pool has, or has not, become a node. It returns at once.
func (c *Controller) RecordRegistration(pool string, ok bool) {
	c.registrations.add(pool, ok)
	c.queue.Add(pool)
}

// Run works until ctx ends; it returns when every goroutine of the controller has ended.
func (c *Controller) Run(ctx context.Context, workers int) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return
	}
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for name, shutdown := c.queue.Get(); !shutdown; name, shutdown = c.queue.Get() {
				c.process(ctx, name)
			}
		})
	}
	wg.Go(func() { c.refresh(ctx) })
	wg.Wait()
}

func (c *Controller) process(ctx context.Context, name string) {
	defer c.queue.Done(name)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "nodePool", name)
	err := c.reconcile(klog.NewContext(ctx, logger), name)
	switch {
	case err == nil:
		c.queue.Forget(name)
	case ctx.Err() != nil:
	case apierrors.IsConflict(err):
		c.queue.AddRateLimited(name)
	default:
		logger.Error(err, "Reconciling NodePool failed, will retry")
		c.queue.AddRateLimited(name)
	}
}

// refresh looks at every pool whose usage moved, once per interval.
func (c *Controller) refresh(ctx context.Context) {
	ticker := c.Clock.NewTicker(c.options.UsageInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, name := range c.brakes.pools() {
			c.queue.Add(name) // it may be over
		}
		if !c.State.Synced() {
			continue
		}
		snapshot := c.State.Snapshot()
		for _, pool := range c.list() {
			if c.manages(pool) && !sameUsage(pool.Status, usage(snapshot, pool.Name)) {
				c.due.Store(pool.Name, nil)
				c.queue.Add(pool.Name)
			}
		}
	}
}

// manages reports whether the pool is of this provider.
func (c *Controller) manages(pool *karpv1.NodePool) bool {
	ref := pool.Spec.Template.Spec.NodeClassRef
	return ref != nil && ref.Group == c.options.NodeClassGroup
}
