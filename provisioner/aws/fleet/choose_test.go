package fleet_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/fleet"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

const zone = "us-east-1a"

func in(key string, values ...string) requirement.Requirement {
	return requirement.New(key, corev1.NodeSelectorOpIn, values...)
}

// kind is a type of 4 cores with one on-demand and one spot offering; a price of 0 means none.
func kind(name string, onDemand, spot float64) *catalog.InstanceType {
	it := &catalog.InstanceType{Name: name, Capacity: resources.Vector{MilliCPU: 4000, Memory: 16 << 30, Pods: 58},
		Requirements: requirement.NewSet(in(corev1.LabelInstanceTypeStable, name), in(corev1.LabelArchStable, "amd64"),
			in(corev1.LabelTopologyZone, zone), in(karpv1.LabelCapacityType, "on-demand", "spot"))}
	for capacityType, price := range map[string]float64{"on-demand": onDemand, "spot": spot} {
		if price > 0 {
			it.Offerings = append(it.Offerings, catalog.Offering{Zone: zone, CapacityType: capacityType, Price: price, Available: true,
				Requirements: requirement.NewSet(in(corev1.LabelTopologyZone, zone), in(karpv1.LabelCapacityType, capacityType))})
		}
	}
	return it
}

func gpu(name string, onDemand float64) *catalog.InstanceType {
	it := kind(name, onDemand, 0)
	it.Capacity = it.Capacity.With(ec2v1.ResourceNVIDIAGPU, 1)
	return it
}

var images = image.NewMatcher([]ec2v1.AMI{{ID: "ami-1", Requirements: []corev1.NodeSelectorRequirement{
	{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}}})

func names(c fleet.Choice) []string {
	var out []string
	for _, t := range c.Types {
		out = append(out, t.Name)
	}
	return out
}

func TestChoose(t *testing.T) {
	t.Parallel()
	both := in(karpv1.LabelCapacityType, "on-demand", "spot")
	many := make([]*catalog.InstanceType, 200)
	for i := range many {
		many[i] = kind(fmt.Sprintf("m%03d.large", i), float64(200-i), 0)
	}
	arm := kind("m6g.large", 0.01, 0)
	arm.Requirements[corev1.LabelArchStable] = in(corev1.LabelArchStable, "arm64")
	gone := kind("gone.large", 0.01, 0)
	gone.Offerings[0].Available = false
	tests := map[string]struct {
		types    []*catalog.InstanceType
		reqs     requirement.Set
		requests resources.Vector
		relaxed  bool
		want     []string
		wantKind string
		wantErr  string
	}{
		"cheapest first":                            {types: []*catalog.InstanceType{kind("b.large", 2, 0), kind("a.large", 1, 0)}, want: []string{"a.large", "b.large"}, wantKind: "on-demand"},
		"spot before on-demand":                     {types: []*catalog.InstanceType{kind("a.large", 1, 0.4)}, reqs: requirement.NewSet(both), want: []string{"a.large"}, wantKind: "spot"},
		"on-demand when spot is not allowed":        {types: []*catalog.InstanceType{kind("a.large", 1, 0.4)}, reqs: requirement.NewSet(in(karpv1.LabelCapacityType, "on-demand")), want: []string{"a.large"}, wantKind: "on-demand"},
		"IT-40 spot dearer than on-demand goes":     {types: []*catalog.InstanceType{kind("a.large", 1, 0.4), kind("b.large", 2, 1.5)}, reqs: requirement.NewSet(both), want: []string{"a.large"}, wantKind: "spot"},
		"IT-41 minValues keep it":                   {types: []*catalog.InstanceType{kind("a.large", 1, 0.4), kind("b.large", 2, 1.5)}, reqs: requirement.NewSet(both, in(corev1.LabelInstanceTypeStable, "a.large", "b.large").WithMinValues(2)), want: []string{"a.large", "b.large"}, wantKind: "spot"},
		"IT-42 GPU types go when others do":         {types: []*catalog.InstanceType{gpu("g.large", 0.5), kind("a.large", 1, 0)}, want: []string{"a.large"}, wantKind: "on-demand"},
		"IT-42 metal goes, too":                     {types: []*catalog.InstanceType{kind("a.metal", 0.5, 0), kind("a.large", 1, 0)}, want: []string{"a.large"}, wantKind: "on-demand"},
		"IT-43 GPU types stay when nothing else is": {types: []*catalog.InstanceType{gpu("g.large", 0.5)}, want: []string{"g.large"}, wantKind: "on-demand"},
		"IT-45 minValues beyond the 60":             {types: many, reqs: requirement.NewSet(requirement.New(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists).WithMinValues(70)), wantErr: "truncating instance types"},
		"types without an image go":                 {types: []*catalog.InstanceType{arm, kind("a.large", 1, 0)}, want: []string{"a.large"}, wantKind: "on-demand"},
		"what is out of stock goes":                 {types: []*catalog.InstanceType{gone, kind("a.large", 1, 0)}, want: []string{"a.large"}, wantKind: "on-demand"},
		"what is too small goes":                    {types: []*catalog.InstanceType{kind("a.large", 1, 0)}, requests: resources.Vector{MilliCPU: 4001}, wantErr: "all requested instance types were unavailable during launch"},
		"custom labels don't matter to types":       {types: []*catalog.InstanceType{kind("a.large", 1, 0)}, reqs: requirement.NewSet(in("team", "a")), want: []string{"a.large"}, wantKind: "on-demand"},
		"zones are respected":                       {types: []*catalog.InstanceType{kind("a.large", 1, 0)}, reqs: requirement.NewSet(in(corev1.LabelTopologyZone, "us-east-1b")), wantErr: "unavailable"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reqs := tc.reqs
			if reqs == nil {
				reqs = requirement.Set{}
			}
			got, err := fleet.Choose(tc.types, images, fleet.Wish{Requirements: reqs, Requests: tc.requests, Relaxed: tc.relaxed})
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, names(got))
			require.Equal(t, tc.wantKind, got.CapacityType)
			for _, it := range got.Types {
				for _, o := range it.Offerings {
					require.Equal(t, tc.wantKind, o.CapacityType)
				}
			}
		})
	}
	got, err := fleet.Choose(many, images, fleet.Wish{Requirements: requirement.Set{}})
	require.NoError(t, err)
	require.Len(t, got.Types, 60, "IT-44")
	require.Equal(t, "m199.large", got.Types[0].Name)
	_, err = fleet.Choose(many, images, fleet.Wish{Relaxed: true,
		Requirements: requirement.NewSet(requirement.New(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists).WithMinValues(70))})
	require.NoError(t, err, "relaxed minValues are not checked")
}

func TestWishOf(t *testing.T) {
	t.Parallel()
	w := fleet.WishOf(&karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{Resources: karpv1.ResourceRequirements{Requests: corev1.ResourceList{
		"cpu": resource.MustParse("1"), ec2v1.ResourceEFA: resource.MustParse("1"), ec2v1.ResourceNitroSandbox: resource.MustParse("1")}}}})
	require.True(t, w.EFA)
	require.True(t, w.Enclaves)
	require.Zero(t, w.Requests.Get(ec2v1.ResourceNitroSandbox), "no type has it as capacity")
	require.True(t, w.Requirements.Get(ec2v1.LabelNitroSandbox).Has("true"))
}
