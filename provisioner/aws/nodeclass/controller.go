package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/eks"
	"github.com/berth-dev/berth/provisioner/aws/fleet"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/aws/profile"
	"github.com/berth-dev/berth/provisioner/aws/template"
	"github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/condition"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	ec2listers "github.com/berth-dev/berth/provisioner/generated/listers/ec2/v1"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
)

const (
	workers      = 10
	finalizeWait = 10 * time.Minute
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 2 * time.Minute
	// named is how many claims an event names.
	named = 5
)

// EC2 is what the controller itself asks of EC2.
type EC2 interface {
	ec2.DescribeSecurityGroupsAPIClient
	ec2.DescribeCapacityReservationsAPIClient
	fleet.Runner
	PlacementGroups
}

// Deps of a Controller; all are needed.
type Deps struct {
	Client    versioned.Interface
	Informers externalversions.SharedInformerFactory
	EC2       EC2
	Subnets   *network.Subnets
	Images    *image.Resolver
	Profiles  *profile.Manager
	Templates *template.Store
	Types     *types.Catalog
	Launcher  *fleet.Launcher
	EKS       *eks.Cluster
	Events    *events.Recorder
	Sink      record.EventRecorder // for events that only classes have
	Clock     clock.Clock
}

// Options of a Controller.
type Options struct {
	Cluster  string
	CABundle string // part of the hash: its change replaces nodes
	// Isolated networks cannot reach IAM: instance profiles are not collected there.
	Isolated bool
	// NoDryRun trusts a class without asking EC2 whether it could be launched.
	NoDryRun bool
	// ImageInterval and SubnetInterval are how often images and subnets are resolved again.
	ImageInterval, SubnetInterval time.Duration
}

// Controller reconciles EC2NodeClasses.
type Controller struct {
	deps    Deps
	opts    Options
	classes ec2listers.EC2NodeClassLister
	claims  karplisters.NodeClaimLister
	pools   karplisters.NodePoolLister
	synced  []cache.InformerSynced
	queue   workqueue.TypedRateLimitingInterface[string]

	subnets      memo[[]ec2v1.Subnet]
	groups       memo[[]ec2v1.SecurityGroup]
	images       memo[[]ec2v1.AMI]
	reservations memo[[]ec2v1.CapacityReservation]
	placement    memo[*PlacementGroup]
	validations  validations
}

// New makes a Controller and registers its handlers; Run starts it.
func New(deps Deps, opts Options) (*Controller, error) {
	c := &Controller{
		deps: deps, opts: opts,
		classes: deps.Informers.EC2().V1().EC2NodeClasses().Lister(),
		claims:  deps.Informers.Karpenter().V1().NodeClaims().Lister(),
		pools:   deps.Informers.Karpenter().V1().NodePools().Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "ec2nodeclass"}),
	}
	c.subnets.init(deps.Clock, opts.SubnetInterval)
	c.groups.init(deps.Clock, time.Minute)
	c.images.init(deps.Clock, opts.ImageInterval)
	c.reservations.init(deps.Clock, time.Minute)
	c.placement.init(deps.Clock, time.Minute)
	c.validations.init(deps.Clock)
	classes, err := deps.Informers.EC2().V1().EC2NodeClasses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue, UpdateFunc: c.enqueueChanged, DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("watch EC2NodeClasses: %w", err)
	}
	claims, err := deps.Informers.Karpenter().V1().NodeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: c.claimGone})
	if err != nil {
		return nil, fmt.Errorf("watch NodeClaims: %w", err)
	}
	pools := deps.Informers.Karpenter().V1().NodePools().Informer()
	c.synced = []cache.InformerSynced{classes.HasSynced, claims.HasSynced, pools.HasSynced}
	return c, nil
}

func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(key)
	}
}

// enqueueChanged passes over the controller's own status writes.
func (c *Controller) enqueueChanged(before, now any) {
	b, ok1 := before.(*ec2v1.EC2NodeClass)
	n, ok2 := now.(*ec2v1.EC2NodeClass)
	if ok1 && ok2 && b.UID == n.UID && b.Generation == n.Generation && b.DeletionTimestamp.Equal(n.DeletionTimestamp) &&
		maps.Equal(b.Annotations, n.Annotations) && slices.Equal(b.Finalizers, n.Finalizers) {
		return
	}
	c.enqueue(now)
}

// claimGone looks at the claim's class again: a class waits for its claims before it goes.
func (c *Controller) claimGone(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if claim, ok := object.(*karpv1.NodeClaim); ok && isOurs(claim.Spec.NodeClassRef) {
		c.queue.Add(claim.Spec.NodeClassRef.Name)
	}
}

