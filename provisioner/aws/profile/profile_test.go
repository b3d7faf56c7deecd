package profile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/profile"
)

const role = "KarpenterNodeRole-berth"

func sample() *ec2v1.EC2NodeClass {
	return &ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u1"}, Spec: ec2v1.EC2NodeClassSpec{Role: role}}
}

func TestLA09And12ProfileIsMadeOnce(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	m := profile.NewManager(iam.NewFromConfig(cfg), clock, "us-east-1", "berth")
	nc := sample()
	name, err := m.Ensure(t.Context(), nc, map[string]string{"k": "v"})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(name, "berth_"))
	made := server.Profiles()
	require.Len(t, made, 1)
	require.Equal(t, "/karpenter/us-east-1/berth/u1/", made[0].Path)
	require.Equal(t, role, made[0].Role)
	require.Equal(t, map[string]string{"k": "v", "topology.kubernetes.io/region": "us-east-1"}, made[0].Tags)

	again, err := m.Ensure(t.Context(), nc, nil)
	require.NoError(t, err)
	require.Equal(t, name, again, "LA-12: the status write was lost")
	nc.Status.InstanceProfile = name
	clock.Step(time.Hour)
	again, err = m.Ensure(t.Context(), nc, nil)
	require.NoError(t, err)
	require.Equal(t, name, again)
	nc.Spec.Role = "some/path/" + role
	again, err = m.Ensure(t.Context(), nc, nil)
	require.NoError(t, err)
	require.Equal(t, name, again, "a path before the role's name changes nothing")
	require.Equal(t, 1, server.CallCount("CreateInstanceProfile"))
}

func TestLA10ChangedRoleKeepsTheOldProfileForAnHour(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	server.AddRole("other")
	m := profile.NewManager(iam.NewFromConfig(cfg), clock, "us-east-1", "berth")
	nc := sample()
	first, err := m.Ensure(t.Context(), nc, nil)
	require.NoError(t, err)
	nc.Status.InstanceProfile, nc.Spec.Role = first, "other"
	second, err := m.Ensure(t.Context(), nc, nil)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	unused := func(string) bool { return false }
	require.NoError(t, m.Collect(t.Context(), unused))
	require.Len(t, server.Profiles(), 2)
	clock.Step(61 * time.Minute)
	require.NoError(t, m.Collect(t.Context(), func(name string) bool { return name == first }))
	require.Len(t, server.Profiles(), 1, "a claim was launched with the first one")
	require.Equal(t, first, server.Profiles()[0].Name)
	require.NoError(t, m.Collect(t.Context(), unused))
	require.Empty(t, server.Profiles(), "LA-13: collected once nothing uses it")
}

func TestLA11WI30RoleThatDoesNotExist(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	m := profile.NewManager(iam.NewFromConfig(cfg), clock, "us-east-1", "berth")
	nc := sample()
	nc.Spec.Role = "nope"
	for range 3 {
		_, err := m.Ensure(t.Context(), nc, nil)
		require.ErrorContains(t, err, "nope")
	}
	require.Empty(t, server.Profiles())
	require.Equal(t, 1, server.CallCount("CreateInstanceProfile"), "no storm")
	server.AddRole("nope")
	clock.Step(61 * time.Second)
	_, err := m.Ensure(t.Context(), nc, nil)
	require.NoError(t, err)
}

func TestAP41DeleteAll(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	m := profile.NewManager(iam.NewFromConfig(cfg), clock, "us-east-1", "berth")
	nc, other := sample(), sample()
	other.UID = "u2"
	for _, c := range []*ec2v1.EC2NodeClass{nc, other} {
		_, err := m.Ensure(t.Context(), c, nil)
		require.NoError(t, err)
	}
	require.NoError(t, m.DeleteAll(t.Context(), nc))
	require.Len(t, server.Profiles(), 1)
	require.NoError(t, m.DeleteAll(t.Context(), nc), "again is fine")
}
