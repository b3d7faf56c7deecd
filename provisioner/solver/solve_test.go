package solver_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

const (
	zoneKey = corev1.LabelTopologyZone
	hostKey = corev1.LabelHostname
	typeKey = corev1.LabelInstanceTypeStable
	in      = corev1.NodeSelectorOpIn
	notIn   = corev1.NodeSelectorOpNotIn
)

func minDomains(n int32) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n }
}

func TestRules(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pods     []*corev1.Pod
		pools    []solver.Pool
		nodes    []*cluster.Node
		daemons  []*corev1.Pod
		claims   []string
		existing []string
		unfit    []string
	}{
		"the cheapest machine that holds the pod": {
			pods: newPods(1, "p", "3"), pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.xlarge: 1"},
		},
		"pods that fit one node buy one node": {
			pods: newPods(100, "p", "80m"), pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.2xlarge: 100"},
		},
		"two nodes when they are cheaper than one": {
			pods: newPods(100, "p", "100m"), pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.2xlarge: 80", "default m.large: 20"},
		},
		"PROV-004 no pool": {
			pods: newPods(1, "p", "1"), unfit: []string{"p-0 : no nodepools found"},
		},
		"PROV-007 the heavier pool wins": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("a", weight(10)), nodePool("b", weight(50))}, claims: []string{"b m.large: 1"},
		},
		"PROV-008 the later name wins at equal weight": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("alpha"), nodePool("zulu")}, claims: []string{"zulu m.large: 1"},
		},
		"PROV-009 a selected pool goes before weight": {
			pods:  newPods(1, "p", "1", nodeSelector(karpv1.LabelNodePool, "a")),
			pools: []solver.Pool{nodePool("a"), nodePool("b", weight(50))}, claims: []string{"a m.large: 1"},
		},
		"PROV-010 an unknown label": {
			pods:  newPods(1, "p", "1", nodeSelector("team", "x")),
			pools: []solver.Pool{nodePool("default")}, unfit: []string{`p-0 default: label "team" does not have known values`},
		},
		"PROV-011 NotIn on an unknown key": {
			pods:  newPods(1, "p", "1", nodeAffinity(term("team", notIn, "x"))),
			pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.large: 1"},
		},
		"CORE-041 a custom key of the pool": {
			pods:  newPods(1, "p", "1", nodeSelector("team", "a")),
			pools: []solver.Pool{nodePool("default", needs("team", corev1.NodeSelectorOpExists))}, claims: []string{"default m.large: 1"},
		},
		"PROV-013 a taint that is not tolerated": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default", poolTaint("gpu", corev1.TaintEffectNoSchedule))},
			unfit: []string{"p-0 default: taint gpu:NoSchedule is not tolerated"},
		},
		"a tolerated taint": {
			pods:  newPods(1, "p", "1", tolerate("gpu")),
			pools: []solver.Pool{nodePool("default", poolTaint("gpu", corev1.TaintEffectNoSchedule))}, claims: []string{"default m.large: 1"},
		},
		"PROV-014 startup taints keep nobody off": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default", startupTaint("cni"))}, claims: []string{"default m.large: 1"},
		},
		"PROV-015 a pool without PreferNoSchedule is better": {
			pods:  newPods(1, "p", "1"),
			pools: []solver.Pool{nodePool("z", weight(90), poolTaint("avoid", corev1.TaintEffectPreferNoSchedule)), nodePool("a")}, claims: []string{"a m.large: 1"},
		},
		"PROV-016 only a PreferNoSchedule pool": {
			pods:  newPods(1, "p", "1"),
			pools: []solver.Pool{nodePool("z", poolTaint("avoid", corev1.TaintEffectPreferNoSchedule))}, claims: []string{"z m.large: 1"},
		},
		"PROV-017 the second OR term": {
			pods:  newPods(1, "p", "1", nodeAffinity(term(typeKey, in, "none"), term(typeKey, in, "m.xlarge"))),
			pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.xlarge: 1"},
		},
		"PROV-018 an impossible required term": {
			pods:  newPods(1, "p", "1", nodeAffinity(term(typeKey, in, "none"))),
			pools: []solver.Pool{nodePool("default")},
			unfit: []string{"p-0 default: no instance type has the required labels: node.kubernetes.io/instance-type In [none]"},
		},
		"PROV-019 an impossible preference is dropped": {
			pods:  newPods(1, "p", "1", prefers(term(zoneKey, in, "nowhere"))),
			pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.large: 1"},
		},
		"a preference guides what is bought": {
			pods:  newPods(1, "p", "1", prefers(term(typeKey, in, "m.xlarge"))),
			pools: []solver.Pool{nodePool("default")}, claims: []string{"default m.xlarge: 1"},
		},
		"a preference never adds a node": {
			pods:  newPods(1, "p", "1", prefers(term(zoneKey, in, "b"))),
			pools: []solver.Pool{nodePool("default")}, nodes: []*cluster.Node{node("n1", "4", "a")}, existing: []string{"n1: 1"},
		},
		"PROV-022 spread over hosts": {
			pods: newPods(4, "p", "100m", spread(hostKey, 1)), pools: []solver.Pool{nodePool("default")},
			claims: []string{"default m.large: 1", "default m.large: 1", "default m.large: 1", "default m.large: 1"},
		},
		"PROV-024 fewer zones than minDomains": {
			pods:   newPods(4, "p", "100m", spread(zoneKey, 1, minDomains(3))),
			pools:  []solver.Pool{nodePool("default", needs(zoneKey, in, "a", "b"))},
			claims: []string{"default m.large: 1", "default m.large: 1"},
			unfit: []string{
				"p-2 default: topology spread or pod affinity allows no zone or node that could be bought",
				"p-3 default: topology spread or pod affinity allows no zone or node that could be bought",
			},
		},
		"PROV-027 anti-affinity between hosts": {
			pods:   newPods(3, "p", "100m", podLabel("app", "x"), antiAffinity(hostKey, selector("app", "x"))),
			pools:  []solver.Pool{nodePool("default")},
			claims: []string{"default m.large: 1", "default m.large: 1", "default m.large: 1"},
		},
		"PROV-028 running pods repel": {
			pods:   newPods(1, "p", "100m", podLabel("app", "x")),
			pools:  []solver.Pool{nodePool("default")},
			nodes:  []*cluster.Node{node("n1", "4", "a", newPod("loner", "1", antiAffinity(hostKey, selector("app", "x"))))},
			claims: []string{"default m.large: 1"},
		},
		"PROV-030 one host port, two nodes": {
			pods: newPods(2, "p", "100m", hostPort(80)), pools: []solver.Pool{nodePool("default")},
			claims: []string{"default m.large: 1", "default m.large: 1"},
		},
		"PROV-031 a daemon has the host port": {
			pods: newPods(1, "p", "100m", hostPort(80)), pools: []solver.Pool{nodePool("default")}, daemons: []*corev1.Pod{daemon("d", "10m", hostPort(80))},
			unfit: []string{"p-0 default: hostPort 80/TCP is taken by DaemonSet d on every instance type"},
		},
		"PROV-038 room for daemons": {
			pods: newPods(1, "p", "1500m"), pools: []solver.Pool{nodePool("default")}, daemons: []*corev1.Pod{daemon("d", "1")},
			claims: []string{"default m.xlarge: 1"},
		},
		"PROV-039 daemons that don't tolerate the pool": {
			pods:    newPods(1, "p", "1500m", tolerate("gpu")),
			pools:   []solver.Pool{nodePool("default", poolTaint("gpu", corev1.TaintEffectNoSchedule))},
			daemons: []*corev1.Pod{daemon("d", "1")}, claims: []string{"default m.large: 1"},
		},
		"PROV-040 daemons that wait for initialization": {
			pods: newPods(1, "p", "1500m"), pools: []solver.Pool{nodePool("default")},
			daemons: []*corev1.Pod{daemon("d", "1", nodeSelector(karpv1.LabelInitialized, "true"))}, claims: []string{"default m.xlarge: 1"},
		},
		"daemons of some types only": {
			pods: newPods(1, "p", "1500m"), pools: []solver.Pool{nodePool("default")},
			daemons: []*corev1.Pod{daemon("d", "1", nodeSelector(typeKey, "m.xlarge"))}, claims: []string{"default m.large: 1"},
		},
		"PROV-041 limits": {
			pods:   newPods(3, "p", "1500m"),
			pools:  []solver.Pool{nodePool("default", limit("cpu", "4"), withTypes(machine("m.large", 2)))},
			claims: []string{"default m.large: 1", "default m.large: 1"},
			unfit:  []string{"p-2 default: all available instance types exceed limits for nodepool (cpu)"},
		},
		"PROV-042 node limits": {
			pods:   append(newPods(1, "p", "1", nodeSelector(typeKey, "m.large")), newPods(1, "q", "1", nodeSelector(typeKey, "m.xlarge"))...),
			pools:  []solver.Pool{nodePool("default", limit("nodes", "1"))},
			claims: []string{"default m.large: 1"},
			unfit:  []string{"q-0 default: node limits have been exhausted for nodepool"},
		},
		"higher priority gets what is scarce": {
			pods:   append(newPods(1, "low", "1800m"), newPods(1, "high", "1", priority(10))...),
			pools:  []solver.Pool{nodePool("default", limit("nodes", "1"), withTypes(machine("m.large", 2)))},
			claims: []string{"default m.large: 1"},
			unfit:  []string{"low-0 default: node limits have been exhausted for nodepool"},
		},
		"PROV-050 minValues, Strict": {
			pods:  newPods(1, "p", "1"),
			pools: []solver.Pool{nodePool("default", minValues("karpenter.k8s.aws/instance-family", 3))},
			unfit: []string{`p-0 default: minValues requirement is not met for label "karpenter.k8s.aws/instance-family": 1 of 3 values`},
		},
		"PROV-080 a million cores": {
			pods: newPods(1, "p", "1M"), pools: []solver.Pool{nodePool("default")},
			unfit: []string{"p-0 default: no instance type has enough resources: cpu 1M (the largest allows 16) (CPU request >= 1 Million, m vs M typo?)"},
		},
		"extended resources": {
			pods:   newPods(1, "p", "1", requests("cpu", "1", "nvidia.com/gpu", "1")),
			pools:  []solver.Pool{nodePool("default", withTypes(machine("m.large", 2), machine("g.xlarge", 4, gpus("1"))))},
			claims: []string{"default g.xlarge: 1"},
		},
		"architecture": {
			pods:   newPods(1, "p", "1", nodeSelector("beta.kubernetes.io/arch", "arm64")),
			pools:  []solver.Pool{nodePool("default", withTypes(machine("m.large", 2), machine("mg.xlarge", 4, arm)))},
			claims: []string{"default mg.xlarge: 1"},
		},
		"existing nodes come first": {
			pods: newPods(3, "p", "1"), pools: []solver.Pool{nodePool("default")}, nodes: []*cluster.Node{node("n1", "2", "a")},
			existing: []string{"n1: 2"}, claims: []string{"default m.large: 1"},
		},
		"a node that goes is no place": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default")},
			nodes:  []*cluster.Node{func() *cluster.Node { n := node("n1", "4", "a"); n.Deleting = true; return n }()},
			claims: []string{"default m.large: 1"},
		},
		"PROV-044 a claim in flight takes pods": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default")},
			nodes: []*cluster.Node{func() *cluster.Node {
				n := node("", "4", "a", nil...)
				n.ClaimName, n.Node, n.Initialized = "claim-1", nil, false
				return n
			}()},
			existing: []string{"claim-1: 1"},
		},
		"promised pods take room": {
			pods: newPods(1, "p", "1"), pools: []solver.Pool{nodePool("default")},
			nodes:  []*cluster.Node{func() *cluster.Node { n := node("n1", "2", "a"); n.Promised = newPods(1, "q", "1500m"); return n }()},
			claims: []string{"default m.large: 1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem(tc.pods, tc.pools...)
			p.Snapshot = &cluster.Snapshot{Nodes: tc.nodes, Daemons: tc.daemons}
			claims, existing, unfit := summary(solve(t, p))
			require.Equal(t, tc.claims, claims)
			require.Equal(t, tc.existing, existing)
			require.Equal(t, tc.unfit, unfit)
		})
	}
}

