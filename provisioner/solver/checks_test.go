package solver_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
)

// changed applies changes to a node.
func changed(n *cluster.Node, changes ...func(*cluster.Node)) *cluster.Node {
	for _, change := range changes {
		change(n)
	}
	return n
}

func tainted(key string) func(*cluster.Node) {
	return func(n *cluster.Node) {
		n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

func soldOut(it *catalog.InstanceType) {
	for i := range it.Offerings {
		it.Offerings[i].Available = false
	}
}

func going(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func soft(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }

func honorTaints(c *corev1.TopologySpreadConstraint) {
	c.NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor)
}

func matchKeys(keys ...string) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = keys }
}

func TestChecks(t *testing.T) {
	t.Parallel()
	small := withTypes(machine("m.large", 2))
	tests := map[string]struct {
		pods     []*corev1.Pod
		pools    []solver.Pool
		nodes    []*cluster.Node
		usage    map[string]resources.Vector
		claims   []string
		existing []string
		unfit    []string
	}{
		"PROV-012 a pod that opts out of pools": {
			pods:  newPods(1, "p", "1", nodeAffinity(term(karpv1.LabelNodePool, corev1.NodeSelectorOpDoesNotExist))),
			pools: []solver.Pool{nodePool("default")},
			unfit: []string{`p-0 default: label "karpenter.sh/nodepool": have karpenter.sh/nodepool In [default], want karpenter.sh/nodepool DoesNotExist`},
		},
		"PROV-018 terms that contradict themselves match nothing": {
			pods: newPods(1, "p", "1", nodeAffinity(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "disk", Operator: corev1.NodeSelectorOpExists}, {Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist},
			}})),
			pools: []solver.Pool{nodePool("default")}, unfit: []string{"p-0 default: the pod's node affinity matches no node"},
		},
		"PROV-026 only pods of the same revision count": {
			pods:  newPods(2, "p", "100m", podLabel("rev", "2"), spread(hostKey, 1, matchKeys("rev"))),
			pools: []solver.Pool{nodePool("default")},
			nodes: []*cluster.Node{
				node("n1", "2", "a", newPods(3, "old", "100m", podLabel("app", "spread"), podLabel("rev", "1"))...),
				node("n2", "2", "a", newPods(3, "older", "100m", podLabel("app", "spread"), podLabel("rev", "1"))...),
			},
			existing: []string{"n1: 1", "n2: 1"},
		},
		"PROV-035 one pod's fault is not the other's": {
			pods:  append(newPods(1, "bad", "1", nodeSelector("team", "x")), newPods(1, "good", "1")...),
			pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.large: 1"},
			unfit: []string{`bad-0 default: label "team" does not have known values`},
		},
		"PROV-043 nodes in flight count against limits": {
			pods: newPods(1, "p", "1500m"), pools: []solver.Pool{nodePool("default", limit("cpu", "4"), small)},
			usage: map[string]resources.Vector{"default": vector("cpu", "4", "nodes", "2")},
			unfit: []string{"p-0 default: all available instance types exceed limits for nodepool (cpu)"},
		},
		"PROV-046 a startup taint on a node that is initialized keeps pods off": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default", small)},
			nodes:  []*cluster.Node{changed(node("n1", "2", "a"), tainted("cni"))},
			claims: []string{"default m.large: 1"},
		},
		"PROV-047 pods of a node that goes get a new one before they are evicted": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default", small)},
			nodes:  []*cluster.Node{changed(node("n1", "2", "a", newPods(1, "p", "1")...), func(n *cluster.Node) { n.Deleting = true })},
			claims: []string{"default m.large: 1"},
		},
		"limits on an extended resource": {
			pods:   newPods(2, "p", "1", requests("cpu", "1", "nvidia.com/gpu", "1")),
			pools:  []solver.Pool{nodePool("gpu", limit("nvidia.com/gpu", "1"), withTypes(machine("g.xlarge", 4, gpus("1"))))},
			claims: []string{"gpu g.xlarge: 1"},
			unfit:  []string{"p-1 gpu: all available instance types exceed limits for nodepool (nvidia.com/gpu)"},
		},
		"no capacity is told apart from no type": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default", withTypes(machine("m.large", 2, soldOut)))},
			unfit: []string{"p-0 default: no capacity for now: no offering of m.large is available in the required zone and capacity type"},
		},
		"affinity waits for the pods that it follows": {
			pods: append(newPods(1, "follower", "1800m", podAffinity(zoneKey, selector("app", "leader"))),
				newPods(1, "leader", "100m", podLabel("app", "leader"))...),
			pools:  []solver.Pool{nodePool("default", withTypes(machine("m.large", 2), machine("m.xlarge", 4)))},
			claims: []string{"default m.large: 2"},
		},
		"affinity to pods that are nowhere": {
			pods:  newPods(1, "p", "1", podAffinity(zoneKey, selector("app", "nobody"))),
			pools: []solver.Pool{nodePool("default")},
			unfit: []string{"p-0 default: topology spread or pod affinity allows no zone or node that could be bought"},
		},
		"pods that must share a host get one that holds all": {
			pods:   newPods(5, "p", "1", podLabel("app", "x"), podAffinity(hostKey, selector("app", "x"))),
			pools:  []solver.Pool{nodePool("default")},
			nodes:  []*cluster.Node{node("n1", "3", "a")},
			claims: []string{"default m.2xlarge: 5"},
		},
		"anti-affinity by zone keeps off a node in flight whose zone is open": {
			pods:  newPods(1, "p", "1", podLabel("app", "x"), antiAffinity(zoneKey, selector("app", "x"))),
			pools: []solver.Pool{nodePool("default", small)},
			nodes: []*cluster.Node{
				node("n1", "1", "a", newPods(1, "old", "900m", podLabel("app", "x"))...),
				changed(node("claim-1", "4", ""), func(n *cluster.Node) {
					n.Node, n.Initialized = nil, false
					delete(n.Labels, zoneKey)
					delete(n.Requirements, zoneKey)
				}),
			},
			claims: []string{"default m.large: 1"},
		},
		"a tainted node's zone counts for the least, as it does for the scheduler": {
			pods:  newPods(1, "p", "1", spread(zoneKey, 1)),
			pools: []solver.Pool{nodePool("default", needs(zoneKey, in, "a"))},
			nodes: []*cluster.Node{node("n1", "1", "a", newPods(1, "old", "900m", podLabel("app", "spread"))...), changed(node("n2", "1", "d"), tainted("x"))},
			unfit: []string{"p-0 default: topology spread or pod affinity allows no zone or node that could be bought"},
		},
		"pods that are being deleted do not count for a spread": {
			pods:     newPods(1, "p", "100m", spread(hostKey, 1)),
			pools:    []solver.Pool{nodePool("default")},
			nodes:    []*cluster.Node{node("n1", "4", "a", newPod("old", "1", podLabel("app", "spread"), going))},
			existing: []string{"n1: 1"},
		},
		"pods that are being deleted still repel": {
			pods:   newPods(1, "p", "100m", podLabel("app", "x"), antiAffinity(hostKey, selector("app", "x"))),
			pools:  []solver.Pool{nodePool("default", small)},
			nodes:  []*cluster.Node{node("n1", "4", "a", newPod("old", "1", podLabel("app", "x"), going))},
			claims: []string{"default m.large: 1"},
		},
		"a pod that needs on-demand does not make a spot node dear": {
			pods:   append(newPods(3, "p", "1200m"), newPods(1, "q", "300m", nodeSelector(karpv1.LabelCapacityType, "on-demand"))...),
			pools:  []solver.Pool{nodePool("default", withTypes(machine("m.large", 2), machine("m.xlarge", 4)))},
			claims: []string{"default m.large: 1", "default m.xlarge: 3"},
		},
		"PROV-025 with nodeTaintsPolicy Honor it does not": {
			pods:   newPods(1, "p", "1", spread(zoneKey, 1, honorTaints)),
			pools:  []solver.Pool{nodePool("default", needs(zoneKey, in, "a"), small)},
			nodes:  []*cluster.Node{node("n1", "1", "a", newPods(1, "old", "900m", podLabel("app", "spread"))...), changed(node("n2", "1", "d"), tainted("x"))},
			claims: []string{"default m.large: 1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem(tc.pods, tc.pools...)
			p.Snapshot = &cluster.Snapshot{Nodes: tc.nodes, PoolUsage: tc.usage}
			plan := solve(t, p)
			claims, existing, unfit := summary(plan)
			require.Equal(t, tc.claims, claims)
			require.Equal(t, tc.existing, existing)
			require.Equal(t, tc.unfit, unfit)
			require.Empty(t, check.Plan(p, plan))
		})
	}
}

