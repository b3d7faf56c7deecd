package ec2sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func TestWI08OneZoneWithoutCapacity(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	s.SetInsufficientCapacity("m5.large", zoneA, "", true)
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 1, pool{"m5.large", zoneA}, pool{"m5.large", zoneB}))
	require.NoError(t, err)
	require.Len(t, ids(out), 1)
	require.Equal(t, zoneB, *out.Instances[0].LaunchTemplateAndOverrides.Overrides.AvailabilityZone)
	require.Equal(t, "m5.large", string(out.Instances[0].InstanceType))
	require.EqualValues(t, "on-demand", out.Instances[0].Lifecycle)
	require.Len(t, out.Errors, 1)
	require.Equal(t, "InsufficientInstanceCapacity", *out.Errors[0].ErrorCode)
	require.Equal(t, zoneA, *out.Errors[0].LaunchTemplateAndOverrides.Overrides.AvailabilityZone)
}

func TestWI09NoCapacityAnywhere(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	s.SetInsufficientCapacity("", "", "", true)
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("spot", 2, pool{"m5.large", zoneA}, pool{"c5.large", zoneB}))
	require.NoError(t, err)
	require.Empty(t, out.Instances)
	require.Len(t, out.Errors, 2)
	for _, e := range out.Errors {
		o := e.LaunchTemplateAndOverrides.Overrides
		require.NotEmpty(t, o.InstanceType)
		require.NotEmpty(t, *o.SubnetId)
		require.EqualValues(t, "spot", e.Lifecycle)
	}
	s.SetInsufficientCapacity("", "", "", false)
	out, err = s.ec2.CreateFleet(t.Context(), s.fleet("spot", 2, pool{"m5.large", zoneA}, pool{"c5.large", zoneB}))
	require.NoError(t, err)
	require.Len(t, ids(out), 2)
}

func TestWI10UnknownTemplate(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.ec2.CreateFleet(t.Context(), s.fleet("spot", 1, pool{"m5.large", zoneA}))
	requireCode(t, err, "InvalidLaunchTemplateName.NotFoundException")
}

func TestWI11SeveralInstances(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	s.SetPoolDepth("m5.large", zoneA, ec2sim.OnDemand, 2)
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 3, pool{"m5.large", zoneA}, pool{"m5.2xlarge", zoneA}))
	require.NoError(t, err)
	require.Len(t, ids(out), 3)
	require.Len(t, out.Instances, 2, "one item per pool")
	require.Len(t, out.Instances[0].InstanceIds, 2, "the cheaper pool first, until it is dry")
	require.Len(t, out.Errors, 1)
	require.Len(t, s.Instances(), 3)
}

func TestPartialFill(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	s.SetPoolDepth("m5.large", zoneA, ec2sim.OnDemand, 2)
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 5, pool{"m5.large", zoneA}))
	require.NoError(t, err)
	require.Len(t, ids(out), 2)
	require.Equal(t, "InsufficientInstanceCapacity", *out.Errors[0].ErrorCode)

	_, err = s.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids(out)})
	require.NoError(t, err)
	out, err = s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 5, pool{"m5.large", zoneA}))
	require.NoError(t, err)
	require.Len(t, ids(out), 2, "terminated machines go back to the pool")
}

func TestWI12TagsAreVisible(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	id := s.launched(1)[0]
	found := s.describe(id)
	require.Len(t, found, 1)
	got := map[string]string{}
	for _, tag := range found[0].Tags {
		got[*tag.Key] = *tag.Value
	}
	require.Equal(t, "default", got["karpenter.sh/nodepool"])
	require.NotEmpty(t, got["aws:ec2:fleet-id"])

	_, err := s.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: tags("karpenter.sh/nodeclaim", "c1")})
	require.NoError(t, err)
	out, err := s.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000), Filters: []ec2types.Filter{
		{Name: aws.String("tag-key"), Values: []string{"karpenter.sh/nodepool"}},
		{Name: aws.String("tag-key"), Values: []string{"karpenter.sh/nodeclaim"}},
		{Name: aws.String("tag:eks:eks-cluster-name"), Values: []string{"berth"}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running"}},
	}})
	require.NoError(t, err)
	require.Len(t, out.Reservations, 1)

	_, err = s.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: tags("aws:x", "y")})
	requireCode(t, err, "InvalidParameterValue")
	_, err = s.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{"i-0123456789abcdef0"}, Tags: tags("a", "b")})
	requireCode(t, err, "InvalidInstanceID.NotFound")
}