func TestZones(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pods  []*corev1.Pod
		nodes []*cluster.Node
		pools []solver.Pool
		want  map[string]int
	}{
		"PROV-021 two in each of three zones": {pods: newPods(6, "p", "1", spread(zoneKey, 1)), want: map[string]int{"a": 2, "b": 2, "c": 2}},
		"running pods count": {
			pods:  newPods(4, "p", "1", spread(zoneKey, 1)),
			nodes: []*cluster.Node{node("n1", "2", "a", newPods(2, "q", "1", podLabel("app", "spread"))...)},
			want:  map[string]int{"b": 2, "c": 2},
		},
		"case-001 a zone that only another team's pool names is no domain": {
			pods: newPods(6, "p", "900m", spread(zoneKey, 1)),
			pools: []solver.Pool{
				nodePool("general"), nodePool("mistaken", needs(zoneKey, in, "a", "z"), poolTaint("team", corev1.TaintEffectNoSchedule)),
			},
			want: map[string]int{"a": 2, "b": 2, "c": 2},
		},
		"PROV-029 zonal self affinity": {
			pods: newPods(6, "p", "3", podLabel("app", "x"), podAffinity(zoneKey, selector("app", "x"))), want: map[string]int{"a": 6},
		},
		"zonal anti-affinity in one solve": {
			pods: newPods(3, "p", "1", podLabel("app", "x"), antiAffinity(zoneKey, selector("app", "x"))), want: map[string]int{"a": 1, "b": 1, "c": 1},
		},
		"without a rule the zone stays open": {pods: newPods(2, "p", "1"), want: map[string]int{"open": 2}},
		"a selected zone":                    {pods: newPods(2, "p", "1", nodeSelector(zoneKey, "b")), want: map[string]int{"b": 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pools := tc.pools
			if pools == nil {
				pools = []solver.Pool{nodePool("default")}
			}
			p := problem(tc.pods, pools...)
			p.Snapshot = &cluster.Snapshot{Nodes: tc.nodes}
			plan := solve(t, p)
			require.Empty(t, plan.Unfit)
			require.Empty(t, plan.Existing)
			require.Equal(t, tc.want, zonesOf(plan))
		})
	}
}

