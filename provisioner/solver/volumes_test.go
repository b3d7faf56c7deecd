package solver_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

func inZone(zones ...string) requirement.Set {
	return requirement.NewSet(requirement.New(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zones...))
}

func TestVolumesDecideWhereNodesAreBought(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod      *corev1.Pod
		volumes  []requirement.Set
		nodes    []*cluster.Node
		zones    map[string]int
		existing []string
		unfit    []string
	}{
		"PROV-032 one zone": {pod: newPod("p", "1"), volumes: []requirement.Set{inZone("b")}, zones: map[string]int{"b": 1}},
		"PROV-032 a node in the volume's zone is used, one in another is not": {
			pod: newPod("p", "1"), volumes: []requirement.Set{inZone("b")}, nodes: []*cluster.Node{node("n-a", "4", "a"), node("n-b", "4", "b")},
			zones: map[string]int{}, existing: []string{"n-b: 1"},
		},
		"PROV-033 alternatives meet the pod's own wish": {
			pod: newPod("p", "1", nodeSelector(corev1.LabelTopologyZone, "c")), volumes: []requirement.Set{inZone("a"), inZone("b", "c")},
			zones: map[string]int{"c": 1},
		},
		"PROV-033 nothing is left": {
			pod: newPod("p", "1", nodeSelector(corev1.LabelTopologyZone, "c")), volumes: []requirement.Set{inZone("a", "b")}, zones: map[string]int{},
			unfit: []string{"p default: the pod's node affinity and the places of its volumes exclude each other"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem([]*corev1.Pod{tc.pod}, nodePool("default"))
			p.Snapshot = &cluster.Snapshot{Nodes: tc.nodes}
			p.VolumeRequirements = map[types.UID][]requirement.Set{tc.pod.UID: tc.volumes}
			plan := solve(t, p)
			_, existing, unfit := summary(plan)
			require.Equal(t, tc.zones, zonesOf(plan))
			require.Equal(t, tc.existing, existing)
			require.Equal(t, tc.unfit, unfit)
		})
	}
}

// The pods are equal but for what their volumes demand, so they must not share a class.
func TestVolumesTellPodsApart(t *testing.T) {
	t.Parallel()
	pods := newPods(4, "p", "100m")
	p := problem(pods, nodePool("default"))
	p.VolumeRequirements = map[types.UID][]requirement.Set{pods[1].UID: {inZone("b")}, pods[2].UID: {inZone("c")}, pods[3].UID: {inZone("c")}}
	plan := solve(t, p)
	require.Empty(t, plan.Unfit)
	for _, claim := range plan.Claims {
		for _, pod := range claim.Pods {
			for _, demand := range p.VolumeRequirements[pod.UID] {
				require.NoError(t, claim.Requirements.Compatible(demand, nil), pod.Name)
			}
		}
	}
}

// Skew is measured over all zones with nodes, not only those that the volume allows: the filter knows
// nothing of volumes when it counts.
func TestVolumesDoNotChangeWhatSpreadsCount(t *testing.T) {
	t.Parallel()
	running := newPods(1, "old", "1", podLabel("app", "spread"))
	p := problem([]*corev1.Pod{newPod("p", "1", spread(corev1.LabelTopologyZone, 1))}, nodePool("default"))
	p.Snapshot = &cluster.Snapshot{Nodes: []*cluster.Node{node("n-a", "2", "a", running...), node("n-b", "2", "b")}}
	p.VolumeRequirements = map[types.UID][]requirement.Set{"p": {inZone("a")}}
	plan := solve(t, p)
	require.Len(t, plan.Unfit, 1, "zone a has one pod more than b already")
}

// Six pods with a volume each and room for two on a machine need three machines, found in one go.
func TestVolumesCountLikeAResource(t *testing.T) {
	t.Parallel()
	const attach = "attachable-volumes-csi-x"
	pods := newPods(8, "p", "100m")
	tests := map[string]struct {
		room     solver.AttachRoom
		claims   []string
		existing []string
	}{
		"PROV-037 types with a limit": {
			room:     solver.AttachRoom{Types: map[string]resources.Vector{"m.large": vector(attach, "2")}, Nodes: map[string]resources.Vector{"n": vector(attach, "2")}},
			claims:   []string{"default m.large: 2", "default m.large: 2", "default m.large: 2"},
			existing: []string{"n: 2"},
		},
		"PROV-037 a node that is full":             {room: solver.AttachRoom{Nodes: map[string]resources.Vector{"n": {}}}, claims: []string{"default m.large: 8"}},
		"PROV-037 places whose limit is not known": {existing: []string{"n: 8"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := problem(pods, nodePool("default", withTypes(machine("m.large", 2))))
			p.Snapshot = &cluster.Snapshot{Nodes: []*cluster.Node{node("n", "2", "a")}}
			p.AttachRoom, p.Attachments = tc.room, map[types.UID]resources.Vector{}
			for _, pod := range pods {
				p.Attachments[pod.UID] = vector(attach, "1")
			}
			plan := solve(t, p)
			claims, existing, unfit := summary(plan)
			require.Equal(t, tc.claims, claims)
			require.Equal(t, tc.existing, existing)
			require.Empty(t, unfit)
			for _, claim := range plan.Claims {
				require.Zero(t, claim.Requests.Get(attach), "no kubelet reports it")
			}
		})
	}
}