func TestWI13DryRunFleetCreatesNothing(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	in := s.fleet("spot", 1, pool{"m5.large", zoneA})
	in.DryRun = aws.Bool(true)
	_, err := s.ec2.CreateFleet(t.Context(), in)
	requireCode(t, err, "DryRunOperation")
	require.Empty(t, s.Instances())
}

func (s *sim) dryRunInstances() error {
	_, err := s.ec2.RunInstances(s.t.Context(), &ec2.RunInstancesInput{DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: "m5.large", LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String("node"), Version: aws.String("$Latest")},
		NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: aws.String(s.subnetIn(zoneA))}}})
	return err
}

func TestWI14DryRunWithMissingProfile(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", func(d *ec2types.RequestLaunchTemplateData) {
		d.IamInstanceProfile = &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("gone")}
	})
	require.Contains(t, requireCode(t, s.dryRunInstances(), "InvalidParameterValue").ErrorMessage(), "Invalid IAM Instance Profile name")
}

func TestDryRunInstances(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	requireCode(t, s.dryRunInstances(), "DryRunOperation")
	s.SetInsufficientCapacity("", "", "", true)
	requireCode(t, s.dryRunInstances(), "DryRunOperation")
	require.Empty(t, s.Instances())
}

func TestWI15UserDataTooLong(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("exact", strings.Repeat("x", 16384), nil)
	encoded := strings.Repeat("eHh4", 5462) // 16386 bytes
	_, err := s.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("long"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{UserData: aws.String(encoded)}})
	require.Equal(t, "User data is limited to 16384 bytes", requireCode(t, err, "InvalidUserData.Malformed").ErrorMessage())
}

func TestWI16TemplateNameTaken(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	_, err := s.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("node"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{}})
	require.Error(t, err)
	_, err = s.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("node"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String("ami-0123456789abcdef0")}})
	requireCode(t, err, "InvalidLaunchTemplateName.AlreadyExistsException")
	out, err := s.ec2.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"node"}})
	require.NoError(t, err)
	require.Len(t, out.LaunchTemplates, 1)
}

func TestWI17UnknownTemplateName(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.ec2.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"nope"}})
	requireCode(t, err, "InvalidLaunchTemplateName.NotFoundException")
}

func TestTemplatesByTagAndDelete(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("karpenter.k8s.aws/12345", "", nil)
	list := func() []ec2types.LaunchTemplate {
		out, err := s.ec2.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{MaxResults: aws.Int32(200),
			Filters: []ec2types.Filter{{Name: aws.String("tag:eks:eks-cluster-name"), Values: []string{"berth"}}}})
		require.NoError(t, err)
		return out.LaunchTemplates
	}
	found := list()
	require.Len(t, found, 1)
	del := func(in *ec2.DeleteLaunchTemplateInput) error {
		_, err := s.ec2.DeleteLaunchTemplate(t.Context(), in)
		return err
	}
	require.NoError(t, del(&ec2.DeleteLaunchTemplateInput{LaunchTemplateId: found[0].LaunchTemplateId}))
	require.Empty(t, list())
	requireCode(t, del(&ec2.DeleteLaunchTemplateInput{LaunchTemplateId: found[0].LaunchTemplateId}), "InvalidLaunchTemplateId.NotFound")
	requireCode(t, del(&ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("nope")}), "InvalidLaunchTemplateName.NotFoundException")
}

func TestWI18TerminateWithUnknownID(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	id := s.launched(1)[0]
	_, err := s.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id, "i-0123456789abcdef0"}})
	requireCode(t, err, "InvalidInstanceID.NotFound")
	require.Equal(t, "pending", s.Instances()[0].State, "nothing was terminated")
	out, err := s.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	require.NoError(t, err)
	require.EqualValues(t, "shutting-down", out.TerminatingInstances[0].CurrentState.Name)
	require.EqualValues(t, "pending", out.TerminatingInstances[0].PreviousState.Name)
}

func TestWI19DescribeUnknownID(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	id := s.launched(1)[0]
	_, err := s.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id, "i-0123456789abcdef0"}})
	requireCode(t, err, "InvalidInstanceID.NotFound")
	_, err = s.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{"i-xyz"}})
	requireCode(t, err, "InvalidInstanceID.Malformed")
	_, err = s.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}, MaxResults: aws.Int32(5)})
	requireCode(t, err, "InvalidParameterCombination")
}

