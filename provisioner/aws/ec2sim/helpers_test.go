package ec2sim_test

import (
	"context"
	"encoding/base64"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sim is a server with a fake clock and clients of the real SDK.
type sim struct {
	*ec2sim.Server
	t     *testing.T
	clock *clocktesting.FakeClock
	url   string
	ec2   *ec2.Client
	iam   *iam.Client
}

var start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func newSim(t *testing.T, change func(*ec2sim.Options)) *sim {
	t.Helper()
	clock := clocktesting.NewFakeClock(start)
	opts := ec2sim.Options{Clock: clock, Seed: 1}
	if change != nil {
		change(&opts)
	}
	server, err := ec2sim.New(opts)
	require.NoError(t, err)
	web := httptest.NewServer(server)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		server.Close()
	})
	s := &sim{Server: server, t: t, clock: clock, url: web.URL}
	cfg := s.config(3)
	s.ec2, s.iam = ec2.NewFromConfig(cfg), iam.NewFromConfig(cfg)
	return s
}

func (s *sim) config(attempts int) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(s.url), RetryMaxAttempts: attempts,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIATEST", SecretAccessKey: "secret"}, nil
		}),
	}
}

func requireCode(t *testing.T, err error, code string) smithy.APIError {
	t.Helper()
	var api smithy.APIError
	require.ErrorAs(t, err, &api)
	require.Equal(t, code, api.ErrorCode(), err)
	return api
}

const (
	zoneA, zoneB, zoneC = "us-east-1a", "us-east-1b", "us-east-1c"
	al2023              = "/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/standard/recommended/image_id"
)

func (s *sim) subnetIn(zone string) string {
	s.t.Helper()
	out, err := s.ec2.DescribeSubnets(s.t.Context(), &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{{Name: aws.String("availability-zone"), Values: []string{zone}}}})
	require.NoError(s.t, err)
	require.Len(s.t, out.Subnets, 1)
	return *out.Subnets[0].SubnetId
}

// image returns the id of the newest standard AL2023 image.
func (s *sim) image() string {
	s.t.Helper()
	out, err := s.ec2.DescribeImages(s.t.Context(), &ec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: []ec2types.Filter{
		{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-1.37-v20261101"}}}})
	require.NoError(s.t, err)
	require.Len(s.t, out.Images, 1)
	return *out.Images[0].ImageId
}

func (s *sim) template(name, userData string, change func(*ec2types.RequestLaunchTemplateData)) {
	s.t.Helper()
	data := &ec2types.RequestLaunchTemplateData{
		ImageId: aws.String(s.image()), UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
	}
	if change != nil {
		change(data)
	}
	_, err := s.ec2.CreateLaunchTemplate(s.t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(name), LaunchTemplateData: data,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: "launch-template", Tags: tags("eks:eks-cluster-name", "berth")}},
	})
	require.NoError(s.t, err)
}

func tags(pairs ...string) []ec2types.Tag {
	var list []ec2types.Tag
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, ec2types.Tag{Key: aws.String(pairs[i]), Value: aws.String(pairs[i+1])})
	}
	return list
}

type pool struct{ instanceType, zone string }

// fleet makes a request for any of the pools, in the order of preference.
func (s *sim) fleet(capacityType ec2types.DefaultTargetCapacityType, total int32, pools ...pool) *ec2.CreateFleetInput {
	s.t.Helper()
	subnets := map[string]string{}
	config := ec2types.FleetLaunchTemplateConfigRequest{LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
		LaunchTemplateName: aws.String("node"), Version: aws.String("$Latest")}}
	for i, p := range pools {
		if subnets[p.zone] == "" {
			subnets[p.zone] = s.subnetIn(p.zone)
		}
		config.Overrides = append(config.Overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(p.instanceType), SubnetId: aws.String(subnets[p.zone]),
			AvailabilityZone: aws.String(p.zone), Priority: aws.Float64(float64(i))})
	}
	in := &ec2.CreateFleetInput{
		Type:                        ec2types.FleetTypeInstant,
		LaunchTemplateConfigs:       []ec2types.FleetLaunchTemplateConfigRequest{config},
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: aws.Int32(total), DefaultTargetCapacityType: capacityType},
		TagSpecifications: []ec2types.TagSpecification{
			{ResourceType: "instance", Tags: tags("karpenter.sh/nodepool", "default", "eks:eks-cluster-name", "berth")},
			{ResourceType: "fleet", Tags: tags("karpenter.sh/nodepool", "default")},
		},
	}
	if capacityType == ec2types.DefaultTargetCapacityTypeSpot {
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
	} else {
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice}
	}
	return in
}

func ids(out *ec2.CreateFleetOutput) []string {
	var list []string
	for _, i := range out.Instances {
		list = append(list, i.InstanceIds...)
	}
	return list
}

// launched makes n on-demand m5.large instances.
func (s *sim) launched(n int32) []string {
	s.t.Helper()
	if _, err := s.ec2.DescribeLaunchTemplates(s.t.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"node"}}); err != nil {
		s.template("node", "hello", nil)
	}
	out, err := s.ec2.CreateFleet(s.t.Context(), s.fleet("on-demand", n, pool{"m5.large", zoneA}))
	require.NoError(s.t, err)
	list := ids(out)
	require.Len(s.t, list, int(n))
	return list
}

func (s *sim) describe(list ...string) []ec2types.Instance {
	s.t.Helper()
	out, err := s.ec2.DescribeInstances(s.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: list})
	require.NoError(s.t, err)
	var found []ec2types.Instance
	for _, r := range out.Reservations {
		found = append(found, r.Instances...)
	}
	return found
}