func isOurs(ref *karpv1.NodeClassReference) bool {
	return ref != nil && ref.Group == ec2v1.Group && ref.Kind == "EC2NodeClass"
}

// Run reconciles until ctx ends and every worker has returned.
func (c *Controller) Run(ctx context.Context) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return
	}
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { c.awaitTypes(ctx) })
	for range workers {
		wg.Go(func() {
			for name, end := c.queue.Get(); !end && ctx.Err() == nil; name, end = c.queue.Get() {
				c.process(ctx, name)
			}
		})
	}
	wg.Wait()
}

// awaitTypes looks at every class again once instance types are known: validation needs them.
func (c *Controller) awaitTypes(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-c.deps.Types.Known():
	}
	all, err := c.classes.List(labels.Everything())
	if err != nil {
		return // a lister over an informer does not fail
	}
	for _, nc := range all {
		c.queue.Add(nc.Name)
	}
}

func (c *Controller) process(ctx context.Context, name string) {
	defer c.queue.Done(name)
	again, err := c.Reconcile(ctx, name)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsConflict(err):
		c.queue.AddRateLimited(name)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Reconciling node class failed, will retry", "nodeClass", klog.KRef("", name))
		c.queue.AddRateLimited(name)
	default:
		c.queue.Forget(name)
		if again > 0 {
			c.queue.AddAfter(name, again)
		}
	}
}

// Reconcile works on one class. again is when it wants to be looked at next, 0 for never.
func (c *Controller) Reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	stored, err := c.classes.Get(name)
	if apierrors.IsNotFound(err) {
		c.validations.drop(name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get class %s: %w", name, err)
	}
	nc := stored.DeepCopy()
	if nc.DeletionTimestamp != nil {
		return c.finalize(ctx, nc)
	}
	if nc, err = c.stamp(ctx, nc); err != nil {
		return 0, err
	}
	before := nc.Status.DeepCopy()
	again, err = c.resolve(ctx, nc)
	if equality.Semantic.DeepEqual(before, &nc.Status) {
		return again, err
	}
	if _, failed := c.deps.Client.EC2V1().EC2NodeClasses().UpdateStatus(ctx, nc, metav1.UpdateOptions{}); failed != nil {
		return 0, errors.Join(err, fmt.Errorf("update status of class %s: %w", name, failed))
	}
	for _, t := range condition.Transitions(before.Conditions, nc.Status.Conditions) {
		c.deps.Events.Transition(nc, t.Before, t.Now)
	}
	return again, err
}

// finalize lets a class go once nothing uses it, and removes what was made for it.
func (c *Controller) finalize(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	if !slices.Contains(nc.Finalizers, ec2v1.TerminationFinalizer) {
		return 0, nil
	}
	users, err := c.claimsOf(nc.Name)
	if err != nil {
		return 0, err
	}
	if len(users) > 0 {
		c.deps.Sink.Event(nc, corev1.EventTypeNormal, "WaitingOnNodeClaimTermination", "Waiting on NodeClaim termination for "+abbreviate(users))
		return finalizeWait, nil
	}
	if !c.opts.Isolated {
		if err := c.deps.Profiles.DeleteAll(ctx, nc); err != nil {
			return 0, err
		}
	}
	if err := c.deps.Templates.DeleteAll(ctx, nc); err != nil {
		return 0, err
	}
	nc.Finalizers = slices.DeleteFunc(nc.Finalizers, func(f string) bool { return f == ec2v1.TerminationFinalizer })
	if _, err := c.deps.Client.EC2V1().EC2NodeClasses().Update(ctx, nc, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("remove finalizer of class %s: %w", nc.Name, err)
	}
	c.deps.Events.Finalized(nc, ec2v1.TerminationFinalizer)
	c.validations.drop(nc.Name)
	for _, forget := range []func(apitypes.UID){c.subnets.drop, c.groups.drop, c.images.drop, c.reservations.drop, c.placement.drop} {
		forget(nc.UID)
	}
	return 0, nil
}

func abbreviate(names []string) string {
	if len(names) <= named {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d other(s)", strings.Join(names[:named], ", "), len(names)-named)
}

// claimsOf lists the names of the class's claims, sorted.
func (c *Controller) claimsOf(class string) ([]string, error) {
	all, err := c.claims.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list NodeClaims: %w", err)
	}
	var names []string
	for _, claim := range all {
		if ref := claim.Spec.NodeClassRef; isOurs(ref) && ref.Name == class {
			names = append(names, claim.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
