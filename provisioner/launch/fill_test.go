package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/launch"
	"github.com/berth-dev/berth/provisioner/resources"
)

func TestFillLaunchesWhatTheTemplateAllows(t *testing.T) {
	t.Parallel()
	open := karpv1.NodeSelectorRequirementWithMinValues{Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}
	s := newStage(t, launch.Options{}, pool("fixed", func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{open}
	}))
	names, err := s.launcher.Fill(t.Context(), "fixed", 3, "static")
	require.NoError(t, err)
	claims := s.claims(t)
	require.Len(t, claims, 3)
	require.Len(t, names, 3)
	for _, claim := range claims {
		require.Contains(t, names, claim.Name)
		require.Equal(t, []karpv1.NodeSelectorRequirementWithMinValues{open}, claim.Spec.Requirements, "no list of types: the cloud chooses")
		require.Empty(t, claim.Spec.Resources.Requests)
	}
	require.Len(t, s.groups, 1, "one cloud call")
	require.Len(t, s.groups[0].Claims, 3)
	require.ElementsMatch(t, names, s.tracked)
}

func TestFillStopsAtLimitsAndBrakes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options launch.Options
		nodes   int // there already
		want    int
	}{
		"limit of nodes": {nodes: 2, want: 3},
		"node cap":       {options: launch.Options{NodeCap: 2}, nodes: 1, want: 1},
		"launch rate":    {options: launch.Options{LaunchesPerMinute: 2}, want: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, tc.options, pool("fixed", limits(karpv1.ResourceNodes, "5")))
			s.nodes = tc.nodes
			s.usage["fixed"] = resources.Vector{}.With(karpv1.ResourceNodes, int64(tc.nodes))
			names, err := s.launcher.Fill(t.Context(), "fixed", 10, "static")
			require.NoError(t, err)
			require.Len(t, names, tc.want)
		})
	}
	_, err := newStage(t, launch.Options{}).launcher.Fill(t.Context(), "no", 1, "static")
	require.EqualError(t, err, "nodepool no is gone")
}