func TestPROV023CapacityTypeSpread(t *testing.T) {
	t.Parallel()
	plan := solve(t, problem(newPods(4, "p", "1", spread(karpv1.LabelCapacityType, 1)), nodePool("default")))
	require.Empty(t, plan.Unfit)
	counts := map[string]int{}
	for _, c := range plan.Claims {
		counts[c.Cheapest.CapacityType] += len(c.Pods)
	}
	require.Equal(t, map[string]int{"spot": 2, "on-demand": 2}, counts)
}

func TestPriceChoosesCapacityType(t *testing.T) {
	t.Parallel()
	plan := solve(t, problem(newPods(1, "p", "1"), nodePool("default")))
	require.Equal(t, "spot", plan.Claims[0].Cheapest.CapacityType)
	require.InDelta(t, 0.05*2*0.4, plan.Claims[0].Cheapest.Price, 1e-9)
	plan = solve(t, problem(newPods(1, "p", "1", nodeSelector(karpv1.LabelCapacityType, "on-demand")), nodePool("default")))
	require.Equal(t, "on-demand", plan.Claims[0].Cheapest.CapacityType)
}

func TestUnavailableOfferingsAreLeftOut(t *testing.T) {
	t.Parallel()
	p := nodePool("default", withTypes(machine("m.large", 2), machine("n.large", 2)))
	for i := range p.Types[0].Offerings {
		p.Types[0].Offerings[i].Available = false
	}
	plan := solve(t, problem(newPods(1, "p", "1"), p))
	require.Equal(t, "n.large", plan.Claims[0].Cheapest.Type)
	require.Len(t, plan.Claims[0].Types, 1)
}

