package cases

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func amounts(cpu, memory, pods string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, corev1.ResourcePods: pods} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return list
}

func TestApproximatedTypesHaveWhatTheCaseSays(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		name, arch string
		want       corev1.ResourceList
		vcpus      int
		memoryMiB  int64
		pods       int64
	}{
		"m5.large as it is":        {"m5.large", "", amounts("1930m", "6900Mi", "29"), 2, 8189, 29},
		"one vCPU":                 {"small", "", amounts("940m", "1700Mi", "8"), 1, 2317, 8},
		"a plain type, many cores": {"t-16", "", amounts("15890m", "59000Mi", "234"), 16, 66951, 234},
		"ARM loses 64 MiB more":    {"c7g.large", "arm64", amounts("1930m", "3000Mi", "29"), 2, 4042, 29},
		"pods as the base has":     {"m5.large", "", amounts("1930m", "6900Mi", ""), 2, 8189, 29},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := instanceType{Name: tc.name, Arch: tc.arch, Allocatable: tc.want, Price: price{OnDemand: 1}}
			got, reason := approximate(baseType(facts.Default(), want), want)
			require.Empty(t, reason)
			require.Equal(t, tc.name, got.Name)
			require.Equal(t, tc.vcpus, got.VCPUs)
			require.Equal(t, tc.memoryMiB, got.MemoryMiB)
			require.Equal(t, tc.pods, ec2sim.ENIPods(got))
			require.Equal(t, []string{"on-demand"}, got.UsageClasses)
			_, allocatable := ec2sim.TrueResources(got)
			for resource, amount := range tc.want {
				real := allocatable[resource]
				require.GreaterOrEqual(t, real.Cmp(amount), 0, "%s: %s is less than %s", resource, real.String(), amount.String())
			}
		})
	}
}

func TestTypesThatCannotBeApproximatedAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		t    instanceType
		want string
	}{
		"CPU between two numbers of vCPUs": {instanceType{Allocatable: amounts("2400m", "", ""), Price: price{OnDemand: 1}}, "no number of vCPUs leaves about 2400m"},
		"no price":                         {instanceType{Allocatable: amounts("1930m", "", "")}, "it has no price"},
		"a resource of its own":            {instanceType{Allocatable: corev1.ResourceList{"a/b": resource.MustParse("1")}, Price: price{Spot: 1}}, "allocatable a/b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, reason := approximate(baseType(facts.Default(), tc.t), tc.t)
			require.Contains(t, reason, tc.want)
		})
	}
}

func TestPricesOfTheCatalogueAreTheCases(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		price          price
		onDemand, spot float64
	}{
		"on-demand only": {price{OnDemand: 0.096}, 0.096, 0},
		"both":           {price{OnDemand: 0.1, Spot: 0.03}, 0.1, 0.03},
		"spot only":      {price{Spot: 0.6}, 1.2, 0.6},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scenario{types: []instanceType{{Name: "a", Allocatable: amounts("1930m", "", ""), Price: tc.price}}}
			catalog, unsupported, err := s.catalogue()
			require.NoError(t, err)
			require.Empty(t, unsupported)
			usd, _ := catalog.OnDemandPrice("us-east-1", "a")
			require.InDelta(t, tc.onDemand, usd, 1e-9)
			usd, _ = catalog.SpotPrice("us-east-1", "us-east-1b", "a")
			require.InDelta(t, tc.spot, usd, 1e-9)
		})
	}
}

func TestZonesAreTranslatedBothWays(t *testing.T) {
	t.Parallel()
	require.Equal(t, "us-east-1b", toZone("zone-b"))
	require.Equal(t, "zone-", toZone("zone-"))
	require.Equal(t, "elsewhere", toZone("elsewhere"))
	require.Equal(t, "no subnet in zone-z, zone-a.", fromZones("no subnet in us-east-1z, us-east-1a."))
}
