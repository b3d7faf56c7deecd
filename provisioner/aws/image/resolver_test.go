package image_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
)

func resolver(t *testing.T, kubernetes string, change func(*ec2sim.Options)) (*ec2sim.Server, *clocktesting.FakeClock, *image.Resolver) {
	t.Helper()
	server, clock, cfg := newSim(t, change)
	return server, clock, image.NewResolver(ec2.NewFromConfig(cfg), ssm.NewFromConfig(cfg), clock, kubernetes)
}

func classWith(terms ...ec2v1.AMISelectorTerm) *ec2v1.EC2NodeClass {
	return &ec2v1.EC2NodeClass{Spec: ec2v1.EC2NodeClassSpec{AMISelectorTerms: terms}}
}

func alias(text string) *ec2v1.EC2NodeClass { return classWith(ec2v1.AMISelectorTerm{Alias: text}) }

func ids(amis []ec2v1.AMI) []string {
	var out []string
	for _, a := range amis {
		out = append(out, a.ID)
	}
	return out
}

func TestLA01And02And05AL2023(t *testing.T) {
	t.Parallel()
	server, _, r := resolver(t, "1.32", nil)
	amis, err := r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err)
	require.Len(t, amis, 5)
	require.Equal(t, 5, server.CallCount("GetParameter"), "one for each variant; arm64 has no neuron")
	require.Equal(t, 1, server.CallCount("DescribeImages"))
	for _, a := range amis {
		require.NotEmpty(t, a.Name)
		require.Equal(t, corev1.LabelArchStable, a.Requirements[0].Key, "shortest key first")
	}
	_, err = r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err)
	require.Equal(t, 5, server.CallCount("GetParameter"), "parameters are kept")

	server, _, r = resolver(t, "1.32", nil)
	server.FailNext("GetParameter", "InternalServerError", 1)
	amis, err = r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err, "LA-05: one path that fails does not matter")
	require.Len(t, amis, 4)
	server.FailNext("GetParameter", "InternalServerError", -1)
	_, err = r.Resolve(t.Context(), alias("al2023@v20250101"))
	require.ErrorContains(t, err, "failed to discover any AMIs for alias")
}

func TestLA03And04Variants(t *testing.T) {
	t.Parallel()
	server, _, r := resolver(t, "1.32", nil)
	_, err := r.Resolve(t.Context(), alias("bottlerocket@v1.40.0"))
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(server.Calls(), func(c ec2sim.Call) bool {
		return c.Action == "GetParameter" && string(c.Body) == `{"Name":"/aws/service/bottlerocket/aws-k8s-1.32/x86_64/1.40.0/image_id"}`
	}), "LA-03: without the v")

	amis, err := r.Resolve(t.Context(), alias("al2@latest"))
	require.NoError(t, err)
	require.Len(t, amis, 4)
	count := map[string]int{}
	for _, id := range ids(amis) {
		count[id]++
	}
	require.Len(t, count, 3, "LA-04: the GPU image is there twice")
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	of := func(text string) class.Alias { a, _ := class.AliasOf(alias(text)); return a }
	require.Empty(t, image.Unsupported(of("al2@latest"), "1.32"))
	require.Contains(t, image.Unsupported(of("al2@latest"), "1.33"), "1.32", "AP-36 names the last version")
	require.NotEmpty(t, image.Unsupported(of("windows2025@latest"), "1.34"), "AP-37")
	require.Empty(t, image.Unsupported(of("windows2025@latest"), "1.35"))
	require.Empty(t, image.Unsupported(of("al2023@latest"), "1.37"))
}

func TestLA06And07OwnersAndDeprecation(t *testing.T) {
	t.Parallel()
	server, clock, r := resolver(t, "1.37", nil)
	old, young := clock.Now().AddDate(0, -2, 0), clock.Now().AddDate(0, -1, 0)
	server.PutImage(ec2sim.Image{ID: "ami-00000000000000001", Name: "mine-1", Arch: "x86_64", Created: old, Tags: map[string]string{"team": "a"}})
	server.PutImage(ec2sim.Image{ID: "ami-00000000000000002", Name: "mine-2", Arch: "x86_64", Created: young, Deprecated: clock.Now().Add(-time.Hour)})
	server.PutImage(ec2sim.Image{ID: "ami-00000000000000003", Name: "mine-3", Arch: "x86_64", Created: young, OwnerID: "999999999999"})
	amis, err := r.Resolve(t.Context(), classWith(ec2v1.AMISelectorTerm{Name: "mine-*"}))
	require.NoError(t, err)
	require.Equal(t, []string{"ami-00000000000000001"}, ids(amis), "LA-07: the newest one is deprecated")
	form := server.Calls()[len(server.Calls())-1].Form()
	require.Equal(t, []string{"self", "amazon"}, []string{form.Get("Owner.1"), form.Get("Owner.2")}, "LA-06")

	amis, err = r.Resolve(t.Context(), classWith(ec2v1.AMISelectorTerm{Tags: map[string]string{"team": "a"}}))
	require.NoError(t, err)
	require.Equal(t, []string{"ami-00000000000000001"}, ids(amis))
	require.Empty(t, server.Calls()[len(server.Calls())-1].Form().Get("Owner.1"), "tags alone ask for every owner")

	amis, err = r.Resolve(t.Context(), classWith(ec2v1.AMISelectorTerm{ID: "ami-00000000000000002"}))
	require.NoError(t, err)
	require.True(t, amis[0].Deprecated, "a deprecated one is better than none")
}

