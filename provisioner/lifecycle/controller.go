package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/condition"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
)

// Hooks tell others what happened to a claim. They must return at once; nil ones are skipped.
type Hooks struct {
	// NodeNamed: the claim's node has, or will register under, this name.
	NodeNamed func(ctx context.Context, claim, node string)
	// ClaimFailed: the claim is given up before it had a node; its pods need another one.
	ClaimFailed func(ctx context.Context, claim string)
	// Tracked: the claim was written; models may take it ahead of the watch.
	Tracked func(claim *karpv1.NodeClaim)
	// Registration: a launch of the pool has, or has not, led to a node.
	Registration func(pool string, ok bool)
	// Lacking reports whether nodes of the type are known to come without the resource, so that none of them
	// has to wait for it; may be nil.
	Lacking func(pool, instanceType string, name corev1.ResourceName) bool
	// Placed reports whether places were looked for, for the pods that have to leave the claim's node, and
	// what was bought for them is launched. The drain waits for that, but not for long; may be nil.
	Placed func(claim *karpv1.NodeClaim) bool
}

// Deps of a Controller; all are required.
type Deps struct {
	Kube      kubernetes.Interface
	Karpenter versioned.Interface
	Core      informers.SharedInformerFactory
	Ours      externalversions.SharedInformerFactory
	Cloud     cloud.Provider
	Events    *events.Recorder
	Clock     clock.WithTicker
	Registry  prometheus.Registerer
	Hooks     Hooks
}

// Options of a Controller. The zero value is valid.
type Options struct {
	// NodeClassGroup is the API group of the classes that this provider serves; claims of others are
	// not touched. Default "karpenter.k8s.aws".
	NodeClassGroup string
	// LaunchTimeout and RegistrationTimeout end a claim that gets no further; default 5 and 15 min.
	LaunchTimeout, RegistrationTimeout time.Duration
	// DrainSettle is the least time between the taint and the end of the drain; it catches pods that
	// another scheduler bound meanwhile. Default 5 s.
	DrainSettle time.Duration
}

func (o Options) withDefaults() Options {
	if o.NodeClassGroup == "" {
		o.NodeClassGroup = "karpenter.k8s.aws"
	}
	for value, fallback := range map[*time.Duration]time.Duration{
		&o.LaunchTimeout: 5 * time.Minute, &o.RegistrationTimeout: 15 * time.Minute, &o.DrainSettle: 5 * time.Second,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	return o
}

// providerIndex finds Nodes by provider ID, nodeIndex pods by node.
const (
	providerIndex = "providerID"
	nodeIndex     = "nodeName"
)

// Controller is the NodeClaim controller.
type Controller struct {
	Deps
	options Options
	metrics *metrics

	claims  karplisters.NodeClaimLister
	pools   karplisters.NodePoolLister
	byID    cache.Indexer // claims by provider ID
	nodes   cache.Indexer
	pods    cache.Indexer
	volumes storagelisters.VolumeAttachmentLister
	pvs     corelisters.PersistentVolumeLister
	synced  []cache.InformerSynced
	queue   workqueue.TypedRateLimitingInterface[string]

	flights   *flights
	evictions *evictions

	mu        sync.Mutex
	podEvents map[string]time.Time // newest pod event by node
	named     map[types.UID]string // node names that were told, by claim
}

// New makes a Controller and registers its informer handlers; it must be called before the informers
// start.
func New(deps Deps, options Options) (*Controller, error) {
	nodes, pods := deps.Core.Core().V1().Nodes().Informer(), deps.Core.Core().V1().Pods().Informer()
	claims := deps.Ours.Karpenter().V1().NodeClaims()
	attachments := deps.Core.Storage().V1().VolumeAttachments()
	pvs := deps.Core.Core().V1().PersistentVolumes()
	c := &Controller{
		Deps: deps, options: options.withDefaults(), metrics: newMetrics(deps.Registry),
		claims: claims.Lister(), pools: deps.Ours.Karpenter().V1().NodePools().Lister(), byID: claims.Informer().GetIndexer(), nodes: nodes.GetIndexer(), pods: pods.GetIndexer(), volumes: attachments.Lister(), pvs: pvs.Lister(),
		synced: []cache.InformerSynced{
			nodes.HasSynced, pods.HasSynced, claims.Informer().HasSynced, attachments.Informer().HasSynced, pvs.Informer().HasSynced,
		},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
		flights: newFlights(deps.Clock), evictions: newEvictions(deps.Clock),
		podEvents: map[string]time.Time{}, named: map[types.UID]string{},
	}
	return c, errors.Join(
		addIndexer(nodes, providerIndex, func(object any) []string {
			if node, ok := object.(*corev1.Node); ok && node.Spec.ProviderID != "" {
				return []string{node.Spec.ProviderID}
			}
			return nil
		}),
		addIndexer(pods, nodeIndex, func(object any) []string {
			if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}
			}
			return nil
		}),
		addIndexer(claims.Informer(), providerIndex, func(object any) []string {
			if claim, ok := object.(*karpv1.NodeClaim); ok && claim.Status.ProviderID != "" {
				return []string{claim.Status.ProviderID}
			}
			return nil
		}),
		c.watch(claims.Informer(), nodes, pods),
	)
}

