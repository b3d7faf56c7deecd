package interruption

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/interruption/message"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

// What is asked of the queue: up to ten messages at a time, waiting for them as long as SQS lets one; a
// message that is not dealt with comes again after visibility.
const (
	batchSize  = 10
	longPoll   = 20 * time.Second
	visibility = 20 * time.Second
	// handlingTime bounds the work on one message, so that the others of its batch are deleted before they
	// show again.
	handlingTime = 10 * time.Second
	// helpers read beside the loop while batches come full. With ten messages of at most 1 MiB each they
	// also bound the memory of a flood. helperPoll is not zero, as SQS then asks some of its servers only.
	helpers    = 15
	helperPoll = time.Second
	firstPause = time.Second
	// maxPause is short, as the warning of a spot instance is two minutes; quietFor keeps the log readable.
	maxPause    = 10 * time.Second
	quietFor    = time.Minute
	maxReceives = 10 // a message that fails so often is given up, so that it is not tried for days
)

// Queue is what is used of an SQS client.
type Queue interface {
	GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, options ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, options ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, options ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
}

// Shortages remembers what the cloud has none of.
type Shortages interface {
	MarkOffering(capacityType, instanceType, zone string)
}

// Deps of a Controller; all are required but Health.
type Deps struct {
	Queue Queue
	// Health tells which instances ail; nil means that nobody looks.
	Health    Health
	Karpenter versioned.Interface
	Core      informers.SharedInformerFactory
	Ours      externalversions.SharedInformerFactory
	Shortages Shortages
	Events    *events.Recorder
	Clock     clock.WithTicker
	Registry  prometheus.Registerer
}

// Controller reads the queue and acts.
type Controller struct {
	Deps
	name    string
	nodes   corelisters.NodeLister
	synced  []cache.InformerSynced
	metrics *metrics

	byInstance cache.Indexer // of claims
}

// New makes a Controller for the queue of that name; without a name only health is watched. It must be
// called before the informers start, once for each Ours.
func New(deps Deps, queueName string) (*Controller, error) {
	claims, nodes := deps.Ours.Karpenter().V1().NodeClaims().Informer(), deps.Core.Core().V1().Nodes()
	if err := claims.AddIndexers(cache.Indexers{instanceIndex: instanceOf}); err != nil {
		return nil, fmt.Errorf("index nodeclaims by instance: %w", err)
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	return &Controller{
		Deps: deps, name: queueName, nodes: nodes.Lister(), metrics: m, byInstance: claims.GetIndexer(),
		synced: []cache.InformerSynced{claims.HasSynced, nodes.Informer().HasSynced},
	}, nil
}

// Run watches the health of instances and, when there is a queue, reads it, until ctx ends and every
// goroutine has ended.
func (c *Controller) Run(ctx context.Context) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return
	}
	var wg sync.WaitGroup
	if c.Health != nil {
		wg.Go(func() { c.watchHealth(ctx) })
	}
	if c.name != "" {
		wg.Go(func() { c.read(ctx) })
	}
	wg.Wait()
}

