package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// What a user does first: a pool with every operator, a spread Deployment, a deleted claim, and home.
func TestPlatformEngineersFirstHour(t *testing.T) {
	s := newScene(t)
	startScheduler(t)
	s.apply(nodeClass, nodePool, deployment("web", 50, zoneSpread))
	s.running(50)

	zones := map[string]int{}
	nodes := map[string]corev1.Node{}
	for _, pod := range s.pods() {
		node, err := shared.Kube.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		nodes[node.Name] = *node
		zones[node.Labels[corev1.LabelTopologyZone]]++
	}
	require.Len(t, zones, 3)
	for zone, n := range zones {
		require.GreaterOrEqual(t, n, 16, zone)
		require.LessOrEqual(t, n, 17, zone)
	}
	for _, node := range nodes {
		require.NotContains(t, []string{"m5", "c5"}, node.Labels["karpenter.k8s.aws/instance-family"])
		s.eventually("the node counts as initialized", func() bool {
			fresh, err := shared.Kube.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
			return err == nil && fresh.Labels[karpv1.LabelInitialized] == "true"
		})
		require.Equal(t, "default", node.Labels[karpv1.LabelNodePool])
	}

	columns := map[string][]string{ // CORE-054 and its kin
		"/apis/karpenter.sh/v1/nodepools":           {"Name", "NodeClass", "Nodes", "Ready", "Age", "Weight", "CPU", "Memory"},
		"/apis/karpenter.sh/v1/nodeclaims":          {"Name", "Type", "Capacity", "Zone", "Node", "Ready", "Age", "ImageID", "ID", "NodePool", "NodeClass", "Drifted"},
		"/apis/karpenter.k8s.aws/v1/ec2nodeclasses": {"Name", "Ready", "Age", "Role"},
	}
	for path, want := range columns {
		require.Equal(t, want, tableColumns(t, path), path)
	}
	s.eventually("the pool counts its nodes", func() bool {
		pool, err := shared.Karpenter.KarpenterV1().NodePools().Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil && pool.Status.Nodes == int64(len(nodes)) && !pool.Status.Resources.Cpu().IsZero()
	})

	victim := s.claims()[0]
	require.NoError(t, shared.Karpenter.KarpenterV1().NodeClaims().Delete(t.Context(), victim.Name, metav1.DeleteOptions{}))
	s.eventually("the claim and its node are gone", func() bool {
		_, err := shared.Kube.CoreV1().Nodes().Get(t.Context(), victim.Status.NodeName, metav1.GetOptions{})
		return err != nil && !slices.ContainsFunc(s.claims(), func(c karpv1.NodeClaim) bool { return c.Name == victim.Name })
	})
	s.running(50)

	_, err := shared.Kube.AppsV1().Deployments(s.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.eventually("empty nodes go", func() bool { return len(s.claims()) == 0 && shared.LivingInstances() == 0 })
	s.clear()
}

// tableColumns returns the columns that kubectl get shows with -o wide.
func tableColumns(t *testing.T, path string) []string {
	t.Helper()
	raw, err := shared.Kube.Discovery().RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	var names []string
	for _, c := range table.ColumnDefinitions {
		names = append(names, c.Name)
	}
	return names
}

// kill -9 after EC2 has launched and before anybody wrote that down.
func TestKilledBetweenLaunchAndStatus(t *testing.T) {
	for _, pods := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d nodes", pods), func(t *testing.T) {
			s := newScene(t)
			s.apply(nodeClass, nodePool)
			first := startScheduler(t)
			s.eventually("pool is ready", func() bool { return poolReady(t, "default") })
			before := len(shared.EC2.Instances())
			killed := make(chan struct{})
			shared.EC2.AfterNext("CreateFleet", func() {
				first.stop(syscall.SIGKILL)
				close(killed)
			})
			// Each pod needs a node of its own, and all nodes are alike: one launch for all of them.
			s.apply(deployment("web", pods, `      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}`))
			select {
			case <-killed:
			case <-time.After(60 * time.Second):
				t.Fatal("EC2 was not asked")
			}
			require.Empty(t, slices.DeleteFunc(s.claims(), func(c karpv1.NodeClaim) bool { return c.Status.ProviderID == "" }), "no claim knows its instance")

			startScheduler(t)
			s.running(pods)
			ids := map[string]bool{}
			for _, c := range s.claims() {
				require.NotEmpty(t, c.Status.ProviderID)
				ids[c.Status.ProviderID] = true
			}
			require.Len(t, ids, pods, "each claim has its own instance")
			require.Len(t, shared.EC2.Instances(), before+pods, "nothing was launched twice")
			require.Equal(t, pods, shared.LivingInstances(), "no orphan")
			s.clear()
		})
	}
}

func poolReady(t *testing.T, name string) bool {
	t.Helper()
	pool, err := shared.Karpenter.KarpenterV1().NodePools().Get(t.Context(), name, metav1.GetOptions{})
	return err == nil && meta.IsStatusConditionTrue(pool.Status.Conditions, karpv1.ConditionReady)
}

