package interruption_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/interruption"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeQueue is a queue in memory; the wire is tested with the simulator.
type fakeQueue struct {
	mu       sync.Mutex
	now      func() time.Time
	missing  bool
	bodies   map[string]string // by handle
	hidden   map[string]time.Time
	received map[string]int
	polls    []*sqs.ReceiveMessageInput
	asked    int    // GetQueueUrl
	deletes  int    // DeleteMessageBatch
	failing  bool   // DeleteMessageBatch as a whole
	keeps    string // a handle that DeleteMessageBatch cannot delete
}

func newQueue(bodies ...string) *fakeQueue {
	q := &fakeQueue{now: time.Now, bodies: map[string]string{}, received: map[string]int{}, hidden: map[string]time.Time{}}
	for i, b := range bodies {
		q.bodies[strconv.Itoa(i)] = b
	}
	return q
}

func (q *fakeQueue) GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	if q.missing {
		return nil, &sqstypes.QueueDoesNotExist{}
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String("url")}, nil
}

func (q *fakeQueue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	q.mu.Lock()
	q.polls = append(q.polls, in)
	out := &sqs.ReceiveMessageOutput{}
	now := q.now()
	var handles []string
	for handle := range q.bodies {
		if !q.hidden[handle].After(now) {
			handles = append(handles, handle)
		}
	}
	slices.Sort(handles)
	for _, handle := range handles[:min(len(handles), int(in.MaxNumberOfMessages))] {
		q.received[handle]++
		q.hidden[handle] = now.Add(time.Duration(in.VisibilityTimeout) * time.Second)
		out.Messages = append(out.Messages, sqstypes.Message{
			MessageId: &handle, ReceiptHandle: &handle, Body: aws.String(q.bodies[handle]),
			Attributes: map[string]string{"ApproximateReceiveCount": strconv.Itoa(q.received[handle])},
		})
	}
	q.mu.Unlock()
	if len(out.Messages) == 0 { // the long poll
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return out, nil
}

func (q *fakeQueue) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deletes++
	if q.failing {
		return nil, errors.New("no")
	}
	out := &sqs.DeleteMessageBatchOutput{}
	for _, e := range in.Entries {
		if *e.ReceiptHandle == q.keeps {
			out.Failed = append(out.Failed, sqstypes.BatchResultErrorEntry{Id: e.Id, Code: aws.String("InternalError")})
			continue
		}
		delete(q.bodies, *e.ReceiptHandle)
		out.Successful = append(out.Successful, sqstypes.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

// change sets what the queue does from now on.
func (q *fakeQueue) change(set func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	set()
}

func (q *fakeQueue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.bodies)
}

type shortages struct {
	mu    sync.Mutex
	marks []string
}

func (s *shortages) MarkOffering(capacityType, instanceType, zone string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = append(s.marks, capacityType+" "+instanceType+" "+zone)
}

type world struct {
	wire      interruption.Queue // instead of queue
	real      clock.WithTicker   // instead of clock
	queue     *fakeQueue
	ours      *fake.Clientset
	kube      *kubefake.Clientset
	clock     *clocktesting.FakeClock
	sink      *record.FakeRecorder
	shortages *shortages
	registry  *prometheus.Registry
	health    *ward
	seen      []string
}

func sample(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("message", "testdata", file))
	require.NoError(t, err)
	return string(raw)
}

// claimOf returns a claim, and its node, of the instance with that ending.
func claimOf(ending string, change ...func(*karpv1.NodeClaim)) (*karpv1.NodeClaim, *corev1.Node) {
	id := "aws:///eu-west-1a/i-0a11b22c33d44e" + ending
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + ending, UID: "uid", Labels: map[string]string{
		karpv1.LabelNodePool: "default", karpv1.LabelCapacityType: "spot", corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "eu-west-1a",
	}}, Status: karpv1.NodeClaimStatus{ProviderID: id}}
	for _, c := range change {
		c(claim)
	}
	return claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + ending, UID: "node-uid"}, Spec: corev1.NodeSpec{ProviderID: id}}
}

func start(t *testing.T, q *fakeQueue, objects ...runtime.Object) *world {
	t.Helper()
	var core, ours []runtime.Object
	for _, o := range objects {
		if _, isClaim := o.(*karpv1.NodeClaim); isClaim {
			ours = append(ours, o)
		} else {
			core = append(core, o)
		}
	}
	w := &world{
		queue: q, ours: fake.NewClientset(ours...), kube: kubefake.NewClientset(core...), clock: clocktesting.NewFakeClock(time.Date(2026, 5, 4, 10, 15, 31, 0, time.UTC)),
		sink: record.NewFakeRecorder(1000), shortages: &shortages{}, registry: prometheus.NewRegistry(),
	}
	w.run(t)
	return w
}