// read reads the queue until ctx ends. A queue that is missing or cannot be read is tried again, with a
// metric and a log line that say what is wrong; nothing else waits for it.
func (c *Controller) read(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("queue", c.name)
	ctx = klog.NewContext(ctx, logger)
	url, pause := "", firstPause
	var told time.Time
	for ctx.Err() == nil {
		err := c.turn(ctx, &url)
		if err == nil {
			c.metrics.healthy.Set(1)
			pause = firstPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.metrics.healthy.Set(0)
		if now := c.Clock.Now(); told.IsZero() || now.Sub(told) >= quietFor {
			told = now
			logger.Error(err, "Reading the interruption queue failed, will retry; until then interruptions are noticed only when nodes are lost", "pause", pause)
		}
		select {
		case <-ctx.Done():
		case <-c.Clock.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// turn waits for one batch and deals with it, and with all that waits behind it. url is found first, and
// forgotten when the queue cannot be read. An error is one of the queue; those of messages are logged.
func (c *Controller) turn(ctx context.Context, url *string) error {
	if *url == "" {
		out, err := c.Queue.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &c.name})
		if err != nil {
			return fmt.Errorf("find SQS queue %q (permission sqs:GetQueueUrl): %w", c.name, err)
		}
		*url = aws.ToString(out.QueueUrl)
	}
	n, err := c.batch(ctx, *url, longPoll)
	if err == nil && n == batchSize {
		err = c.backlog(ctx, *url)
	}
	if err != nil {
		*url = ""
	}
	return err
}

// backlog reads with many at once until nothing comes any more: a spot storm must not wait in line.
func (c *Controller) backlog(ctx context.Context, url string) error {
	errs := make([]error, helpers+1)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for n := 1; n > 0 && errs[i] == nil && ctx.Err() == nil; {
				n, errs[i] = c.batch(ctx, url, helperPoll)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// batch receives up to ten messages, deals with them in parallel, and deletes those that are dealt with.
// It returns how many there were.
func (c *Controller) batch(ctx context.Context, url string, wait time.Duration) (int, error) {
	out, err := c.Queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: batchSize, VisibilityTimeout: int32(visibility.Seconds()), WaitTimeSeconds: int32(wait.Seconds()),
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameSentTimestamp, sqstypes.MessageSystemAttributeNameApproximateReceiveCount},
		MessageAttributeNames:       []string{"All"},
	})
	if err != nil {
		return 0, fmt.Errorf("receive from SQS queue %q (permission sqs:ReceiveMessage): %w", c.name, err)
	}
	done := make([]bool, len(out.Messages))
	var wg sync.WaitGroup
	for i := range out.Messages {
		wg.Go(func() { done[i] = c.handle(ctx, &out.Messages[i]) })
	}
	wg.Wait()
	var entries []sqstypes.DeleteMessageBatchRequestEntry
	for i := range out.Messages {
		if done[i] {
			entries = append(entries, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: out.Messages[i].ReceiptHandle})
		}
	}
	return len(out.Messages), c.delete(ctx, url, entries)
}

// delete takes messages out of the queue. Those for which that fails come again, which is harmless.
func (c *Controller) delete(ctx context.Context, url string, entries []sqstypes.DeleteMessageBatchRequestEntry) error {
	if len(entries) == 0 {
		return nil
	}
	out, err := c.Queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return fmt.Errorf("delete %d messages from SQS queue %q (permission sqs:DeleteMessage): %w", len(entries), c.name, err)
	}
	c.metrics.deleted.Add(float64(len(entries) - len(out.Failed)))
	if len(out.Failed) > 0 {
		first := &out.Failed[0]
		return fmt.Errorf("delete %d of %d messages from SQS queue %q (permission sqs:DeleteMessage): %s: %s",
			len(out.Failed), len(entries), c.name, aws.ToString(first.Code), aws.ToString(first.Message))
	}
	return nil
}

// handle acts on one message and reports whether it is dealt with. If not it stays in the queue, and comes
// again.
func (c *Controller) handle(ctx context.Context, m *sqstypes.Message) bool {
	ctx, cancel := context.WithTimeout(ctx, handlingTime)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("messageID", aws.ToString(m.MessageId))
	parsed, err := message.Parse(aws.ToString(m.Body))
	if err != nil {
		logger.Error(err, "A message in the interruption queue cannot be read, it is deleted")
		c.metrics.poison.WithLabelValues("unreadable").Inc()
		return true
	}
	c.metrics.received.WithLabelValues(string(parsed.Kind)).Inc()
	if !parsed.Time.IsZero() {
		c.metrics.latency.Observe(max(0, c.Clock.Since(parsed.Time).Seconds())) // clocks differ
	}
	err = c.act(ctx, parsed)
	switch {
	case err == nil:
		return true
	case receives(m) < maxReceives:
		logger.Error(err, "Acting on a message failed, it comes again", "kind", parsed.Kind, "instances", parsed.Instances)
		return false
	default:
		logger.Error(err, "A message could not be acted on again and again, it is given up", "kind", parsed.Kind, "instances", parsed.Instances)
		c.metrics.poison.WithLabelValues("failing").Inc()
		return true
	}
}

