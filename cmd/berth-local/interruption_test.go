package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// warning is what EventBridge puts into the queue two minutes before a spot instance goes.
func warning(t *testing.T, instance string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"version": "0", "id": "1", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2", "account": "123456789012",
		"time": time.Now().UTC().Format(time.RFC3339), "region": "us-east-1", "resources": []string{"arn:aws:ec2:us-east-1a:instance/" + instance},
		"detail": map[string]string{"instance-id": instance, "instance-action": "terminate"},
	})
	require.NoError(t, err)
	return string(raw)
}

// A spot warning moves the pods of its node while the instance still runs, and the offering that was taken
// back is not bought again.
func TestSpotInterruption(t *testing.T) {
	const queue = "interruptions"
	s := newScene(t)
	startScheduler(t, "INTERRUPTION_QUEUE="+queue) // IN-03: the queue comes later
	s.apply(nodeClass, nodePool, deployment("web", 3, ""))
	s.running(3)
	shared.EC2.CreateQueue(queue)
	t.Cleanup(func() { shared.EC2.DeleteQueue(queue) })
	doomed := s.claims()[0]
	require.Equal(t, "spot", doomed.Labels["karpenter.sh/capacity-type"])
	instance := doomed.Status.ProviderID[strings.LastIndexByte(doomed.Status.ProviderID, '/')+1:]
	require.True(t, shared.EC2.Send(queue, "not JSON"))
	require.True(t, shared.EC2.Send(queue, warning(t, "i-0123456789abcdef0")))
	require.True(t, shared.EC2.Send(queue, warning(t, instance)))
	s.eventually("the node's claim is gone", func() bool {
		_, err := shared.Karpenter.KarpenterV1().NodeClaims().Get(t.Context(), doomed.Name, metav1.GetOptions{})
		return err != nil
	})
	s.running(3)
	for _, claim := range s.claims() {
		offering := func(c map[string]string) string {
			return c["karpenter.sh/capacity-type"] + " " + c["node.kubernetes.io/instance-type"] + " " + c["topology.kubernetes.io/zone"]
		}
		require.NotEqual(t, offering(doomed.Labels), offering(claim.Labels), "what was taken back is not bought again at once")
	}
	require.Contains(t, s.events("default", doomed.Name), "SpotInterrupted: Spot interruption warning was triggered")
	require.Contains(t, s.events("default", doomed.Status.NodeName), "TerminatingOnInterruption")
	s.eventually("every message is dealt with", func() bool { return shared.EC2.QueueLength(queue) == 0 })
	s.scale("web", "0")
	s.eventually("empty nodes go", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}
