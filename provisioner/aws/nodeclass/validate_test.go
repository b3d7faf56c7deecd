package nodeclass

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

// Free addresses change all the time, and with them the order of subnets: no reason to ask EC2 again.
func TestVerdictKey(t *testing.T) {
	t.Parallel()
	sample := func(change func(*ec2v1.EC2NodeClass)) uint64 {
		nc := &ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		nc.Status.Subnets = []ec2v1.Subnet{{ID: "a"}, {ID: "b"}}
		change(nc)
		key, err := verdictKey(nc)
		require.NoError(t, err)
		return key
	}
	base := sample(func(*ec2v1.EC2NodeClass) {})
	require.Equal(t, base, sample(func(nc *ec2v1.EC2NodeClass) { nc.Status.Subnets = []ec2v1.Subnet{{ID: "b"}, {ID: "a"}} }))
	for what, change := range map[string]func(*ec2v1.EC2NodeClass){
		"subnets": func(nc *ec2v1.EC2NodeClass) { nc.Status.Subnets = nc.Status.Subnets[:1] },
		"images":  func(nc *ec2v1.EC2NodeClass) { nc.Status.AMIs = []ec2v1.AMI{{ID: "ami-1"}} },
		"profile": func(nc *ec2v1.EC2NodeClass) { nc.Status.InstanceProfile = "p" },
		"spec":    func(nc *ec2v1.EC2NodeClass) { nc.Spec.Role = "r" },
	} {
		require.NotEqual(t, base, sample(change), what)
	}
}

func TestAbbreviate(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a, b", abbreviate([]string{"a", "b"}))
	require.Equal(t, "a, b, c, d, e and 2 other(s)", abbreviate([]string{"a", "b", "c", "d", "e", "f", "g"}))
}
