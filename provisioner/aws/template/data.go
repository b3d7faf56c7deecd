package template

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/api/resource"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
)

// Spec is everything that a template depends on.
type Spec struct {
	Class        *ec2v1.EC2NodeClass
	Region       string
	ImageID      string
	UserData     string // plain
	CapacityType string
	Tenancy      string // default or dedicated
	// EFAs is how many generated EFA interfaces the machine gets, 0 for a plain one.
	EFAs int64
	// Enclaves switches Nitro enclaves on.
	Enclaves bool
	IPv6     bool              // the cluster's addresses are IPv6
	Tags     map[string]string // see class.LaunchTags
}

// input is the request that makes the template. Equal specs give equal requests, and the name follows
// from the request's content.
func (s *Spec) input() (*ec2.CreateLaunchTemplateInput, error) {
	in := &ec2.CreateLaunchTemplateInput{LaunchTemplateData: s.data(), TagSpecifications: []ec2types.TagSpecification{
		{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: Tags(s.Tags)},
	}}
	encoded, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode launch template of class %s: %w", s.Class.Name, err)
	}
	h := fnv.New64a()
	_, _ = h.Write(encoded) // a hash never fails to write
	in.LaunchTemplateName = aws.String("karpenter.k8s.aws/" + strconv.FormatUint(h.Sum64(), 10))
	return in, nil
}

// Tags renders tags, sorted by key.
func Tags(tags map[string]string) []ec2types.Tag {
	out := make([]ec2types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

func (s *Spec) data() *ec2types.RequestLaunchTemplateData {
	spec := &s.Class.Spec
	data := &ec2types.RequestLaunchTemplateData{
		ImageId:             aws.String(s.ImageID),
		IamInstanceProfile:  &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String(s.Class.Status.InstanceProfile)},
		Monitoring:          &ec2types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(aws.ToBool(spec.DetailedMonitoring))},
		EnclaveOptions:      &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(s.Enclaves)},
		BlockDeviceMappings: blockDevices(s.Class),
		MetadataOptions:     s.metadata(),
		NetworkInterfaces:   s.interfaces(),
		Placement:           &ec2types.LaunchTemplatePlacementRequest{Tenancy: ec2types.Tenancy(s.Tenancy)},
		// None keeps on-demand instances from sliding into open reservations that were not selected.
		CapacityReservationSpecification: &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceNone},
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: Tags(s.Tags)},
		},
	}
	if s.UserData != "" {
		data.UserData = aws.String(base64.StdEncoding.EncodeToString([]byte(s.UserData)))
	}
	if s.CapacityType == karpv1.CapacityTypeSpot {
		data.TagSpecifications = append(data.TagSpecifications, ec2types.LaunchTemplateTagSpecificationRequest{
			ResourceType: ec2types.ResourceTypeSpotInstancesRequest, Tags: Tags(s.Tags)})
	}
	if cpu := spec.CPUOptions; cpu != nil && cpu.NestedVirtualization != nil {
		data.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{
			NestedVirtualization: ec2types.NestedVirtualizationSpecification(*cpu.NestedVirtualization)}
	}
	return data
}

// noIPv6Metadata are the regions whose EC2 does not know the option.
var noIPv6Metadata = []string{"us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"}

func (s *Spec) metadata() *ec2types.LaunchTemplateInstanceMetadataOptionsRequest {
	out := &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
		InstanceMetadataTags: ec2types.LaunchTemplateInstanceMetadataTagsStateDisabled, // slashes in keys are not legal there
		HttpEndpoint:         ec2types.LaunchTemplateInstanceMetadataEndpointStateDisabled,
		HttpProtocolIpv6:     ec2types.LaunchTemplateInstanceMetadataProtocolIpv6Disabled,
		HttpTokens:           ec2types.LaunchTemplateHttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(2),
	}
	if s.IPv6 {
		out.HttpProtocolIpv6 = ec2types.LaunchTemplateInstanceMetadataProtocolIpv6Enabled
	}
	if m := s.Class.Spec.MetadataOptions; m != nil {
		out.HttpEndpoint = ec2types.LaunchTemplateInstanceMetadataEndpointState(aws.ToString(m.HTTPEndpoint))
		out.HttpProtocolIpv6 = ec2types.LaunchTemplateInstanceMetadataProtocolIpv6(aws.ToString(m.HTTPProtocolIPv6))
		out.HttpTokens = ec2types.LaunchTemplateHttpTokensState(aws.ToString(m.HTTPTokens))
		out.HttpPutResponseHopLimit = int32Of(m.HTTPPutResponseHopLimit)
	}
	if slices.Contains(noIPv6Metadata, s.Region) {
		out.HttpProtocolIpv6 = ""
	}
	return out
}

func int32Of(n *int64) *int32 {
	if n == nil {
		return nil
	}
	return aws.Int32(int32(min(max(*n, 0), 1<<31-1)))
}

