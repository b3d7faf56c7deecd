package class_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
)

func sample() *ec2v1.EC2NodeClass {
	disk := func(name, size string) ec2v1.BlockDeviceMapping {
		return ec2v1.BlockDeviceMapping{DeviceName: &name, EBS: &ec2v1.BlockDevice{VolumeSize: new(resource.MustParse(size))}}
	}
	return &ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: ec2v1.EC2NodeClassSpec{
		AMISelectorTerms: []ec2v1.AMISelectorTerm{{Alias: "al2023@latest"}}, Role: "r", Tags: map[string]string{"a": "b"},
		BlockDeviceMappings: []ec2v1.BlockDeviceMapping{disk("/dev/xvda", "20Gi"), disk("/dev/xvdb", "30Gi")},
		Kubelet:             &runtime.RawExtension{Raw: []byte(`{"maxPods":5,"cpuCFSQuota":false}`)},
	}}
}

func TestHash(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*ec2v1.EC2NodeClass)
		drifts bool
	}{
		"AP-42 reordered mappings": {func(c *ec2v1.EC2NodeClass) { m := c.Spec.BlockDeviceMappings; m[0], m[1] = m[1], m[0] }, false},
		"AP-42 other group selectors": {func(c *ec2v1.EC2NodeClass) {
			c.Spec.SecurityGroupSelectorTerms = []ec2v1.SecurityGroupSelectorTerm{{ID: "sg-1"}}
		}, false},
		"AP-43 the family of the alias": {func(c *ec2v1.EC2NodeClass) { c.Spec.AMIFamily = new("AL2023") }, false},
		"AP-05 another family":          {func(c *ec2v1.EC2NodeClass) { c.Spec.AMIFamily = new("Custom") }, true},
		"AP-44 tags":                    {func(c *ec2v1.EC2NodeClass) { c.Spec.Tags["a"] = "c" }, true},
		"AP-45 ipPrefixCount":           {func(c *ec2v1.EC2NodeClass) { c.Spec.IPPrefixCount = new(int32(4)) }, false},
		"another image of the family":   {func(c *ec2v1.EC2NodeClass) { c.Spec.AMISelectorTerms[0].Alias = "al2023@v20250101" }, false},
		"user data":                     {func(c *ec2v1.EC2NodeClass) { c.Spec.UserData = new("x") }, true},
		"role":                          {func(c *ec2v1.EC2NodeClass) { c.Spec.Role = "other" }, true},
		"a volume's size": {func(c *ec2v1.EC2NodeClass) {
			c.Spec.BlockDeviceMappings[0].EBS.VolumeSize = new(resource.MustParse("21Gi"))
		}, true},
		"an explicit default":            {func(c *ec2v1.EC2NodeClass) { c.Spec.DetailedMonitoring = new(false) }, false},
		"kubelet: order of keys":         {func(c *ec2v1.EC2NodeClass) { c.Spec.Kubelet.Raw = []byte(`{ "cpuCFSQuota": false, "maxPods": 5 }`) }, false},
		"kubelet: a false that is unset": {func(c *ec2v1.EC2NodeClass) { c.Spec.Kubelet.Raw = []byte(`{"maxPods":5}`) }, true},
	}
	base, err := class.Hash(sample(), "ca")
	require.NoError(t, err)
	require.Regexp(t, `^[0-9]+$`, base)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample()
			tc.change(c)
			got, err := class.Hash(c, "ca")
			require.NoError(t, err)
			require.Equal(t, tc.drifts, got != base)
		})
	}
	rotated, err := class.Hash(sample(), "other ca")
	require.NoError(t, err)
	require.NotEqual(t, base, rotated, "another CA bundle replaces every node")
	// The value is part of the stored data: it must not change with the code.
	require.Equal(t, "15250099237211698000", base)
}

func TestFamily(t *testing.T) {
	t.Parallel()
	for family, change := range map[string]func(*ec2v1.EC2NodeClass){
		"AL2023":       func(*ec2v1.EC2NodeClass) {},
		"Bottlerocket": func(c *ec2v1.EC2NodeClass) { c.Spec.AMISelectorTerms[0].Alias = "bottlerocket@1.20.4" },
		"Custom":       func(c *ec2v1.EC2NodeClass) { c.Spec.AMIFamily = new("Custom") },
		"AL2": func(c *ec2v1.EC2NodeClass) {
			c.Spec.AMIFamily, c.Spec.AMISelectorTerms = new("AL2"), []ec2v1.AMISelectorTerm{{ID: "ami-1"}}
		},
	} {
		c := sample()
		change(c)
		require.Equal(t, family, class.Family(c))
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	c := sample()
	require.Equal(t, map[string]string{"a": "b", "kubernetes.io/cluster/x": "owned", "eks:eks-cluster-name": "x",
		"karpenter.k8s.aws/ec2nodeclass": "c", "karpenter.sh/nodepool": "p"}, class.LaunchTags(c, "x", "p"))
	require.Empty(t, class.RestrictedTag(c))
	c.Spec.Tags = map[string]string{"kubernetes.io/cluster/x": "y"}
	require.Equal(t, "kubernetes.io/cluster/x", class.RestrictedTag(c))
}