func TestWI20PendingThenRunning(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	onDemand := s.launched(1)[0]
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("spot", 1, pool{"m5.large", zoneB}))
	require.NoError(t, err)
	spot := ids(out)[0]

	found := s.describe(onDemand, spot)
	require.EqualValues(t, "pending", found[0].State.Name)
	require.Nil(t, found[0].SpotInstanceRequestId)
	require.Empty(t, found[0].InstanceLifecycle)
	require.NotEmpty(t, *found[1].SpotInstanceRequestId)
	require.EqualValues(t, "spot", found[1].InstanceLifecycle)
	require.Equal(t, zoneB, *found[1].Placement.AvailabilityZone)
	require.Equal(t, "use1-az1", *found[1].Placement.AvailabilityZoneId)
	require.NotNil(t, found[1].CapacityReservationSpecification)

	s.clock.Step(200 * time.Millisecond)
	require.EqualValues(t, "running", s.describe(spot)[0].State.Name)
	require.True(t, s.Terminate(spot))
	s.clock.Step(200 * time.Millisecond)
	gone := s.describe(spot)[0]
	require.EqualValues(t, "terminated", gone.State.Name)
	require.Nil(t, gone.SubnetId)
	s.clock.Step(time.Hour)
	_, err = s.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{spot}})
	requireCode(t, err, "InvalidInstanceID.NotFound")
}

func TestVisibilityDelay(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) { o.VisibilityDelay = time.Second })
	id := s.launched(1)[0]
	_, err := s.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	requireCode(t, err, "InvalidInstanceID.NotFound")
	s.clock.Step(time.Second)
	require.Len(t, s.describe(id), 1)
}

func TestDescribeInstancesPages(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.launched(12)
	pager := ec2.NewDescribeInstancesPaginator(s.ec2, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
	total, pages := 0, 0
	for pager.HasMorePages() {
		page, err := pager.NextPage(t.Context())
		require.NoError(t, err)
		total += len(page.Reservations)
		pages++
	}
	require.Equal(t, 12, total)
	require.Equal(t, 3, pages)
}

func TestClientTokenReplaysTheFirstReply(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	in := s.fleet("spot", 2, pool{"m5.large", zoneA}, pool{"c5.large", zoneB})
	in.ClientToken = aws.String("group-1")
	first, err := s.ec2.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	s.clock.Step(time.Minute)
	s.SetInsufficientCapacity("", "", "", true)
	second, err := s.ec2.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, ids(first), ids(second))
	require.Equal(t, first.FleetId, second.FleetId)
	require.Len(t, s.Instances(), 2)

	in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(3)
	_, err = s.ec2.CreateFleet(t.Context(), in)
	requireCode(t, err, "IdempotentParameterMismatch")
	require.Len(t, s.Instances(), 2)
}

func TestDroppedReplyIsReplayed(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	in := s.fleet("on-demand", 20, pool{"m5.large", zoneA})
	in.ClientToken = aws.String("group-2")
	s.DropReplyNext("CreateFleet", 1)
	out, err := s.ec2.CreateFleet(t.Context(), in) // the SDK sends it again by itself
	require.NoError(t, err)
	require.Equal(t, 2, s.CallCount("CreateFleet"))
	require.Len(t, ids(out), 20)
	require.Len(t, s.Instances(), 20)
}

func TestAllocationStrategies(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	pools := []pool{{"m5.large", zoneA}, {"m5a.large", zoneA}, {"m6i.large", zoneA}, {"m6a.large", zoneA}}
	price := func(p pool) float64 {
		v, ok := facts.SpotPrice("us-east-1", p.zone, p.instanceType)
		require.True(t, ok)
		return v
	}
	cheapest := pools[0]
	for _, p := range pools {
		if price(p) < price(cheapest) {
			cheapest = p
		}
	}
	launch := func(strategy ec2types.SpotAllocationStrategy, pools ...pool) string {
		in := s.fleet("spot", 1, pools...)
		in.SpotOptions.AllocationStrategy = strategy
		out, err := s.ec2.CreateFleet(t.Context(), in)
		require.NoError(t, err)
		return string(out.Instances[0].InstanceType)
	}
	require.Equal(t, cheapest.instanceType, launch("lowest-price", pools...))

	for _, p := range pools { // the cheapest pool is the shallowest: it must be passed over
		depth := 100
		if p == cheapest {
			depth = 3
		}
		s.SetPoolDepth(p.instanceType, p.zone, ec2sim.Spot, depth)
	}
	require.NotEqual(t, cheapest.instanceType, launch("price-capacity-optimized", pools...))
	require.Equal(t, cheapest.instanceType, launch("lowest-price", pools...))

	for i, p := range pools { // the two last are deep, and the third is preferred
		s.SetPoolDepth(p.instanceType, p.zone, ec2sim.Spot, 10+100*i)
	}
	require.Equal(t, "m6i.large", launch("capacity-optimized-prioritized", pools...))
	require.Equal(t, "m6a.large", launch("capacity-optimized", pools...))

	in := s.fleet("on-demand", 1, pool{"m5.2xlarge", zoneA}, pool{"m5.large", zoneA})
	in.OnDemandOptions.AllocationStrategy = "prioritized"
	out, err := s.ec2.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.EqualValues(t, "m5.2xlarge", out.Instances[0].InstanceType)
	in.OnDemandOptions.AllocationStrategy, in.ClientToken = "lowest-price", nil // the SDK has written its token into in
	out, err = s.ec2.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.EqualValues(t, "m5.large", out.Instances[0].InstanceType)
}

