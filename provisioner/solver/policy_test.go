package solver_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

func prefersAway(key string) podOption {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selector("app", "x")}},
		}}
	}
}

func prefersNear(key, app string) podOption {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selector("app", app)}},
		}}
	}
}

// One preference, three policies: it guides, it buys, it is not looked at.
func TestPreferencePolicies(t *testing.T) {
	t.Parallel()
	away := func() []*corev1.Pod { return newPods(3, "p", "100m", podLabel("app", "x"), prefersAway(hostKey)) }
	inZoneB := func() []*corev1.Pod { return newPods(1, "p", "1", prefers(term(zoneKey, in, "b"))) }
	tests := map[string]struct {
		pods     []*corev1.Pod
		nodes    []*cluster.Node
		pools    []solver.Pool
		policy   solver.PreferencePolicy
		claims   []string
		existing []string
		zones    map[string]int
	}{
		"anti-affinity guides":                    {pods: away(), policy: solver.Guide, claims: []string{"default m.large: 3"}},
		"anti-affinity is demanded":               {pods: away(), policy: solver.Respect, claims: []string{"default m.large: 1", "default m.large: 1", "default m.large: 1"}},
		"PROV-020 anti-affinity is ignored":       {pods: away(), policy: solver.Ignore, claims: []string{"default m.large: 3"}},
		"a zone guides, and a node is used":       {pods: inZoneB(), nodes: []*cluster.Node{node("n1", "4", "a")}, existing: []string{"n1: 1"}},
		"a zone is demanded, and a node bought":   {pods: inZoneB(), policy: solver.Respect, nodes: []*cluster.Node{node("n1", "4", "a")}, claims: []string{"default m.large: 1"}, zones: map[string]int{"b": 1}},
		"PROV-020 the zone of a new node, Ignore": {pods: inZoneB(), policy: solver.Ignore, claims: []string{"default m.large: 1"}, zones: map[string]int{"open": 1}},
		"the zone of a new node, Guide":           {pods: inZoneB(), claims: []string{"default m.large: 1"}, zones: map[string]int{"b": 1}},
		"what cannot be had is dropped": {
			pods: newPods(1, "p", "1", prefers(term(zoneKey, in, "nowhere"))), policy: solver.Respect, claims: []string{"default m.large: 1"},
		},
		"a soft spread is demanded": {
			pods: newPods(6, "p", "100m", spread(zoneKey, 1, soft)), policy: solver.Respect,
			claims: []string{"default m.large: 2", "default m.large: 2", "default m.large: 2"},
		},
		"PROV-016 a taint to be avoided gives way last": {
			pods: newPods(1, "p", "1", prefers(term(zoneKey, in, "nowhere"))), policy: solver.Respect,
			pools: []solver.Pool{nodePool("default", poolTaint("avoid", corev1.TaintEffectPreferNoSchedule))}, claims: []string{"default m.large: 1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pools := tc.pools
			if pools == nil {
				pools = []solver.Pool{nodePool("default")}
			}
			p := problem(tc.pods, pools...)
			p.Snapshot.Nodes, p.Preferences = tc.nodes, tc.policy
			plan := solve(t, p)
			claims, existing, unfit := summary(plan)
			require.Equal(t, tc.claims, claims)
			require.Equal(t, tc.existing, existing)
			require.Empty(t, unfit)
			if tc.zones != nil {
				require.Equal(t, tc.zones, zonesOf(plan))
			}
			for _, c := range plan.Claims {
				for _, pod := range c.Pods {
					require.Contains(t, tc.pods, pod, "the plan has the pods as they were given")
				}
			}
		})
	}
}

// The plan names the caller's own pods: later steps compare them.
func TestPoliciesKeepTheCallersPods(t *testing.T) {
	t.Parallel()
	pods := newPods(2, "p", "1", prefers(term(zoneKey, in, "b")))
	for _, policy := range []solver.PreferencePolicy{solver.Respect, solver.Ignore} {
		p := problem(pods, nodePool("default"))
		p.Preferences = policy
		asked := map[*corev1.Pod]bool{}
		plan := solver.Solve(t.Context(), p, watching{asked})
		require.Len(t, plan.Claims, 1)
		for _, pod := range pods {
			require.True(t, asked[pod], "the filters are asked about the pod as it was given")
			require.NotEmpty(t, pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, "the caller's pod is not changed")
		}
		require.Same(t, pods[0], plan.Claims[0].Pods[0])
	}
}

// watching accepts everything and notes which pods were asked about.
type watching struct{ asked map[*corev1.Pod]bool }

func (w watching) Open(context.Context, *cluster.Snapshot) (solver.Trial, error) { return w, nil }
func (w watching) AddNode(context.Context, *corev1.Node, []*corev1.Pod) error    { return nil }
func (w watching) RemoveNode(string)                                             {}
func (w watching) Close()                                                        {}
func (w watching) Place(_ context.Context, pod *corev1.Pod, _ string) (solver.Verdict, error) {
	w.asked[pod] = true
	return solver.Verdict{}, nil
}

func TestPreferredPodAffinityGuidesTheZone(t *testing.T) {
	t.Parallel()
	full := node("n1", "1", "c", newPod("cache", "1", podLabel("app", "cache")))
	p := problem(newPods(1, "p", "1", prefersNear(zoneKey, "cache")), nodePool("default"))
	p.Snapshot.Nodes = []*cluster.Node{full}
	require.Equal(t, map[string]int{"c": 1}, zonesOf(solve(t, p)), "near the pods that it wants to be near")
	p = problem(newPods(1, "p", "1", podLabel("app", "x"), prefersAway(zoneKey)), nodePool("default"))
	p.Snapshot.Nodes = []*cluster.Node{node("n1", "1", "a", newPod("x", "1", podLabel("app", "x")))}
	require.Equal(t, map[string]int{"b": 1}, zonesOf(solve(t, p)), "away from the pods that it wants to be away from")
}

func TestPROV050And051MinValuesPolicies(t *testing.T) {
	t.Parallel()
	p := problem(newPods(1, "p", "1"), nodePool("default", needs(typeKey, in, "m.large", "m.xlarge"), minValues(typeKey, 3)))
	_, _, unfit := summary(solve(t, p))
	require.Equal(t, []string{`p-0 default: minValues requirement is not met for label "` + typeKey + `": 2 of 3 values`}, unfit, "PROV-050")
	p.RelaxMinValues = true
	plan := solve(t, p)
	require.Len(t, plan.Claims, 1, "PROV-051")
	require.True(t, plan.Claims[0].MinValuesRelaxed)
	require.Equal(t, 2, plan.Claims[0].Requirements.Get(typeKey).MinValues())
	require.Len(t, plan.Claims[0].Types, 2)
	p = problem(newPods(1, "p", "1"), nodePool("default", minValues(typeKey, 2)))
	p.RelaxMinValues = true
	require.False(t, solve(t, p).Claims[0].MinValuesRelaxed, "what can be met is not lowered")
}