// addIndexer adds an index unless another user of the informer has added it.
func addIndexer(informer cache.SharedIndexInformer, name string, index func(any) []string) error {
	if _, exists := informer.GetIndexer().GetIndexers()[name]; exists {
		return nil
	}
	return informer.AddIndexers(cache.Indexers{
		name: func(object any) ([]string, error) { return index(object), nil },
	})
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
	wg.Go(func() { c.collect(ctx) })
	wg.Wait()
	c.flights.wait()
}

func (c *Controller) process(ctx context.Context, name string) {
	defer c.queue.Done(name)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "nodeClaim", name)
	after, err := c.reconcile(klog.NewContext(ctx, logger), name)
	switch {
	case apierrors.IsConflict(err):
		c.queue.AddAfter(name, 50*time.Millisecond) // the watch brings the newer version meanwhile
	case err != nil:
		logger.Error(err, "Reconciling NodeClaim failed, will retry")
		c.queue.AddRateLimited(name)
	default:
		c.queue.Forget(name)
		if after > 0 {
			c.queue.AddAfter(name, after)
		}
	}
}

// reconcile takes the claim as far as it gets now. after asks for another look at that time.
func (c *Controller) reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	cached, err := c.claims.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get nodeclaim: %w", err)
	}
	if ref := cached.Spec.NodeClassRef; ref == nil || ref.Group != c.options.NodeClassGroup {
		return 0, nil
	}
	claim := cached.DeepCopy()
	if claim.DeletionTimestamp != nil {
		return c.finalize(ctx, claim)
	}
	if added := addFinalizer(claim); added {
		if claim, err = c.update(ctx, claim); err != nil {
			return 0, err
		}
	}
	before := claim.DeepCopy()
	condition.Init(&claim.Status.Conditions, karpv1.ConditionReady, dependents, claim.CreationTimestamp.Time)
	for _, step := range []func(context.Context, *karpv1.NodeClaim) (time.Duration, error){
		c.launch, c.register, c.followNode, c.initialize, c.notePodEvents, c.liveness,
	} {
		next, stepErr := step(ctx, claim)
		if next > 0 && (after == 0 || next < after) {
			after = next
		}
		if errors.Is(stepErr, errGone) {
			return 0, nil
		}
		if stepErr != nil {
			err = errors.Join(err, stepErr)
			break
		}
	}
	return after, errors.Join(err, c.writeStatus(ctx, before, claim))
}

// errGone ends a reconcile because the claim was deleted in its course.
var errGone = errors.New("nodeclaim was deleted")

// dependents of a NodeClaim's Ready condition.
var dependents = []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized}

// mark sets a condition and tells of its transition.
func (c *Controller) mark(claim *karpv1.NodeClaim, kind string, status metav1.ConditionStatus, reason, message string) {
	condition.Set(&claim.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: claim.Generation,
	}, c.Clock.Now())
}