func (w *world) run(t *testing.T) {
	t.Helper()
	queue, clock := w.wire, w.real
	if queue == nil {
		w.queue.change(func() { w.queue.now = w.clock.Now })
		queue, clock = w.queue, w.clock
	}
	core, ours := informers.NewSharedInformerFactory(w.kube, 0), externalversions.NewSharedInformerFactory(w.ours, 0)
	deps := interruption.Deps{
		Queue: queue, Karpenter: w.ours, Core: core, Ours: ours, Shortages: w.shortages,
		Events: events.NewRecorder(w.sink, clock), Clock: clock, Registry: w.registry,
	}
	if w.health != nil {
		deps.Health = w.health
	}
	c, err := interruption.New(deps, "q")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	core.StartWithContext(ctx)
	ours.StartWithContext(ctx)
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; core.Shutdown(); ours.Shutdown() })
}

func (w *world) eventually(t *testing.T, holds func() bool, why string) {
	t.Helper()
	require.Eventually(t, func() bool { w.clock.Step(100 * time.Millisecond); return holds() }, 10*time.Second, time.Millisecond, why)
}

func (w *world) gone(name string) bool {
	_, err := w.ours.KarpenterV1().NodeClaims().Get(context.Background(), name, metav1.GetOptions{})
	return err != nil
}

func (w *world) said(text string) int {
	for {
		select {
		case e := <-w.sink.Events:
			w.seen = append(w.seen, e)
			continue
		default:
		}
		n := 0
		for _, e := range w.seen {
			if strings.Contains(e, text) {
				n++
			}
		}
		return n
	}
}

func (w *world) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, pair := range m.GetLabel() {
				match = match || pair.GetValue() == label
			}
			if f.GetName() == name && match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestKindsOfMessages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file, ending, event string
		deleted             bool
		shortage            []string
	}{
		"IN-05 IN-06 spot":              {"spot-interruption.json", "551", "Warning SpotInterrupted Spot interruption warning was triggered", true, []string{"spot m5.large eu-west-1a"}},
		"IN-11 rebalance":               {"rebalance-recommendation.json", "552", "Normal SpotRebalanceRecommendation Spot rebalance recommendation was triggered", false, nil},
		"scheduled change":              {"scheduled-change.json", "553", "Warning InstanceUnhealthy An unhealthy warning was triggered for the instance", true, nil},
		"IN-15 stopping":                {"state-change-stopping.json", "555", "Warning InstanceStopping Instance is stopping", true, nil},
		"IN-16 terminated":              {"state-change-terminated.json", "555", "Warning InstanceTerminating Instance is terminating", true, nil},
		"IN-18 reservation":             {"capacity-reservation-interruption.json", "556", "Warning CapacityReservationInstanceInterrupted Capacity Reservation interruption warning was triggered", true, nil},
		"IN-19 reservation, other form": {"capacity-reservation-interruption-string-resources.json", "557", "Warning CapacityReservationInstanceInterrupted", true, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, node := claimOf(tc.ending)
			w := start(t, newQueue(sample(t, tc.file)), claim, node)
			w.eventually(t, func() bool { return w.queue.left() == 0 }, "the message is deleted")
			require.Equal(t, tc.deleted, w.gone(claim.Name))
			require.Equal(t, 2, w.said(tc.event), "on the claim and on the node: %v", w.seen)
			if tc.deleted {
				require.Equal(t, 1, w.said("TerminatingOnInterruption Interruption triggered termination for the NodeClaim"))
				require.Equal(t, 1, w.said("TerminatingOnInterruption Interruption triggered termination for the Node")-1)
				require.InDelta(t, 1, w.metric(t, "karpenter_nodeclaims_disrupted_total", ""), 0)
			}
			require.Equal(t, tc.shortage, w.shortages.marks)
			require.InDelta(t, 1, w.metric(t, "karpenter_interruption_received_messages_total", ""), 0)
			w.eventually(t, func() bool { return w.metric(t, "karpenter_interruption_deleted_messages_total", "") == 1 }, "it is counted")
			require.InDelta(t, 1, w.metric(t, "karpenter_interruption_message_queue_duration_seconds", ""), 0)
		})
	}
}

func TestIN02PollsAsSpecified(t *testing.T) {
	t.Parallel()
	w := start(t, newQueue())
	w.eventually(t, func() bool { w.queue.mu.Lock(); defer w.queue.mu.Unlock(); return len(w.queue.polls) > 2 }, "IN-04: it polls again at once")
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	in := w.queue.polls[0]
	require.Equal(t, []int32{10, 20, 20}, []int32{in.MaxNumberOfMessages, in.VisibilityTimeout, in.WaitTimeSeconds})
}