func TestSoftSpreadGuidesAndNeverAddsANode(t *testing.T) {
	t.Parallel()
	one := solve(t, problem(newPods(6, "p", "100m", spread(zoneKey, 1, soft)), nodePool("default")))
	require.Len(t, one.Claims, 1)
	p := problem(newPods(6, "p", "1500m", spread(zoneKey, 1, soft)), nodePool("default", withTypes(machine("m.large", 2))))
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, zonesOf(solve(t, p)))
}

func TestClaimsOfMixedTypesFitOnEach(t *testing.T) {
	t.Parallel()
	// The daemon runs on one of the types only; the filters see what the tightest type leaves.
	p := problem(newPods(1, "p", "3500m"), nodePool("default", withTypes(machine("a.xlarge", 4), machine("b.2xlarge", 8, cheap))))
	p.Snapshot.Daemons = []*corev1.Pod{daemon("d", "4", nodeSelector(typeKey, "b.2xlarge"))}
	var seen *corev1.Node
	plan := solver.Solve(t.Context(), p, looking(func(n *corev1.Node, daemons []*corev1.Pod) { seen = n }))
	require.Len(t, plan.Claims, 1)
	require.Len(t, plan.Claims[0].Types, 2)
	require.Equal(t, "b.2xlarge", seen.Labels[typeKey])
	require.Equal(t, "8", seen.Status.Allocatable.Cpu().String(), "4 for pods on either type, and 4 for the daemon")
	require.Equal(t, int64(3500), plan.Claims[0].Requests.MilliCPU, "the least daemons over the types: none")
}

