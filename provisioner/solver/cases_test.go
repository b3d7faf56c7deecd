package solver_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
)

// exact makes an on-demand type with the given allocatable, sold in the zones.
func exact(name, cpu, memory, pods string, price float64, zones ...string) *catalog.InstanceType {
	if len(zones) == 0 {
		zones = []string{"zone-a", "zone-b", "zone-c"}
	}
	it := &catalog.InstanceType{
		Name: name, Capacity: vector("cpu", cpu, "memory", memory, "pods", pods),
		Requirements: requirement.FromLabels(map[string]string{typeKey: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}),
	}
	for _, zone := range zones {
		it.Offerings = append(it.Offerings, catalog.Offering{
			Zone: zone, CapacityType: karpv1.CapacityTypeOnDemand, Price: price, Available: true,
			Requirements: requirement.FromLabels(map[string]string{zoneKey: zone, karpv1.LabelCapacityType: karpv1.CapacityTypeOnDemand}),
		})
	}
	return it
}

func udp(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolUDP }

// Each case is a failure that users of another autoscaler have reported; the name tells what must hold.
func TestCases(t *testing.T) {
	t.Parallel()
	m5 := func(zones ...string) func(*solver.Pool) {
		return withTypes(exact("m5.large", "1930m", "6900Mi", "29", 0.096, zones...))
	}
	r5 := func(zones ...string) func(*solver.Pool) {
		return withTypes(exact("r5.large", "1930m", "14800Mi", "29", 0.126, zones...))
	}
	hot := func(name string) *corev1.Pod {
		return newPod(name, "1500m", podLabel("app", "spread"), podLabel("rev", "r1"))
	}
	waiting := newPod("hot-2", "1500m", podLabel("rev", "r1"), spread(zoneKey, 1, minDomains(2), matchKeys("rev")), spread(hostKey, 1, matchKeys("rev")))
	profiler := func(terms ...corev1.NodeSelectorTerm) []*corev1.Pod {
		return []*corev1.Pod{daemon("profiler", "", requests("cpu", "1", "memory", "256Mi"), nodeAffinity(terms...))}
	}
	accelerated, armTerm := term("example.com/accelerated", corev1.NodeSelectorOpExists), term(corev1.LabelArchStable, in, "arm64")
	graviton := withTypes(exact("c7g.large", "1930m", "3000Mi", "29", 0.0725), exact("c7g.xlarge", "3920m", "6500Mi", "58", 0.145))
	asArm := func(p *solver.Pool) {
		for _, it := range p.Types {
			arm(it)
		}
	}
	tier := func(name, machine, memory string, price float64, w int32) solver.Pool {
		return nodePool(name, weight(w), poolLabel("group", "sid"), withTypes(exact(machine, "7910m", memory, "58", price)))
	}
	tests := map[string]struct {
		pods     []*corev1.Pod
		pools    []solver.Pool
		nodes    []*cluster.Node
		daemons  []*corev1.Pod
		claims   []string
		existing []string
		unfit    []string
	}{
		"case-002 a third replica gets a node in two zones": {
			pods: []*corev1.Pod{waiting}, pools: []solver.Pool{nodePool("data", r5("zone-a", "zone-b"))},
			nodes:  []*cluster.Node{node("n-a", "1930m", "zone-a", hot("hot-0")), node("n-b", "1930m", "zone-b", hot("hot-1"))},
			claims: []string{"data r5.large: 1"},
		},
		"case-002 one zone is below minDomains": {
			pods: []*corev1.Pod{waiting}, pools: []solver.Pool{nodePool("data", r5("zone-a"))},
			nodes: []*cluster.Node{node("n-a", "1930m", "zone-a", hot("hot-0"))},
			unfit: []string{"hot-2 data: topology spread or pod affinity allows no zone or node that could be bought"},
		},
		"case-003 the host port of a DaemonSet buys nothing": {
			pods: newPods(1, "web", "500m", hostPort(8080)), pools: []solver.Pool{nodePool("general", m5())},
			daemons: []*corev1.Pod{daemon("edge-agent", "100m", hostPort(8080), tolerate(""))},
			unfit:   []string{"web-0 general: hostPort 8080/TCP is taken by DaemonSet edge-agent on every instance type"},
		},
		"case-003 another protocol is another port": {
			pods: newPods(1, "web", "500m", hostPort(8080)), pools: []solver.Pool{nodePool("general", m5())},
			daemons: []*corev1.Pod{daemon("edge-agent", "100m", hostPort(8080), udp)}, claims: []string{"general m5.large: 1"},
		},
		"case-003 a DaemonSet for other nodes": {
			pods: newPods(1, "web", "500m", hostPort(8080)), pools: []solver.Pool{nodePool("general", m5())},
			daemons: []*corev1.Pod{daemon("edge-agent", "100m", hostPort(8080), nodeSelector("role", "edge"))}, claims: []string{"general m5.large: 1"},
		},
		"case-006 sidecars and overhead in start order": {
			pods: []*corev1.Pod{layered()},
			pools: []solver.Pool{nodePool("general", withTypes(
				exact("size-2", "2000m", "4000Mi", "29", 0.08), exact("size-2.4", "2400m", "4800Mi", "29", 0.10), exact("size-4", "3920m", "7000Mi", "58", 0.16)))},
			claims: []string{"general size-4: 1"},
		},
		"case-009 every alternative of a DaemonSet's affinity": {
			pods:  newPods(1, "api", "", requests("cpu", "1500m", "memory", "512Mi")),
			pools: []solver.Pool{nodePool("arm", graviton, asArm)}, daemons: profiler(accelerated, armTerm), claims: []string{"arm c7g.xlarge: 1"},
		},
		"case-009 in the other order": {
			pods:  newPods(1, "api", "", requests("cpu", "1500m", "memory", "512Mi")),
			pools: []solver.Pool{nodePool("arm", graviton, asArm)}, daemons: profiler(armTerm, accelerated), claims: []string{"arm c7g.xlarge: 1"},
		},
		"case-011 a pod too large for the heaviest pool": {
			pods: append(newPods(1, "cache", "", requests("cpu", "7500m", "memory", "15246Mi"), nodeSelector("group", "sid")),
				newPods(1, "tiny", "", requests("cpu", "100m", "memory", "64Mi"), nodeSelector("group", "sid"))...),
			pools: []solver.Pool{
				tier("tier-1", "c7i.2xlarge", "14300Mi", 0.357, 30), tier("tier-2", "m7i.2xlarge", "29500Mi", 0.4032, 20), tier("tier-3", "r7i.2xlarge", "60500Mi", 0.5292, 10),
			},
			daemons: []*corev1.Pod{daemon("agent", "", requests("cpu", "150m", "memory", "200Mi"))},
			claims:  []string{"tier-2 m7i.2xlarge: 2"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem(tc.pods, tc.pools...)
			p.Snapshot = &cluster.Snapshot{Nodes: tc.nodes, Daemons: tc.daemons}
			plan := solve(t, p)
			claims, existing, unfit := summary(plan)
			require.Equal(t, tc.claims, claims)
			require.Equal(t, tc.existing, existing)
			require.Equal(t, tc.unfit, unfit)
			require.Empty(t, check.Plan(p, plan))
		})
	}
}

