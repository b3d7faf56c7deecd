package solver_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

// trial is a Fit whose answers are functions of the pod and the labels of the node.
type trial struct {
	place func(pod *corev1.Pod, labels map[string]string) (solver.Verdict, error)
	seen  func(node *corev1.Node, daemons []*corev1.Pod)
	nodes map[string]map[string]string
}

func (f *trial) Open(_ context.Context, s *cluster.Snapshot) (solver.Trial, error) {
	f.nodes = map[string]map[string]string{}
	for _, n := range s.Nodes {
		f.nodes[n.Key()] = n.Labels
	}
	return f, nil
}

func (f *trial) AddNode(_ context.Context, node *corev1.Node, daemons []*corev1.Pod) error {
	f.nodes[node.Name] = node.Labels
	if f.seen != nil {
		f.seen(node, daemons)
	}
	return nil
}

func (f *trial) RemoveNode(name string) { delete(f.nodes, name) }
func (f *trial) Close()                 {}

func (f *trial) Place(_ context.Context, pod *corev1.Pod, node string) (solver.Verdict, error) {
	if f.place == nil {
		return solver.Verdict{}, nil
	}
	return f.place(pod, f.nodes[node])
}

func looking(seen func(*corev1.Node, []*corev1.Pod)) solver.Fit { return &trial{seen: seen} }

func volumeIn(zone string) solver.Fit {
	return &trial{place: func(_ *corev1.Pod, labels map[string]string) (solver.Verdict, error) {
		if labels[zoneKey] != zone {
			return solver.Verdict{Plugin: "VolumeBinding", Reason: "volume is in zone " + zone}, nil
		}
		return solver.Verdict{}, nil
	}}
}

// What the algebra does not know, it learns from the filters: here that a volume is in the last zone.
func TestZonesAreLearnedFromTheFilters(t *testing.T) {
	t.Parallel()
	plan := solver.Solve(t.Context(), problem(newPods(3, "p", "1"), nodePool("default")), volumeIn("c"))
	require.Empty(t, plan.Unfit)
	for _, c := range plan.Claims {
		require.Equal(t, "c", c.Cheapest.Zone)
	}
	require.NotEmpty(t, plan.Disagreements, "what the algebra got wrong is told")
}

func TestAPoolThatTheFiltersRefuseGivesWayToTheNext(t *testing.T) {
	t.Parallel()
	notHeavy := &trial{place: func(_ *corev1.Pod, labels map[string]string) (solver.Verdict, error) {
		if labels["karpenter.sh/nodepool"] == "heavy" {
			return solver.Verdict{Plugin: "Custom", Reason: "not on heavy"}, nil
		}
		return solver.Verdict{}, nil
	}}
	plan := solver.Solve(t.Context(), problem(newPods(2, "p", "1"), nodePool("heavy", weight(9)), nodePool("light")), notHeavy)
	claims, _, unfit := summary(plan)
	require.Equal(t, []string{"light m.large: 2"}, claims)
	require.Len(t, plan.Disagreements, 1, "one refusal says it for the whole pool")
	require.Empty(t, unfit)
}

func TestCase004APluginThatNoNodeCuresBuysNothing(t *testing.T) {
	t.Parallel()
	quota := &trial{place: func(*corev1.Pod, map[string]string) (solver.Verdict, error) {
		return solver.Verdict{Plugin: "QueueQuota", Reason: "queue batch is full"}, nil
	}}
	plan := solver.Solve(t.Context(), problem(newPods(4, "wait", "900m"), nodePool("batch"), nodePool("other")), quota)
	require.Empty(t, plan.Claims)
	require.Len(t, plan.Unfit, 4)
	require.Contains(t, plan.Unfit[0].Reasons[0].Reason, "QueueQuota")
}

func TestAPodThatItsNodeRefusesGoesToAnother(t *testing.T) {
	t.Parallel()
	onlyLast := &trial{place: func(_ *corev1.Pod, labels map[string]string) (solver.Verdict, error) {
		if labels[hostKey] != "n9" {
			return solver.Verdict{Plugin: "NodeVolumeLimits", Reason: "too many volumes"}, nil
		}
		return solver.Verdict{}, nil
	}}
	p := problem(newPods(1, "p", "1"), nodePool("default"))
	for name := range strings.FieldsSeq("n0 n1 n2 n3 n4 n5 n6 n7 n8 n9") {
		p.Snapshot.Nodes = append(p.Snapshot.Nodes, node(name, "2", "a"))
	}
	_, existing, _ := summary(solver.Solve(t.Context(), p, onlyLast))
	require.Equal(t, []string{"n9: 1"}, existing)
}

func TestNothingUnconfirmedLeaves(t *testing.T) {
	t.Parallel()
	broken := &trial{place: func(*corev1.Pod, map[string]string) (solver.Verdict, error) {
		return solver.Verdict{}, errors.New("informers are gone")
	}}
	plan := solver.Solve(t.Context(), problem(newPods(3, "p", "1"), nodePool("default")), broken)
	require.Empty(t, plan.Claims)
	require.Len(t, plan.Unfit, 3)
	require.Contains(t, plan.Unfit[0].Reasons[0].Reason, "informers are gone")

	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	ends := &trial{place: func(*corev1.Pod, map[string]string) (solver.Verdict, error) {
		if asked++; asked == 2 {
			cancel()
			return solver.Verdict{}, ctx.Err()
		}
		return solver.Verdict{}, nil
	}}
	plan = solver.Solve(ctx, problem(newPods(3, "p", "1"), nodePool("default", withTypes(machine("m.large", 2)))), ends)
	claims, _, unfit := summary(plan)
	require.Equal(t, []string{"default m.large: 1"}, claims, "what was confirmed in time stands")
	require.Len(t, unfit, 2)
	require.Contains(t, unfit[0], "out of time")
}

// Pods are asked about in the order in which they were decided, so that a spread that is right in the end
// is right at every moment.
func TestConfirmationFollowsTheOrderOfDecisions(t *testing.T) {
	t.Parallel()
	var zones []string
	watching := &trial{}
	watching.place = func(_ *corev1.Pod, labels map[string]string) (solver.Verdict, error) {
		zones = append(zones, labels[zoneKey])
		return solver.Verdict{}, nil
	}
	plan := solver.Solve(t.Context(), problem(newPods(6, "p", "500m", spread(zoneKey, 1)), nodePool("default")), watching)
	require.Empty(t, plan.Unfit)
	counts := map[string]int{"a": 0, "b": 0, "c": 0}
	for _, z := range zones {
		counts[z]++
		require.LessOrEqual(t, max(counts["a"], counts["b"], counts["c"])-min(counts["a"], counts["b"], counts["c"]), 1, "after %v", zones)
	}
}
