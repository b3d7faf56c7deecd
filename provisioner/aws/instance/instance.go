package instance

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// Instance is a machine as EC2 tells it.
type Instance struct {
	ID, Type, Zone, ZoneID string
	ImageID, SubnetID      string
	SecurityGroupIDs       []string
	CapacityType           string // spot or on-demand
	Tenancy                string
	NodeName               string // private DNS name; empty while EC2 does not tell it
	State                  ec2types.InstanceStateName
	LaunchTime             time.Time
	Tags                   map[string]string
	EFAInterfaces          int
}

// FromEC2 converts an answer of DescribeInstances.
func FromEC2(i *ec2types.Instance) *Instance {
	out := &Instance{
		ID: aws.ToString(i.InstanceId), Type: string(i.InstanceType), ImageID: aws.ToString(i.ImageId),
		SubnetID: aws.ToString(i.SubnetId), NodeName: aws.ToString(i.PrivateDnsName), LaunchTime: aws.ToTime(i.LaunchTime),
		CapacityType: karpv1.CapacityTypeOnDemand, Tags: map[string]string{},
	}
	if aws.ToString(i.SpotInstanceRequestId) != "" {
		out.CapacityType = karpv1.CapacityTypeSpot
	}
	if i.State != nil {
		out.State = i.State.Name
	}
	if p := i.Placement; p != nil {
		out.Zone, out.ZoneID, out.Tenancy = aws.ToString(p.AvailabilityZone), aws.ToString(p.AvailabilityZoneId), string(p.Tenancy)
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroupIDs = append(out.SecurityGroupIDs, aws.ToString(g.GroupId))
	}
	for _, t := range i.Tags {
		out.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	for _, n := range i.NetworkInterfaces {
		if kind := aws.ToString(n.InterfaceType); kind == "efa" || kind == "efa-only" {
			out.EFAInterfaces++
		}
	}
	return out
}

// ProviderID is the id under which Kubernetes knows the machine.
func (i *Instance) ProviderID() string { return "aws:///" + i.Zone + "/" + i.ID }

// IsEnding reports whether the machine is on its way out.
func (i *Instance) IsEnding() bool {
	return i.State == ec2types.InstanceStateNameShuttingDown || i.State == ec2types.InstanceStateNameTerminated
}

// IDOf returns the instance ID in a provider ID such as aws:///us-east-1a/i-0123, "" when there is none.
func IDOf(providerID string) string {
	_, rest, ok := strings.Cut(providerID, ":///")
	if !ok {
		return ""
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return ""
	}
	return rest[i+1:]
}
