package ec2sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func TestTrueResources(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		settings ec2sim.KubeletSettings
		want     map[corev1.ResourceName]string // of allocatable
	}{
		"m5.large":  {want: map[corev1.ResourceName]string{"cpu": "1930m", "pods": "29", "ephemeral-storage": "17Gi"}},
		"a1.medium": {want: map[corev1.ResourceName]string{"cpu": "940m", "pods": "8"}},
		"a1.2xlarge": {settings: ec2sim.KubeletSettings{RootGiB: 100},
			want: map[corev1.ResourceName]string{"cpu": "7910m", "ephemeral-storage": "89Gi"}},
		"p5.48xlarge": {settings: ec2sim.KubeletSettings{EFA: 4, RAID0: true},
			want: map[corev1.ResourceName]string{"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4", "pods": "100"}},
		"inf1.xlarge": {want: map[corev1.ResourceName]string{"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "4"}},
		"g6f.large":   {want: map[corev1.ResourceName]string{"nvidia.com/gpu": "1"}},
		"c5.large": {settings: ec2sim.KubeletSettings{MaxPods: 110, PodENI: true,
			KubeReserved:   corev1.ResourceList{"cpu": resource.MustParse("100m")},
			SystemReserved: corev1.ResourceList{"cpu": resource.MustParse("50m")}},
			want: map[corev1.ResourceName]string{"cpu": "1850m", "pods": "110", "vpc.amazonaws.com/pod-eni": "9"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			it, ok := facts.Lookup(name)
			require.True(t, ok)
			capacity, allocatable := tc.settings.Resources(it)
			for key, want := range tc.want {
				got := allocatable[key]
				require.Zero(t, got.Cmp(resource.MustParse(want)), "%s is %s, want %s", key, got.String(), want)
			}
			nominal := float64(it.MemoryMiB << 20)
			lost := 1 - float64(capacity.Memory().Value())/nominal
			require.GreaterOrEqual(t, lost, 0.015)
			require.LessOrEqual(t, lost, 0.0601)
			pods := allocatable[corev1.ResourcePods]
			kept := capacity.Memory().Value() - allocatable.Memory().Value()
			require.Equal(t, (11*pods.Value()+255+100)<<20, kept)
		})
	}
}

func TestTrueResourcesAreNeverNegative(t *testing.T) {
	t.Parallel()
	for _, it := range facts.Types() {
		_, allocatable := ec2sim.TrueResources(it)
		for name, quantity := range allocatable {
			require.GreaterOrEqual(t, quantity.Sign(), 0, "%s of %s", name, it.Name)
		}
	}
}

func TestTrueMemoryDiffersByType(t *testing.T) {
	t.Parallel()
	share := func(name string) float64 {
		it, _ := facts.Lookup(name)
		capacity, _ := ec2sim.TrueResources(it)
		again, _ := ec2sim.TrueResources(it)
		require.Equal(t, capacity, again)
		return float64(capacity.Memory().Value()) / float64(it.MemoryMiB<<20)
	}
	require.NotEqual(t, share("m5.large"), share("m5.xlarge"))
}