func receives(m *sqstypes.Message) int {
	n, err := strconv.Atoi(m.Attributes[string(sqstypes.MessageSystemAttributeNameApproximateReceiveCount)])
	if err != nil {
		return 1
	}
	return n
}

// act does what the message calls for to every instance of it that is ours.
func (c *Controller) act(ctx context.Context, m message.Message) error {
	r, ok := responseTo(m.Kind)
	if !ok || len(m.Instances) == 0 {
		return nil
	}
	var errs []error
	for _, id := range m.Instances {
		claim, node, err := c.find(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if claim == nil {
			klog.FromContext(ctx).V(4).Info("Message is about an instance that is not ours", "instance", id, "kind", m.Kind)
			continue
		}
		errs = append(errs, c.respond(ctx, m.Kind, r, claim, node))
	}
	return errors.Join(errs...)
}

// find returns the claim of the instance and, when there is one, its node.
func (c *Controller) find(id string) (*karpv1.NodeClaim, *corev1.Node, error) {
	found, err := c.byInstance.ByIndex(instanceIndex, id)
	if err != nil {
		return nil, nil, fmt.Errorf("look up nodeclaim of instance %s: %w", id, err)
	}
	if len(found) == 0 {
		return nil, nil, nil
	}
	claim, ok := found[0].(*karpv1.NodeClaim)
	if !ok {
		return nil, nil, fmt.Errorf("look up nodeclaim of instance %s: found a %T", id, found[0])
	}
	if claim.Status.NodeName != "" {
		node, err := c.nodes.Get(claim.Status.NodeName)
		if err == nil && node.Spec.ProviderID == claim.Status.ProviderID {
			return claim, node, nil
		}
	}
	nodes, err := c.nodes.List(labels.Everything()) // it may have joined and not be registered yet
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes {
		if node.Spec.ProviderID == claim.Status.ProviderID {
			return claim, node, nil
		}
	}
	return claim, nil, nil
}

// instanceIndex finds claims by the id of their instance.
const instanceIndex = "interruption-instance"

func instanceOf(object any) ([]string, error) {
	claim, ok := object.(*karpv1.NodeClaim)
	if !ok || claim.Status.ProviderID == "" {
		return nil, nil
	}
	return []string{claim.Status.ProviderID[strings.LastIndexByte(claim.Status.ProviderID, '/')+1:]}, nil
}

func (c *Controller) respond(ctx context.Context, kind message.Kind, r response, claim *karpv1.NodeClaim, node *corev1.Node) error {
	c.Events.Interruption(claim, r.eventType, r.reason, r.text)
	if node != nil {
		c.Events.Interruption(node, r.eventType, r.reason, r.text)
	}
	if r.shortage {
		instanceType, zone := claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone]
		if instanceType != "" && zone != "" {
			c.Shortages.MarkOffering(karpv1.CapacityTypeSpot, instanceType, zone)
		}
	}
	if !r.drain || claim.DeletionTimestamp != nil {
		return nil
	}
	uid := claim.UID
	err := c.Karpenter.KarpenterV1().NodeClaims().Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one by now
	}
	if err != nil {
		return fmt.Errorf("delete nodeclaim %s: %w", claim.Name, err)
	}
	klog.FromContext(ctx).Info("Deleting NodeClaim of an interrupted instance", "nodeClaim", klog.KObj(claim), "kind", kind, "providerID", claim.Status.ProviderID)
	c.Events.Interruption(claim, corev1.EventTypeWarning, "TerminatingOnInterruption", "Interruption triggered termination for the NodeClaim")
	if node != nil {
		c.Events.Interruption(node, corev1.EventTypeWarning, "TerminatingOnInterruption", "Interruption triggered termination for the Node")
	}
	c.metrics.countDisrupted(claim, kind)
	return nil
}
