package nodes

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

func node(name, kind string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)), Labels: map[string]string{
			karpv1.LabelNodePool: "general", karpv1.LabelCapacityType: kind, karpv1.LabelInitialized: "true",
			corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-east-1a",
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi")}},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: corev1.PodStatus{Phase: phase},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("4Gi"),
		}}}}},
	}
}

func run(t *testing.T, o *options) string {
	t.Helper()
	client := fake.NewSimpleClientset( //nolint:staticcheck // the other constructor tracks field managers, which nobody reads here
		node("b", "on-demand"), node("a", "spot", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{karpv1.DisruptedNoScheduleTaint} }),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", CreationTimestamp: metav1.Now()}},
		pod("p", "b", corev1.PodRunning), pod("q", "b", corev1.PodRunning), pod("done", "b", corev1.PodSucceeded), pod("waits", "", corev1.PodPending))
	var out bytes.Buffer
	require.NoError(t, o.validate())
	require.NoError(t, o.run(t.Context(), client, &out))
	return out.String()
}

func TestNodes(t *testing.T) {
	t.Parallel()
	out := run(t, &options{output: "table", sort: "name", once: true, interval: time.Second})
	require.Regexp(t, `a +general +m5\.large +us-east-1a +spot +0\.\d+ +░{10} +0% .* 0 +60m +being replaced`, out)
	require.Regexp(t, `b +general +m5\.large +us-east-1a +on-demand +0\.0960 +█{5}░{5} +50% +█{10} 100% +2 +60m +ready`, out)
	require.Contains(t, out, "3 nodes for USD 0.1")
	require.Contains(t, out, "(1 without a known price)")
	require.NotContains(t, out, "\x1b", "printed once, nothing is cleared")

	var l listing
	require.NoError(t, json.Unmarshal([]byte(run(t, &options{output: "json", sort: "price", interval: time.Second})), &l))
	require.Equal(t, []string{"b", "a", "c"}, []string{l.Nodes[0].Name, l.Nodes[1].Name, l.Nodes[2].Name})
	require.Equal(t, usage{1000, 2000}, l.Nodes[0].CPU)
	require.Equal(t, 1, l.Unpriced)
}

func TestStates(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*corev1.Node){
		"ready":       func(*corev1.Node) {},
		"terminating": func(n *corev1.Node) { now := metav1.Now(); n.DeletionTimestamp = &now },
		"not ready": func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		},
		"starting":       func(n *corev1.Node) { delete(n.Labels, karpv1.LabelInitialized) },
		"do not disrupt": func(n *corev1.Node) { n.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} },
		"cordoned":       func(n *corev1.Node) { n.Spec.Unschedulable = true },
	}
	for want, change := range tests {
		require.Equal(t, want, stateOf(node("n", "spot", change)))
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for flag, o := range map[string]*options{
		"--output":   {output: "xml", sort: "name", interval: time.Second},
		"--sort":     {output: "table", sort: "colour", interval: time.Second},
		"--interval": {output: "table", sort: "name"},
	} {
		require.ErrorContains(t, o.validate(), flag)
	}
	cmd := NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--kubeconfig", "/does/not/exist"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "--kubeconfig")
}
