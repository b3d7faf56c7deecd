package network_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/network"
)

// api answers every query with the same subnets and keeps the filters.
type api struct {
	subnets []ec2types.Subnet
	filters [][]ec2types.Filter
}

func (a *api) DescribeSubnets(_ context.Context, in *ec2.DescribeSubnetsInput, _ ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error) {
	a.filters = append(a.filters, in.Filters)
	return &ec2.DescribeSubnetsOutput{Subnets: a.subnets}, nil
}

func subnet(id, zone string, free int32) ec2types.Subnet {
	return ec2types.Subnet{SubnetId: aws.String(id), AvailabilityZone: aws.String(zone), AvailabilityZoneId: aws.String(zone + "-id"), AvailableIpAddressCount: aws.Int32(free)}
}

func need(n int64) func(string) int64 { return func(string) int64 { return n } }

func resolved(t *testing.T, a *api) (*network.Subnets, []ec2v1.Subnet) {
	t.Helper()
	s := network.NewSubnets(a, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), time.Minute)
	found, err := s.Resolve(t.Context(), []ec2v1.SubnetSelectorTerm{{ID: "subnet-1"}})
	require.NoError(t, err)
	return s, found
}

func TestIT48LaunchesInFlightTakeAddresses(t *testing.T) {
	t.Parallel()
	s, found := resolved(t, &api{subnets: []ec2types.Subnet{subnet("a2", "a", 90), subnet("a1", "a", 100)}})
	require.Equal(t, "a1", found[0].ID, "most free addresses first")
	require.Equal(t, "a1", s.Choose(found, need(29)).ByZone["a"])
	require.Equal(t, "a2", s.Choose(found, need(29)).ByZone["a"])
	require.Equal(t, "a1", s.Choose(found, need(29)).ByZone["a"])
}

func TestIT49UnusedZonesGetTheirAddressesBack(t *testing.T) {
	t.Parallel()
	a := &api{subnets: []ec2types.Subnet{subnet("a1", "a", 100), subnet("a2", "a", 90), subnet("b1", "b", 50)}}
	s, found := resolved(t, a)
	plan := s.Choose(found, need(29))
	s.Settle(plan, map[string]bool{"b1": true})
	require.Equal(t, "a1", s.Choose(found, need(29)).ByZone["a"])

	// EC2 has counted in between: nothing may be given back twice.
	plan = s.Choose(found, need(29))
	a.subnets[0].AvailableIpAddressCount = aws.Int32(80)
	found, err := s.Resolve(t.Context(), []ec2v1.SubnetSelectorTerm{{ID: "subnet-1"}})
	require.NoError(t, err)
	s.Settle(plan, nil)
	require.Equal(t, "a2", s.Choose(found, need(29)).ByZone["a"])
}

func TestIT50FullSubnetsComeLast(t *testing.T) {
	t.Parallel()
	s, found := resolved(t, &api{subnets: []ec2types.Subnet{subnet("a1", "a", 100), subnet("a2", "a", 90)}})
	s.Full("a1")
	require.Equal(t, "a2", s.Choose(found, need(1)).ByZone["a"])
}

func TestEqualSubnetsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := network.NewSubnets(&api{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), time.Minute)
	list := []ec2v1.Subnet{{ID: "x", Zone: "a"}, {ID: "y", Zone: "a"}}
	require.Equal(t, "x", s.Choose(list, need(5)).ByZone["a"], "unknown subnets count as 0 free")
}

func TestAP12QueriesOfTerms(t *testing.T) {
	t.Parallel()
	a := &api{}
	s := network.NewSubnets(a, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), time.Minute)
	_, err := s.Resolve(t.Context(), []ec2v1.SubnetSelectorTerm{
		{ID: "subnet-1", Tags: map[string]string{"lost": "x"}}, {Tags: map[string]string{"k": "v", "present": "*"}}, {ID: "subnet-2"}})
	require.NoError(t, err)
	require.Equal(t, [][]ec2types.Filter{
		{network.Filter("subnet-id", "subnet-1", "subnet-2")},
		{network.Filter("tag:k", "v"), network.Filter("tag-key", "present")},
	}, a.filters)
}