func TestSSMParameterTerms(t *testing.T) {
	t.Parallel()
	server, clock, r := resolver(t, "1.37", nil)
	server.PutImage(ec2sim.Image{ID: "ami-00000000000000001", Name: "mine", Arch: "arm64", Created: clock.Now()})
	server.SetParameter("/mine", "ami-00000000000000001")
	server.SetParameter("/text", "hello")
	amis, err := r.Resolve(t.Context(), classWith(ec2v1.AMISelectorTerm{SSMParameter: "/mine"}, ec2v1.AMISelectorTerm{SSMParameter: "/missing"}, ec2v1.AMISelectorTerm{SSMParameter: "/text"}))
	require.NoError(t, err, "WI-24")
	require.Equal(t, []string{"ami-00000000000000001"}, ids(amis))
	server.FailNext("GetParameter", "InternalServerError", 1)
	_, err = r.Resolve(t.Context(), classWith(ec2v1.AMISelectorTerm{SSMParameter: "/other"}))
	require.Error(t, err, "SSM that does not answer is not the same as no parameter")
}

func TestLA08DeprecatedLatestIsReadAgain(t *testing.T) {
	t.Parallel()
	server, clock, r := resolver(t, "1.37", nil)
	amis, err := r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err)
	require.NoError(t, r.DropDeprecated(t.Context()))
	server.ResetCalls()
	_, err = r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err)
	require.Zero(t, server.CallCount("GetParameter"))
	img, ok := server.Image(amis[0].ID)
	require.True(t, ok)
	img.Deprecated = clock.Now()
	server.PutImage(img)
	require.NoError(t, r.DropDeprecated(t.Context()))
	_, err = r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err)
	require.Equal(t, 1, server.CallCount("GetParameter"))
}

func TestMatcherTakesTheFirstThatFits(t *testing.T) {
	t.Parallel()
	_, _, r := resolver(t, "1.37", nil)
	amis, err := r.Resolve(t.Context(), alias("al2023@latest"))
	require.NoError(t, err)
	m := image.NewMatcher(amis)
	in := func(key, value string) requirement.Requirement {
		return requirement.New(key, corev1.NodeSelectorOpIn, value)
	}
	none := func(key string) requirement.Requirement {
		return requirement.New(key, corev1.NodeSelectorOpDoesNotExist)
	}
	for want, it := range map[string]*catalog.InstanceType{
		"x86_64-standard": {Requirements: requirement.NewSet(in(corev1.LabelArchStable, "amd64"), none(ec2v1.LabelInstanceGPUCount), none(ec2v1.LabelInstanceAcceleratorCount))},
		"arm64-standard":  {Requirements: requirement.NewSet(in(corev1.LabelArchStable, "arm64"), none(ec2v1.LabelInstanceGPUCount), none(ec2v1.LabelInstanceAcceleratorCount))},
		"x86_64-nvidia":   {Requirements: requirement.NewSet(in(corev1.LabelArchStable, "amd64"), in(ec2v1.LabelInstanceGPUCount, "1"), none(ec2v1.LabelInstanceAcceleratorCount))},
		"x86_64-neuron":   {Requirements: requirement.NewSet(in(corev1.LabelArchStable, "amd64"), none(ec2v1.LabelInstanceGPUCount), in(ec2v1.LabelInstanceAcceleratorCount, "1"))},
	} {
		got, ok := m.For(it)
		require.True(t, ok, want)
		require.Contains(t, got.Name, want)
	}
	_, ok := m.For(&catalog.InstanceType{Requirements: requirement.NewSet(in(corev1.LabelArchStable, "riscv"))})
	require.False(t, ok)
}