func TestIN03QueueThatComesLater(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551")
	q := newQueue(sample(t, "spot-interruption.json"))
	q.missing = true
	w := start(t, q, claim)
	w.eventually(t, func() bool { return w.metric(t, "berth_interruption_queue_healthy", "") == 0 }, "it says so")
	require.False(t, w.gone(claim.Name))
	q.mu.Lock()
	q.missing = false
	q.mu.Unlock()
	w.eventually(t, func() bool { return w.gone(claim.Name) }, "it recovers without a restart")
	w.eventually(t, func() bool { return w.metric(t, "berth_interruption_queue_healthy", "") == 1 }, "and says so")
	require.Equal(t, 1, w.said("SpotInterrupted"), "IN-08: there is no node")
}

func TestMessagesThatConcernNobody(t *testing.T) {
	t.Parallel()
	var bodies []string
	for range 30 { // IN-41
		bodies = append(bodies, sample(t, "unknown-detail-type.json"))
	}
	bodies = append(bodies, sample(t, "spot-interruption.json"), "", sample(t, "malformed-text.json.txt"), sample(t, "malformed-truncated.json.txt"))
	claim, _ := claimOf("999")
	w := start(t, newQueue(bodies...), claim)
	w.eventually(t, func() bool { return w.queue.left() == 0 }, "all are deleted: IN-09, IN-21, IN-22, IN-23")
	require.False(t, w.gone(claim.Name))
	require.Zero(t, w.said(""), "and nothing is said: %v", w.seen)
	require.InDelta(t, 31, w.metric(t, "karpenter_interruption_received_messages_total", "no_op"), 0)
	require.InDelta(t, 1, w.metric(t, "karpenter_interruption_received_messages_total", "spot_interrupted"), 0)
	require.InDelta(t, 2, w.metric(t, "berth_interruption_poison_messages_total", "unreadable"), 0)
	w.eventually(t, func() bool { return w.metric(t, "karpenter_interruption_deleted_messages_total", "") == 34 }, "they are counted")
}

// IN-02, IN-26: one message that cannot be deleted is counted as such, and the queue is not looked up anew.
func TestIN26OneOfABatchStays(t *testing.T) {
	t.Parallel()
	q := newQueue(sample(t, "unknown-detail-type.json"), sample(t, "unknown-detail-type.json"), sample(t, "unknown-detail-type.json"))
	q.keeps = "1"
	w := start(t, q)
	w.eventually(t, func() bool { return q.left() == 1 }, "two are deleted")
	require.InDelta(t, 2, w.metric(t, "karpenter_interruption_deleted_messages_total", ""), 0)
	w.eventually(t, func() bool { return w.metric(t, "berth_interruption_queue_healthy", "") == 0 }, "and it shows")
	q.change(func() { q.keeps = "" })
	w.eventually(t, func() bool { return q.left() == 0 && w.metric(t, "berth_interruption_queue_healthy", "") == 1 }, "it is deleted later")
	require.InDelta(t, 3, w.metric(t, "karpenter_interruption_deleted_messages_total", ""), 0)
}

// A message that cannot be acted on is hidden for a while; those that come meanwhile must not wait for it.
func TestFailingMessagesHoldUpNobody(t *testing.T) {
	t.Parallel()
	stuck, _ := claimOf("551")
	other, _ := claimOf("556")
	q := newQueue(sample(t, "spot-interruption.json"))
	w := &world{
		queue: q, ours: fake.NewClientset(stuck, other), kube: kubefake.NewClientset(), clock: clocktesting.NewFakeClock(time.Now()),
		sink: record.NewFakeRecorder(1000), shortages: &shortages{}, registry: prometheus.NewRegistry(),
	}
	w.ours.PrependReactor("delete", "nodeclaims", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return a.(k8stesting.DeleteAction).GetName() == stuck.Name, nil, errors.New("the API server says no")
	})
	w.run(t)
	received := func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.received["0"] == 1 }
	require.Eventually(t, received, 10*time.Second, time.Millisecond)
	q.change(func() { q.bodies["1"] = sample(t, "capacity-reservation-interruption.json") })
	// No time passes on the controller's clock: nothing waits.
	require.Eventually(t, func() bool { return w.gone(other.Name) && q.left() == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 1.0, w.metric(t, "berth_interruption_queue_healthy", ""), "the queue is not to blame") //nolint:testifylint // a gauge of 0 or 1
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Equal(t, 1, q.asked, "IN-02: the queue is looked up once")
}