// set returns nil for zero, which counts as unset.
func set(n *int64) *int32 {
	if aws.ToInt64(n) == 0 {
		return nil
	}
	return int32Of(n)
}

func blockDevices(nc *ec2v1.EC2NodeClass) []ec2types.LaunchTemplateBlockDeviceMappingRequest {
	mappings := nc.Spec.BlockDeviceMappings
	if len(mappings) == 0 {
		mappings = defaultDevices(class.Family(nc))
	}
	var out []ec2types.LaunchTemplateBlockDeviceMappingRequest
	for _, m := range mappings {
		item := ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: m.DeviceName}
		if e := m.EBS; e != nil {
			item.Ebs = &ec2types.LaunchTemplateEbsBlockDeviceRequest{
				DeleteOnTermination: e.DeleteOnTermination, Encrypted: e.Encrypted, Iops: set(e.IOPS), Throughput: set(e.Throughput),
				KmsKeyId: e.KMSKeyID, SnapshotId: e.SnapshotID, VolumeInitializationRate: e.VolumeInitializationRate,
				VolumeType: ec2types.VolumeType(aws.ToString(e.VolumeType)),
			}
			if e.VolumeSize != nil {
				item.Ebs.VolumeSize = aws.Int32(int32(wholeGiB(e.VolumeSize)))
			}
		}
		out = append(out, item)
	}
	return out
}

func wholeGiB(size *resource.Quantity) int64 { return (size.Value() + 1<<30 - 1) >> 30 }

func defaultDevices(family string) []ec2v1.BlockDeviceMapping {
	disk := func(device, size string) ec2v1.BlockDeviceMapping {
		return ec2v1.BlockDeviceMapping{DeviceName: aws.String(device), EBS: &ec2v1.BlockDevice{
			VolumeSize: new(resource.MustParse(size)), VolumeType: aws.String("gp3"), Encrypted: aws.Bool(true)}}
	}
	switch {
	case family == ec2v1.AMIFamilyCustom:
		return nil
	case family == ec2v1.AMIFamilyBottlerocket:
		return []ec2v1.BlockDeviceMapping{disk("/dev/xvda", "4Gi"), disk("/dev/xvdb", "20Gi")}
	case class.IsWindows(family):
		return []ec2v1.BlockDeviceMapping{disk("/dev/sda1", "50Gi")}
	default:
		return []ec2v1.BlockDeviceMapping{disk("/dev/xvda", "20Gi")}
	}
}

type nic = ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest

func (s *Spec) interfaces() []nic {
	spec := &s.Class.Spec
	if len(spec.NetworkInterfaces) > 0 {
		out := make([]nic, 0, len(spec.NetworkInterfaces))
		for _, n := range spec.NetworkInterfaces {
			item := nic{NetworkCardIndex: aws.Int32(n.NetworkCardIndex), DeviceIndex: aws.Int32(n.DeviceIndex),
				InterfaceType: aws.String(string(n.InterfaceType)), Groups: s.groups()}
			if n.InterfaceType != ec2v1.NetworkInterfaceTypeEFAOnly {
				s.address(&item)
			}
			out = append(out, item)
		}
		return out
	}
	if s.EFAs == 0 {
		item := nic{DeviceIndex: aws.Int32(0), Groups: s.groups()}
		s.address(&item)
		return []nic{item}
	}
	out := make([]nic, 0, s.EFAs)
	for i := range int32(s.EFAs) { //nolint:gosec // an instance has few cards
		item := nic{NetworkCardIndex: aws.Int32(i), DeviceIndex: aws.Int32(min(i, 1)), InterfaceType: aws.String("efa"), Groups: s.groups()}
		s.address(&item)
		out = append(out, item)
	}
	return out
}

func (s *Spec) groups() []string {
	ids := make([]string, len(s.Class.Status.SecurityGroups))
	for i, g := range s.Class.Status.SecurityGroups {
		ids[i] = g.ID
	}
	return ids
}

// address sets what only interfaces with addresses have.
func (s *Spec) address(item *nic) {
	spec := &s.Class.Spec
	item.AssociatePublicIpAddress = spec.AssociatePublicIPAddress
	if s.IPv6 {
		item.PrimaryIpv6, item.Ipv6AddressCount = aws.Bool(true), aws.Int32(1)
		item.Ipv6PrefixCount = spec.IPPrefixCount
	} else {
		item.Ipv4PrefixCount = spec.IPPrefixCount
	}
	if t := spec.ConnectionTracking; t != nil {
		item.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
			TcpEstablishedTimeout: t.TCPEstablishedTimeout, UdpStreamTimeout: t.UDPStreamTimeout, UdpTimeout: t.UDPTimeout}
	}
}

// isOurs reports whether a template name was made by input.
func isOurs(name string) bool { return strings.HasPrefix(name, "karpenter.k8s.aws/") }
