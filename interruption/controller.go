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
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
)

// What is asked of the queue: up to ten messages at a time, waiting for them as long as SQS lets one; a
// message that is not dealt with comes again after visibility.
const (
	batchSize   = 10
	longPoll    = 20 * time.Second
	visibility  = 20 * time.Second
	firstPause  = time.Second
	maxPause    = time.Minute
	maxReceives = 10 // a message that fails so often is given up, so that it is not tried for days
)

// Queue is what is used of an SQS client.
type Queue interface {
	GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, options ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, options ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, options ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
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
	claims  karplisters.NodeClaimLister
	nodes   corelisters.NodeLister
	synced  []cache.InformerSynced
	metrics *metrics
}

// New makes a Controller for the queue of that name; without a name only health is watched. It must be called before the informers start.
func New(deps Deps, queueName string) (*Controller, error) {
	claims, nodes := deps.Ours.Karpenter().V1().NodeClaims(), deps.Core.Core().V1().Nodes()
	m, err := newMetrics(deps.Registry)
	return &Controller{
		Deps: deps, name: queueName, claims: claims.Lister(), nodes: nodes.Lister(), metrics: m,
		synced: []cache.InformerSynced{claims.Informer().HasSynced, nodes.Informer().HasSynced},
	}, err
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
	for ctx.Err() == nil {
		err := c.poll(ctx, &url)
		if err == nil {
			c.metrics.healthy.Set(1)
			pause = firstPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.metrics.healthy.Set(0)
		logger.Error(err, "Reading the interruption queue failed, will retry; until then interruptions are noticed only when nodes are lost", "pause", pause)
		select {
		case <-ctx.Done():
		case <-c.Clock.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// poll takes one batch from the queue. url is found first, and forgotten when the queue is gone.
func (c *Controller) poll(ctx context.Context, url *string) error {
	if *url == "" {
		out, err := c.Queue.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &c.name})
		if err != nil {
			return fmt.Errorf("find SQS queue %q (permission sqs:GetQueueUrl): %w", c.name, err)
		}
		*url = aws.ToString(out.QueueUrl)
	}
	out, err := c.Queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, MaxNumberOfMessages: batchSize, VisibilityTimeout: int32(visibility.Seconds()), WaitTimeSeconds: int32(longPoll.Seconds()),
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameSentTimestamp, sqstypes.MessageSystemAttributeNameApproximateReceiveCount},
		MessageAttributeNames:       []string{"All"},
	})
	if err != nil {
		*url = ""
		return fmt.Errorf("receive from SQS queue %q (permission sqs:ReceiveMessage): %w", c.name, err)
	}
	errs := make([]error, len(out.Messages))
	var wg sync.WaitGroup
	for i := range out.Messages {
		wg.Go(func() { errs[i] = c.handle(ctx, *url, &out.Messages[i]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// handle acts on one message and takes it out of the queue. When it cannot act the message stays, and
// comes again.
func (c *Controller) handle(ctx context.Context, url string, m *sqstypes.Message) error {
	logger := klog.FromContext(ctx)
	parsed, err := message.Parse(aws.ToString(m.Body))
	switch {
	case err != nil:
		logger.Error(err, "A message in the interruption queue cannot be read, it is deleted", "messageID", aws.ToString(m.MessageId))
		c.metrics.poison.WithLabelValues("unreadable").Inc()
	default:
		c.metrics.received.WithLabelValues(string(parsed.Kind)).Inc()
		if !parsed.Time.IsZero() {
			c.metrics.latency.Observe(c.Clock.Since(parsed.Time).Seconds())
		}
		err := c.act(ctx, parsed)
		if err != nil && receives(m) < maxReceives {
			return fmt.Errorf("act on message %s: %w", aws.ToString(m.MessageId), err)
		}
		if err != nil {
			logger.Error(err, "A message could not be acted on again and again, it is given up", "messageID", aws.ToString(m.MessageId), "kind", parsed.Kind)
			c.metrics.poison.WithLabelValues("failing").Inc()
		}
	}
	if _, err := c.Queue.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
		return fmt.Errorf("delete message %s (permission sqs:DeleteMessage): %w", aws.ToString(m.MessageId), err)
	}
	c.metrics.deleted.Inc()
	return nil
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
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list nodeclaims: %w", err)
	}
	for _, claim := range claims {
		if !strings.HasSuffix(claim.Status.ProviderID, "/"+id) {
			continue
		}
		nodes, err := c.nodes.List(labels.Everything())
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
	return nil, nil, nil
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