// A flood of noise holds ten good messages.
func TestFloodIsReadByMany(t *testing.T) {
	t.Parallel()
	var claims []runtime.Object
	var bodies []string
	for i := range 10 {
		claim, _ := claimOf("60" + strconv.Itoa(i))
		claims = append(claims, claim)
	}
	for i := range 2000 {
		body := sample(t, "unknown-detail-type.json")
		if i%200 == 199 {
			body = strings.ReplaceAll(sample(t, "spot-interruption.json"), "551", "60"+strconv.Itoa(i/200))
		}
		bodies = append(bodies, body)
	}
	q := newQueue(bodies...)
	w := start(t, q, claims...)
	require.Eventually(t, func() bool { return q.left() == 0 }, 20*time.Second, time.Millisecond)
	for i := range 10 {
		require.True(t, w.gone("claim-60"+strconv.Itoa(i)))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	require.LessOrEqual(t, q.deletes, 200+16, "messages are deleted in batches")
	short := 0
	for _, p := range q.polls {
		if p.WaitTimeSeconds == 1 {
			short++
		}
	}
	require.Greater(t, short, 100, "many readers share a backlog")
	require.InDelta(t, 10, w.metric(t, "karpenter_nodeclaims_disrupted_total", ""), 0)
}

func TestIN10NoMarkWithoutAZone(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551", func(c *karpv1.NodeClaim) { delete(c.Labels, corev1.LabelTopologyZone) })
	w := start(t, newQueue(sample(t, "spot-interruption.json")), claim)
	w.eventually(t, func() bool { return w.gone(claim.Name) }, "it is drained")
	require.Empty(t, w.shortages.marks)
}

func TestIN25ClaimThatIsLeavingAlready(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551", func(c *karpv1.NodeClaim) {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{karpv1.TerminationFinalizer}
	})
	w := start(t, newQueue(sample(t, "spot-interruption.json"), sample(t, "spot-interruption.json")), claim) // IN-07
	w.eventually(t, func() bool { return w.queue.left() == 0 }, "both messages are dealt with")
	require.Equal(t, 1, w.said("SpotInterrupted"), "repeated events are not sent")
	require.Zero(t, w.said("TerminatingOnInterruption"))
	require.Zero(t, w.metric(t, "karpenter_nodeclaims_disrupted_total", ""))
}

func TestIN24And27MessagesThatCannotBeActedOnStay(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551")
	var bodies []string
	for range 9 {
		bodies = append(bodies, sample(t, "unknown-detail-type.json"))
	}
	q := newQueue(append(bodies, sample(t, "spot-interruption.json"))...)
	w := &world{
		queue: q, ours: fake.NewClientset(claim), kube: kubefake.NewClientset(), clock: clocktesting.NewFakeClock(time.Now()),
		sink: record.NewFakeRecorder(1000), shortages: &shortages{}, registry: prometheus.NewRegistry(),
	}
	var mu sync.Mutex
	refuse := true
	w.ours.PrependReactor("delete", "nodeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return refuse, nil, errors.New("the API server says no")
	})
	w.run(t)
	w.eventually(t, func() bool { return q.left() == 1 }, "nine are deleted, one is kept")
	mu.Lock()
	refuse = false
	mu.Unlock()
	w.eventually(t, func() bool { return w.gone(claim.Name) && q.left() == 0 }, "it comes again, and succeeds")
}

// A message that fails for ever is given up in the end.
func TestFailingMessagesAreGivenUp(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551")
	q := newQueue(sample(t, "spot-interruption.json"))
	w := &world{
		queue: q, ours: fake.NewClientset(claim), kube: kubefake.NewClientset(), clock: clocktesting.NewFakeClock(time.Now()),
		sink: record.NewFakeRecorder(1000), shortages: &shortages{}, registry: prometheus.NewRegistry(),
	}
	w.ours.PrependReactor("delete", "nodeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server says no")
	})
	w.run(t)
	require.Eventually(t, func() bool { w.clock.Step(time.Minute); return q.left() == 0 }, 10*time.Second, time.Millisecond)
	require.InDelta(t, 1, w.metric(t, "berth_interruption_poison_messages_total", "failing"), 0)
}

func TestIN26DeleteThatFailsIsHarmless(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551")
	q := newQueue(sample(t, "spot-interruption.json"))
	q.failing = true
	w := start(t, q, claim)
	w.eventually(t, func() bool { return w.gone(claim.Name) }, "it is acted on")
	w.eventually(t, func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.received["0"] > 1 }, "it comes again")
	q.mu.Lock()
	q.failing = false
	q.mu.Unlock()
	w.eventually(t, func() bool { return q.left() == 0 }, "and is deleted then")
	require.InDelta(t, 1, w.metric(t, "karpenter_nodeclaims_disrupted_total", ""), 0)
}