func (c *Controller) writeStatus(ctx context.Context, before, claim *karpv1.NodeClaim) error {
	condition.Roll(&claim.Status.Conditions, karpv1.ConditionReady, dependents, claim.Generation, c.Clock.Now())
	if equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return nil
	}
	updated, err := c.Karpenter.KarpenterV1().NodeClaims().UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	c.tellTransitions(ctx, before, updated)
	if c.Hooks.Tracked != nil {
		c.Hooks.Tracked(updated)
	}
	return nil
}

// tellTransitions tells of each step once: after the write that a stale copy could not have made.
func (c *Controller) tellTransitions(ctx context.Context, before, after *karpv1.NodeClaim) {
	for _, t := range condition.Transitions(before.Status.Conditions, after.Status.Conditions) {
		c.Events.Transition(after, t.Before, t.Now)
		if t.Now.Status != metav1.ConditionTrue {
			continue
		}
		logger := klog.LoggerWithValues(klog.FromContext(ctx), "node", klog.KRef("", after.Status.NodeName), "providerID", after.Status.ProviderID)
		switch t.Now.Type {
		case karpv1.ConditionLaunched:
			logger.Info("Launched NodeClaim", "instanceType", after.Labels[corev1.LabelInstanceTypeStable],
				"zone", after.Labels[corev1.LabelTopologyZone], "capacityType", after.Labels[karpv1.LabelCapacityType])
		case karpv1.ConditionRegistered:
			logger.Info("Registered NodeClaim")
			c.registration(after, true)
			c.metrics.nodesCreated.WithLabelValues(after.Labels[karpv1.LabelNodePool], after.Labels[corev1.LabelTopologyZone]).Inc()
		case karpv1.ConditionInitialized:
			logger.Info("Initialized NodeClaim")
		}
	}
}

// update writes labels, annotations and finalizers, and returns the new version with the status that is
// being worked on. It is a patch, because the spec of a claim that somebody else wrote may be written
// differently from here, and must not change.
func (c *Controller) update(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	status := claim.Status
	updated, err := c.patchMetadata(ctx, claim)
	if err != nil {
		return nil, fmt.Errorf("update nodeclaim: %w", err)
	}
	updated.Status = status
	return updated, nil
}

// patchMetadata sets what the claim has in its metadata; labels and annotations that it lacks stay. It is
// a conflict if the claim has changed since it was read.
func (c *Controller) patchMetadata(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	finalizers := claim.Finalizers
	if finalizers == nil {
		finalizers = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"labels": claim.Labels, "annotations": claim.Annotations, "finalizers": finalizers,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return c.Karpenter.KarpenterV1().NodeClaims().Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// delete removes the claim in this version; one that is gone already is fine.
func (c *Controller) delete(ctx context.Context, claim *karpv1.NodeClaim, reason string) error {
	err := c.Karpenter.KarpenterV1().NodeClaims().Delete(ctx, claim.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &claim.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete nodeclaim: %w", err)
	}
	klog.FromContext(ctx).Info("Deleted NodeClaim", "reason", reason)
	c.metrics.disrupted.WithLabelValues(reason, claim.Labels[karpv1.LabelNodePool], claim.Labels[karpv1.LabelCapacityType], "", terminationMode(claim)).Inc()
	return nil
}

func terminationMode(claim *karpv1.NodeClaim) string {
	switch grace := claim.Spec.TerminationGracePeriod; {
	case grace == nil:
		return "graceful"
	case grace.Duration > 0:
		return "eventual"
	default:
		return "forceful"
	}
}

func addFinalizer(object metav1.Object) bool {
	for _, f := range object.GetFinalizers() {
		if f == karpv1.TerminationFinalizer {
			return false
		}
	}
	object.SetFinalizers(append(object.GetFinalizers(), karpv1.TerminationFinalizer))
	return true
}

func removeFinalizer(object metav1.Object) bool {
	var kept []string
	for _, f := range object.GetFinalizers() {
		if f != karpv1.TerminationFinalizer {
			kept = append(kept, f)
		}
	}
	if len(kept) == len(object.GetFinalizers()) {
		return false
	}
	object.SetFinalizers(kept)
	return true
}