// layered is the pod of case-006: its peak is the plain init container beside the sidecar before it.
func layered() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	container := func(name, cpu, memory string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: quantities("cpu", cpu, "memory", memory)}}
	}
	pod := newPod("app-0", "", requests("cpu", "1000m", "memory", "1Gi"))
	pod.Spec.Overhead = quantities("cpu", "250m", "memory", "120Mi")
	pod.Spec.InitContainers = []corev1.Container{container("mesh", "500m", "256Mi"), container("migrate", "1800m", "512Mi"), container("logs", "500m", "256Mi")}
	pod.Spec.InitContainers[0].RestartPolicy, pod.Spec.InitContainers[2].RestartPolicy = &always, &always
	return pod
}

func TestCase010ANodeLimitHoldsInsideOnePass(t *testing.T) {
	t.Parallel()
	shards := newPods(100, "shard", "200m", podLabel("app", "shard"), antiAffinity(hostKey, selector("app", "shard")))
	p := problem(shards, nodePool("capped", limit("nodes", "3"), withTypes(exact("m5.large", "1930m", "6900Mi", "29", 0.096))))
	plan := solve(t, p)
	require.Len(t, plan.Claims, 3)
	require.Len(t, plan.Unfit, 97)
	require.Equal(t, "node limits have been exhausted for nodepool", plan.Unfit[0].Reasons[0].Reason)
}

func TestCase012PodsThatCannotBeServedDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	g6, m5 := exact("g6.2xlarge", "7910m", "29500Mi", "58", 0.9776), exact("m5.2xlarge", "7910m", "29500Mi", "58", 0.384)
	gpus("1")(g6)
	soldOut(g6)
	pods := append(newPods(2000, "train", "", requests("cpu", "6", "memory", "24Gi", "nvidia.com/gpu", "1")),
		newPods(20, "light", "", requests("cpu", "2", "memory", "8Gi"))...)
	p := problem(pods, nodePool("gpu", withTypes(g6)), nodePool("cpu", withTypes(m5)))
	for i := range 1000 {
		p.Snapshot.Nodes = append(p.Snapshot.Nodes, node(fmt.Sprintf("n-%04d", i), "1", "zone-a", newPod(fmt.Sprintf("busy-%d", i), "1")))
	}
	plan := solve(t, p)
	require.Len(t, plan.Claims, 7, "three light pods fit on one node")
	require.Len(t, plan.Unfit, 2000)
	var reasons string
	for _, r := range plan.Unfit[0].Reasons {
		reasons += r.Pool + ": " + r.Reason + "\n"
	}
	require.Contains(t, reasons, "gpu: no capacity for now: no offering of g6.2xlarge")
}
