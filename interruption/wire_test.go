package interruption_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
)

// overWire is a controller that reads a queue of the simulator through the SDK.
func overWire(t *testing.T, claims ...runtime.Object) (*world, *ec2sim.Server) {
	t.Helper()
	sim, err := ec2sim.New(ec2sim.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(sim)
	client := server.Client()
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close(); sim.Close() })
	w := &world{
		ours: fake.NewClientset(claims...), kube: kubefake.NewClientset(), real: clock.RealClock{},
		sink: record.NewFakeRecorder(100_000), shortages: &shortages{}, registry: prometheus.NewRegistry(),
		wire: sqs.NewFromConfig(aws.Config{
			Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: client, RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		}),
	}
	return w, sim
}

// Every kind of message through SQS as it is on the wire, with the queue missing and denied at first.
func TestEveryKindOverTheWire(t *testing.T) {
	t.Parallel()
	files := map[string]bool{ // whether the claims of the instances go
		"spot-interruption.json": true, "rebalance-recommendation.json": false, "scheduled-change.json": true,
		"state-change-stopping.json": true, "capacity-reservation-interruption.json": true,
		"capacity-reservation-interruption-string-resources.json": true,
		"health-ignored-category.json":                            false, "health-ignored-service.json": false, "unknown-detail-type.json": false,
		"wrong-version.json": false, "json-without-envelope.json": false,
		"malformed-truncated.json.txt": false, "malformed-text.json.txt": false,
	}
	endings := map[string]bool{ // whether the claim goes
		"551": true, "552": false, "553": true, "554": true, "555": true, "556": true, "557": true, "558": false, "559": false,
	}
	var claims []runtime.Object
	for ending := range endings {
		claim, _ := claimOf(ending, func(c *karpv1.NodeClaim) { c.UID = "" })
		claims = append(claims, claim)
	}
	w, sim := overWire(t, claims...)
	sim.FailNext("ReceiveMessage", "AccessDenied", 1)
	w.run(t)
	require.Eventually(t, func() bool { // IN-03
		return sim.CallCount("GetQueueUrl") > 0
	}, 10*time.Second, time.Millisecond)
	sim.CreateQueue("q")
	for file := range files {
		require.True(t, sim.Send("q", sample(t, file)))
	}
	require.Eventually(t, func() bool { return sim.QueueLength("q") == 0 }, 30*time.Second, 5*time.Millisecond)
	for ending, goes := range endings {
		require.Equal(t, goes, w.gone("claim-"+ending), ending)
	}
	require.Eventually(t, func() bool {
		return w.metric(t, "karpenter_interruption_deleted_messages_total", "") == float64(len(files))
	}, 10*time.Second, time.Millisecond)
	require.InDelta(t, 2, w.metric(t, "berth_interruption_poison_messages_total", "unreadable"), 0)
	require.Equal(t, []string{"spot m5.large eu-west-1a"}, w.shortages.marks)
}

// A flood: ten thousand messages at once, a tenth of them about instances that are ours.
func TestFloodOverTheWire(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const all, good = 10_000, 1_000
	var claims []runtime.Object
	id := func(i int) string { return fmt.Sprintf("%05x", 0xf0000+i) }
	for i := range good {
		claim, _ := claimOf(id(i), func(c *karpv1.NodeClaim) { c.UID = "" })
		claim.Status.ProviderID = strings.Replace(claim.Status.ProviderID, "44e"+id(i), id(i), 1)
		claims = append(claims, claim)
	}
	w, sim := overWire(t, claims...)
	sim.CreateQueue("q")
	noise, warning := sample(t, "state-change-running.json"), sample(t, "spot-interruption.json")
	for i := range all {
		body := noise
		switch {
		case i%10 == 0:
			body = strings.ReplaceAll(warning, "44e551", id(i/10))
		case i%10 == 1:
			body = strings.Repeat("x", 1+i)
		}
		require.True(t, sim.Send("q", body))
	}
	w.run(t)
	began := time.Now()
	var acted time.Duration
	require.Eventually(t, func() bool {
		if acted == 0 && w.metric(t, "karpenter_nodeclaims_disrupted_total", "") == good {
			acted = time.Since(began)
		}
		return sim.QueueLength("q") == 0
	}, time.Minute, 5*time.Millisecond)
	t.Logf("%d messages, %d of them good: acted on the last good one after %s, all deleted after %s, %d calls to receive",
		all, good, acted, time.Since(began), sim.CallCount("ReceiveMessage"))
	require.InDelta(t, good, w.metric(t, "karpenter_nodeclaims_disrupted_total", ""), 0)
	require.InDelta(t, all/10, w.metric(t, "berth_interruption_poison_messages_total", "unreadable"), 0)
}