// cheap makes a type as cheap as one of half its size.
func cheap(it *catalog.InstanceType) {
	for i := range it.Offerings {
		it.Offerings[i].Price *= 0.45
	}
}

func TestNamespaceSelectors(t *testing.T) {
	t.Parallel()
	pod := newPod("p", "1")
	pod.Labels = map[string]string{"app": "x"}
	affinityOf(pod).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: hostKey, LabelSelector: selector("app", "x"), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "y"}},
	}}}
	old := newPod("old", "100m", podLabel("app", "x"))
	old.Namespace = "other"
	p := problem([]*corev1.Pod{pod}, nodePool("default"))
	p.Snapshot = &cluster.Snapshot{Nodes: []*cluster.Node{node("n1", "4", "a", old)}, NamespaceLabels: map[string]map[string]string{"other": {"team": "y"}}}
	require.Empty(t, solve(t, p).Existing)
	p.Snapshot.NamespaceLabels["other"]["team"] = "z"
	require.Len(t, solve(t, p).Existing, 1)
}

func TestPROV050TypesThatMinValuesNeedsStayOnTheClaim(t *testing.T) {
	t.Parallel()
	var types []*catalog.InstanceType
	for i := range 80 {
		types = append(types, machine(fmt.Sprintf("a.%02d", i), 2))
	}
	dear := func(it *catalog.InstanceType) {
		for i := range it.Offerings {
			it.Offerings[i].Price *= 5
		}
	}
	types = append(types, machine("b.large", 2, dear), machine("c.large", 2, dear))
	p := problem(newPods(1, "p", "1"), nodePool("default", minValues("karpenter.k8s.aws/instance-family", 3), withTypes(types...)))
	plan := solve(t, p)
	require.Empty(t, plan.Unfit)
	require.Len(t, plan.Claims[0].Types, 60)
	require.Empty(t, check.Plan(p, plan))
}

func TestClaimsKeepTypesOfAboutThePrice(t *testing.T) {
	t.Parallel()
	var types []*catalog.InstanceType
	for i := range 40 {
		types = append(types, machine(fmt.Sprintf("a.%02d", i), 2, func(it *catalog.InstanceType) {
			for j := range it.Offerings {
				it.Offerings[j].Price *= 1 + float64(i)/40 // from 1 to almost 2 times the cheapest
			}
		}))
	}
	plan := solve(t, problem(newPods(1, "p", "1"), nodePool("default", withTypes(types...))))
	require.Len(t, plan.Claims[0].Types, 21, "up to 1.5 times the cheapest")
	plan = solve(t, problem(newPods(1, "p", "1"), nodePool("default", withTypes(types[0], machine("huge.96", 96)))))
	require.Len(t, plan.Claims[0].Types, 2, "few types are all kept")
}