// A cluster without any node never gets as far as PostFilter.
func TestZeroNodes(t *testing.T) {
	s := newScene(t)
	nodes, err := shared.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, node := range nodes.Items {
		require.NoError(t, shared.Kube.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
	}
	s.eventually("no node", func() bool {
		nodes, err := shared.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 0
	})
	startScheduler(t)
	s.apply(nodeClass, nodePool, deployment("web", 2, ""))
	s.running(2)
	s.clear()
}

func TestBadInputIsToldAndStopsNobodyElse(t *testing.T) {
	s := newScene(t)
	startScheduler(t)

	s.apply(deployment("web", 1, ""))
	s.eventually("without a pool the pod's event says so", func() bool {
		pods := s.pods()
		return len(pods) == 1 && strings.Contains(s.events(s.namespace, pods[0].Name), "no nodepools found")
	})
	require.Empty(t, s.claims())

	require.Contains(t, s.rejected(strings.Replace(nodePool, "operator: Gte, values: [\"2\"]", "operator: Gte, values: [\"-2\"]", 1)), "requirements")
	require.Contains(t, s.rejected(strings.Replace(nodePool, `nodes: "100%"`, `nodes: "101%"`, 1)), "nodes")

	// Valid for the API server, wrong for us: this pool and this class say so.
	s.apply(strings.NewReplacer("name: default}\nspec:\n  template", "name: broken}\nspec:\n  template", "values: [c, m, r]", `values: ["-not a label-"]`).Replace(nodePool))
	s.apply(strings.NewReplacer("metadata: {name: default}", "metadata: {name: lost}", "karpenter.sh/discovery: berth-local", "karpenter.sh/discovery: nowhere").Replace(nodeClass))
	s.apply(strings.NewReplacer("name: default}\nspec:\n  template", "name: lost}\nspec:\n  template", "name: default}\n      req", "name: lost}\n      req").Replace(nodePool))
	s.apply(nodeClass, nodePool)
	s.running(1)
	condition := func(pool, kind string) string {
		p, err := shared.Karpenter.KarpenterV1().NodePools().Get(t.Context(), pool, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
	s.eventually("CORE-029 the broken pool names the value", func() bool {
		text := condition("broken", karpv1.ConditionValidationSucceeded)
		return strings.HasPrefix(text, "False NodePoolValidationFailed") && strings.Contains(text, "-not a label-")
	})
	s.eventually("CORE-035 the lost class shows on its pool", func() bool {
		return strings.HasPrefix(condition("lost", karpv1.ConditionNodeClassReady), "False")
	})

	// Too large for anything: one event, reasons grouped by pool.
	s.apply(strings.Replace(deployment("huge", 1, ""), "cpu: 400m", "cpu: 4000", 1))
	s.eventually("the event names pools and what they lack", func() bool {
		for _, pod := range s.pods() {
			if strings.HasPrefix(pod.Name, "huge-") {
				text := s.events(s.namespace, pod.Name)
				return strings.Contains(text, "nodepool default: no instance type has enough resources: cpu 4k") &&
					strings.Contains(text, "broken") && strings.Contains(text, "not ready")
			}
		}
		return false
	})
	s.clear()
}

// Without AWS the process goes on scheduling, and buys when AWS is back.
func TestAWSUnreachableAtStart(t *testing.T) {
	s := newScene(t)
	s.apply(nodeClass, nodePool)
	lonely := startScheduler(t, "AWS_ENDPOINT_URL=http://127.0.0.1:1")
	s.apply(`
apiVersion: v1
kind: Node
metadata: {name: byhand}
`)
	node, err := shared.Kube.CoreV1().Nodes().Get(t.Context(), "byhand", metav1.GetOptions{})
	require.NoError(t, err)
	node.Status.Allocatable = corev1.ResourceList{"cpu": quantity("2"), "memory": quantity("4Gi"), "pods": quantity("10")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	_, err = shared.Kube.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.apply(strings.Replace(deployment("web", 1, "      tolerations: [{operator: Exists}]"), "cpu: 400m", "cpu: 1", 1))
	s.eventually("a pod that fits is bound without AWS", func() bool {
		pods := s.pods()
		return len(pods) == 1 && pods[0].Spec.NodeName == "byhand"
	})
	s.eventually("the process says what is wrong", func() bool { return lonely.logged("AWS") && lonely.logged("127.0.0.1:1") })
	lonely.stop(syscall.SIGTERM)
	require.NoError(t, shared.Kube.CoreV1().Nodes().Delete(t.Context(), "byhand", metav1.DeleteOptions{}))

	startScheduler(t)
	s.apply(deployment("more", 1, ""))
	s.eventually("with AWS a node is bought", func() bool {
		return slices.ContainsFunc(s.pods(), func(p corev1.Pod) bool {
			return strings.HasPrefix(p.Name, "more-") && p.Status.Phase == corev1.PodRunning
		})
	})
	s.clear()
}