// Over many requests, price-capacity-optimized often passes the cheapest pool
// over, yet pays little more: hidden depths are an annoyance and no lottery.
func TestPriceCapacityOptimizedIsOftenNotTheCheapest(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	families := []string{"m5", "m5a", "m5d", "m5n", "m6a", "m6i", "m6id", "m7a", "m7i", "c5", "c5a", "c6a", "c6i", "c7a", "c7i", "r5", "r5a", "r6a", "r6i", "r7i"}
	passed, paid, best := 0, 0.0, 0.0
	for i := range len(families) - 4 {
		var pools []pool
		low := 1e9
		for _, f := range families[i : i+5] {
			for _, zone := range []string{zoneA, zoneB, zoneC} {
				if p, ok := facts.SpotPrice("us-east-1", zone, f+".xlarge"); ok {
					pools = append(pools, pool{f + ".xlarge", zone})
					low = min(low, p)
				}
			}
		}
		out, err := s.ec2.CreateFleet(t.Context(), s.fleet("spot", 1, pools...))
		require.NoError(t, err)
		got, ok := s.Instance(ids(out)[0])
		require.True(t, ok)
		paid, best = paid+got.Price, best+low
		if got.Price > low {
			passed++
		}
	}
	require.GreaterOrEqual(t, passed, 4, "of 16 requests")
	require.Less(t, paid, 1.3*best)
}

func TestOverridesThatCannotBeLaunched(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool   pool
		change func(*ec2types.FleetLaunchTemplateOverridesRequest)
		code   string
	}{
		"zone does not offer the type":  {pool{"p5.48xlarge", zoneA}, func(o *ec2types.FleetLaunchTemplateOverridesRequest) { o.InstanceType = "trn1.2xlarge" }, "Unsupported"},
		"image of another architecture": {pool{"m6g.large", zoneA}, nil, "InvalidParameterValue"},
		"unknown type":                  {pool{"m99.large", zoneA}, nil, "InvalidParameterValue"},
		"unknown subnet": {pool{"m5.large", zoneA}, func(o *ec2types.FleetLaunchTemplateOverridesRequest) {
			o.SubnetId = aws.String("subnet-0")
		}, "InvalidSubnetID.NotFound"},
		"subnet in another zone": {pool{"m5.large", zoneA}, func(o *ec2types.FleetLaunchTemplateOverridesRequest) {
			o.AvailabilityZone = aws.String(zoneB)
		}, "InvalidParameterValue"},
		"no subnet":       {pool{"m5.large", zoneA}, func(o *ec2types.FleetLaunchTemplateOverridesRequest) { o.SubnetId = nil }, "MissingInput"},
		"unknown image":   {pool{"m5.large", zoneA}, func(o *ec2types.FleetLaunchTemplateOverridesRequest) { o.ImageId = aws.String("ami-0123456789abcdef0") }, "InvalidAMIID.NotFound"},
		"malformed image": {pool{"m5.large", zoneA}, func(o *ec2types.FleetLaunchTemplateOverridesRequest) { o.ImageId = aws.String("ami-x") }, "InvalidAMIID.Malformed"},
	}
	s := newSim(t, nil)
	s.template("node", "", nil)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := s.fleet("on-demand", 1, tc.pool)
			if tc.change != nil {
				tc.change(&in.LaunchTemplateConfigs[0].Overrides[0])
			}
			out, err := s.ec2.CreateFleet(t.Context(), in)
			require.NoError(t, err)
			require.Empty(t, out.Instances)
			require.Len(t, out.Errors, 1)
			require.Equal(t, tc.code, *out.Errors[0].ErrorCode)
			require.NotEmpty(t, *out.Errors[0].ErrorMessage)
		})
	}
}

func TestFleetRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	tests := map[string]struct {
		change func(*ec2.CreateFleetInput)
		code   string
	}{
		"fleet that maintains itself": {func(in *ec2.CreateFleetInput) { in.Type = "maintain" }, "UnsupportedOperation"},
		"no instances":                {func(in *ec2.CreateFleetInput) { in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(0) }, "InvalidTargetCapacity"},
		"unknown strategy":            {func(in *ec2.CreateFleetInput) { in.OnDemandOptions.AllocationStrategy = "random" }, "InvalidParameterValue"},
		"same pool twice": {func(in *ec2.CreateFleetInput) {
			c := &in.LaunchTemplateConfigs[0]
			c.Overrides = append(c.Overrides, c.Overrides[0])
		}, "InvalidFleetConfig"},
		"tags for a volume of the moon": {func(in *ec2.CreateFleetInput) { in.TagSpecifications[0].ResourceType = "vpc" }, "InvalidParameterValue"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := s.fleet("on-demand", 1, pool{"m5.large", zoneA})
			tc.change(in)
			_, err := s.ec2.CreateFleet(t.Context(), in)
			requireCode(t, err, tc.code)
		})
	}
	require.Empty(t, s.Instances())
}

func TestSubnetRunsOutOfAddresses(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) {
		w := ec2sim.DefaultWorld(facts.Default(), "us-east-1", "berth")
		w.Subnets[0].CIDR = "10.0.0.0/28"
		o.World = &w
	})
	s.template("node", "", nil)
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 20, pool{"m5.large", zoneA}))
	require.NoError(t, err)
	require.Len(t, ids(out), 11, "a /28 has 16 addresses and AWS keeps five")
	require.Equal(t, "InsufficientFreeAddressesInSubnet", *out.Errors[0].ErrorCode)
	seen := map[string]bool{}
	for _, i := range s.Instances() {
		require.False(t, seen[i.PrivateIP])
		seen[i.PrivateIP] = true
	}
	subnets, err := s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{s.subnetIn(zoneA)}})
	require.NoError(t, err)
	require.Zero(t, *subnets.Subnets[0].AvailableIpAddressCount)
}

func TestReservedCapacity(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) {
		w := ec2sim.DefaultWorld(facts.Default(), "us-east-1", "berth")
		w.CapacityReservations = []ec2sim.CapacityReservation{{ID: "cr-0123456789abcdef0", InstanceType: "m5.large", Zone: zoneA, Total: 1, Available: 1}}
		o.World = &w
	})
	s.template("node", "", func(d *ec2types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: "capacity-reservations-only",
			CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String("cr-0123456789abcdef0")}}
	})
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 2, pool{"m5.large", zoneA}))
	require.NoError(t, err)
	require.Len(t, ids(out), 1)
	require.Equal(t, "ReservationCapacityExceeded", *out.Errors[0].ErrorCode)
	i := s.describe(ids(out)[0])[0]
	require.Equal(t, "cr-0123456789abcdef0", *i.CapacityReservationId)
	require.EqualValues(t, "capacity-reservations-only", i.CapacityReservationSpecification.CapacityReservationPreference)
	require.Equal(t, ec2sim.Reserved, s.Instances()[0].CapacityType)
	available := func() int32 {
		list, err := s.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"cr-0123456789abcdef0"}})
		require.NoError(t, err)
		return *list.CapacityReservations[0].AvailableInstanceCount
	}
	require.Zero(t, available())
	s.Terminate(ids(out)[0])
	require.EqualValues(t, 1, available())
}

func TestLaunchErrorsOfOtherKinds(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	s.SetLaunchError("m5.large", "", "", "UnauthorizedOperation")
	s.SetLaunchError("c5.large", "", "", "MaxSpotInstanceCountExceeded")
	out, err := s.ec2.CreateFleet(t.Context(), s.fleet("spot", 1, pool{"m5.large", zoneA}, pool{"c5.large", zoneB}))
	require.NoError(t, err)
	var codes []string
	for _, e := range out.Errors {
		codes = append(codes, *e.ErrorCode)
	}
	require.Equal(t, []string{"UnauthorizedOperation", "MaxSpotInstanceCountExceeded"}, codes)
}