func TestClaimsStayFlexible(t *testing.T) {
	t.Parallel()
	plan := solve(t, problem(newPods(1, "p", "1"), nodePool("default", withTypes(
		machine("a.large", 2), machine("b.large", 2), machine("c.large", 2), machine("huge.24xlarge", 96)))))
	require.Len(t, plan.Claims, 1)
	names := []string{}
	for _, it := range plan.Claims[0].Types {
		names = append(names, it.Name)
	}
	require.Equal(t, "a.large", names[0])
	require.Subset(t, names, []string{"b.large", "c.large"}, "types of equal price are all kept")
}

func TestFiltersHaveTheLastWord(t *testing.T) {
	t.Parallel()
	pods := newPods(2, "p", "1")
	refuse := refusing(func(pod *corev1.Pod, where string) bool { return pod.Name == "p-0" || where == "n1" })
	p := problem(pods, nodePool("default"))
	p.Snapshot = &cluster.Snapshot{Nodes: []*cluster.Node{node("n1", "4", "a")}}
	plan := solver.Solve(t.Context(), p, refuse)
	require.Empty(t, plan.Existing, "nothing unconfirmed leaves")
	for _, c := range plan.Claims {
		for _, pod := range c.Pods {
			require.NotEqual(t, "p-0", pod.Name)
		}
	}
	require.NotEmpty(t, plan.Disagreements)
	require.NotEmpty(t, plan.Unfit)
	require.Contains(t, plan.Unfit[0].Pod.Name, "p-")
}
