package ec2sim_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := ec2sim.New(ec2sim.Options{Region: "mars-1", AccountID: "12", BootDelay: -1, Naming: "dns",
		Script: ec2sim.Script{Steps: []ec2sim.Step{{}}}})
	for _, part := range []string{`region "mars-1"`, "us-east-1", `accountID "12"`, "bootDelay", `naming "dns"`, "steps[0]"} {
		require.ErrorContains(t, err, part)
	}
	_, err = ec2sim.New(ec2sim.Options{World: &ec2sim.World{
		Subnets:          []ec2sim.Subnet{{ID: "subnet-1", Zone: "eu-west-1a", CIDR: "10.0.0.0/8"}},
		InstanceProfiles: map[string]string{"p": "nobody"}}})
	for _, part := range []string{`zone "eu-west-1a"`, `cidr "10.0.0.0/8"`, `no role "nobody"`} {
		require.ErrorContains(t, err, part)
	}
}

func TestStartServesUntilClose(t *testing.T) {
	t.Parallel()
	server, err := ec2sim.New(ec2sim.Options{})
	require.NoError(t, err)
	url, err := server.Start("127.0.0.1:0")
	require.NoError(t, err)
	client := ec2.NewFromConfig((&sim{url: url}).config(1))
	_, err = client.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	require.NoError(t, err)
	_, err = server.Start(url[len("http://"):])
	require.ErrorContains(t, err, "listen on")
	server.Close()
	server.Close() // twice is harmless
	_, err = client.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	require.Error(t, err)
}

func TestEveryRegionHasAWorld(t *testing.T) {
	t.Parallel()
	for _, region := range []string{"us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1"} {
		server, err := ec2sim.New(ec2sim.Options{Region: region})
		require.NoError(t, err, region)
		server.Close()
	}
}

func next(t *testing.T, events <-chan ec2sim.InstanceEvent) ec2sim.InstanceEvent {
	t.Helper()
	select {
	case e, open := <-events:
		require.True(t, open)
		return e
	case <-time.After(10 * time.Second):
		require.Fail(t, "no event")
		return ec2sim.InstanceEvent{}
	}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := s.Subscribe(ctx)
	list := s.launched(2)
	s.clock.Step(200 * time.Millisecond)
	for _, id := range list {
		e := next(t, events)
		require.Equal(t, ec2sim.Running, e.Kind)
		require.Equal(t, id, e.Instance.ID)
		require.Equal(t, "hello", e.Instance.UserData)
		require.Equal(t, "amd64", e.Instance.Arch)
		require.Equal(t, "aws:///us-east-1a/"+id, e.Instance.ProviderID())
		require.Equal(t, start.Add(2*time.Second), e.Instance.BootAt)
		require.InDelta(t, 0.096, e.Instance.Price, 1e-9)
	}
	require.True(t, s.StopInstance(list[0]))
	gone := next(t, events)
	require.Equal(t, ec2sim.Gone, gone.Kind)
	require.Equal(t, list[0], gone.Instance.ID)

	late := s.Subscribe(ctx) // only what runs is replayed
	e := next(t, late)
	require.Equal(t, list[1], e.Instance.ID)
	require.True(t, s.Interrupt(list[1]))
	require.Equal(t, ec2sim.Gone, next(t, late).Kind)
	require.Equal(t, ec2sim.Gone, next(t, events).Kind)
	require.False(t, s.Terminate("i-nobody"))

	cancel()
	require.Eventually(t, func() bool { _, open := <-events; return !open }, 10*time.Second, time.Millisecond)
}

func TestEventsAreNotLostOnASlowReader(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	events := s.Subscribe(t.Context())
	s.launched(2000)
	s.clock.Step(time.Second)
	for range 2000 {
		require.Equal(t, ec2sim.Running, next(t, events).Kind)
	}
}

func TestNodeNames(t *testing.T) {
	t.Parallel()
	byIP := newSim(t, nil)
	byIP.launched(1)
	require.Equal(t, "ip-10-0-0-4.ec2.internal", byIP.Instances()[0].PrivateDNSName)
	byID := newSim(t, func(o *ec2sim.Options) { o.Naming, o.Region = ec2sim.ResourceName, "us-east-1" })
	id := byID.launched(1)[0]
	require.Equal(t, id+".ec2.internal", byID.Instances()[0].PrivateDNSName)
	require.Equal(t, id+".ec2.internal", *byID.describe(id)[0].PrivateDnsName)
}

func TestSameSeedSameWorld(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) []ec2sim.Instance {
		s := newSim(t, func(o *ec2sim.Options) { o.Seed = seed })
		s.template("node", "", nil)
		_, err := s.ec2.CreateFleet(t.Context(), s.fleetWithToken("spot", 3, "t", pool{"m5.large", zoneA}, pool{"m5a.large", zoneB}, pool{"c5.large", zoneC}))
		require.NoError(t, err)
		return s.Instances()
	}
	one, again, other := run(7), run(7), run(8)
	require.Equal(t, one, again)
	require.NotEqual(t, one[0].ID, other[0].ID)
}

func (s *sim) fleetWithToken(kind ec2types.DefaultTargetCapacityType, total int32, token string, pools ...pool) *ec2.CreateFleetInput {
	in := s.fleet(kind, total, pools...)
	in.ClientToken = aws.String(token)
	return in
}

func TestThrottlingFollowsTheDocumentedBuckets(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) { o.Throttle = true })
	client := ec2.NewFromConfig(s.config(1))
	terminate := func() error {
		_, err := client.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}})
		return err
	}
	for range 100 {
		requireCode(t, terminate(), "InvalidInstanceID.NotFound")
	}
	requireCode(t, terminate(), "RequestLimitExceeded")
	s.clock.Step(time.Second) // five tokens a second
	for range 5 {
		requireCode(t, terminate(), "InvalidInstanceID.NotFound")
	}
	requireCode(t, terminate(), "RequestLimitExceeded")

	plain := func() error {
		_, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
		return err
	}
	for range 50 {
		require.NoError(t, plain())
	}
	requireCode(t, plain(), "RequestLimitExceeded")
	_, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
	require.NoError(t, err, "paged calls have a bucket of their own")
}

func TestHooksRunBetweenEffectAndReply(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	seen := 0
	s.AfterNext("CreateFleet", func() { seen = len(s.Instances()) })
	_, err := s.ec2.CreateFleet(t.Context(), s.fleet("on-demand", 3, pool{"m5.large", zoneA}))
	require.NoError(t, err)
	require.Equal(t, 3, seen)
}

func TestLatencyIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.SetLatency("DescribeSubnets", time.Minute)
	done := make(chan error, 1)
	go func() {
		_, err := s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		done <- err
	}()
	require.Eventually(t, s.clock.HasWaiters, 10*time.Second, time.Millisecond)
	select {
	case <-done:
		require.Fail(t, "replied at once")
	default:
	}
	s.clock.Step(time.Minute)
	require.NoError(t, <-done)
}

func TestScript(t *testing.T) {
	t.Parallel()
	script, err := ec2sim.ParseScript([]byte(`
steps:
- at: 10s
  capacity: {zone: us-east-1a, code: InsufficientInstanceCapacity}
- at: 20s
  fail: {action: DescribeSubnets, code: UnauthorizedOperation, count: 1}
- at: 30s
  takeBack: {capacityType: on-demand}
- at: 40s
  latency: {action: DescribeImages, delay: 1s}
`))
	require.NoError(t, err)
	s := newSim(t, func(o *ec2sim.Options) { o.Script = script })
	id := s.launched(1)[0]
	in := s.fleet("on-demand", 1, pool{"m5.large", zoneA})
	s.clock.Step(10 * time.Second)
	out, err := s.ec2.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Instances)
	s.clock.Step(10 * time.Second)
	_, err = s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	requireCode(t, err, "UnauthorizedOperation")
	s.clock.Step(10 * time.Second)
	require.EqualValues(t, "shutting-down", s.describe(id)[0].State.Name)

	for text, want := range map[string]string{
		"steps: [{at: 1s, explode: {}}]":       "explode",
		"steps: [{at: 1s}]":                    "name exactly one",
		"steps: [{at: -1s, takeBack: {}}]":     "negative",
		"steps: [{at: 1s, fail: {action: X}}]": "needs action and code",
	} {
		_, err := ec2sim.ParseScript([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := s.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-x"}})
	requireCode(t, err, "InvalidSubnetID.NotFound")
	calls := s.Calls()
	require.Len(t, calls, 1)
	require.Equal(t, "subnet-x", calls[0].Form().Get("SubnetId.1"))
	require.Equal(t, "InvalidSubnetID.NotFound", calls[0].Code)
	require.Equal(t, start, calls[0].Time)
	require.Equal(t, 1, s.CallCount("DescribeSubnets"))
	s.ResetCalls()
	require.Empty(t, s.Calls())
	require.Zero(t, s.CallCount("DescribeSubnets"))
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	s.template("node", "", nil)
	in := s.fleet("spot", 2, pool{"m5.large", zoneA}, pool{"m5a.large", zoneB}, pool{"c5.large", zoneC})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			own := *in // the SDK writes a token into its input
			out, err := s.ec2.CreateFleet(t.Context(), &own)
			if err == nil {
				_, err = s.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids(out)})
			}
			if err != nil {
				t.Error(err)
			}
			s.clock.Step(time.Second)
			_ = s.Instances()
		})
	}
	wg.Wait()
	require.Len(t, s.Instances(), 32)
}

func TestInstanceStatusIsHealthy(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	id := s.launched(1)[0]
	s.clock.Step(time.Second)
	out, err := s.ec2.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{InstanceIds: []string{id}})
	require.NoError(t, err)
	require.Len(t, out.InstanceStatuses, 1)
	require.EqualValues(t, "ok", out.InstanceStatuses[0].SystemStatus.Status)
	for _, name := range []string{"instance-status.status", "system-status.status"} {
		out, err = s.ec2.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{
			Filters: []ec2types.Filter{{Name: aws.String(name), Values: []string{"impaired"}}}})
		require.NoError(t, err)
		require.Empty(t, out.InstanceStatuses)
	}
	out, err = s.ec2.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{
		Filters: []ec2types.Filter{{Name: aws.String("event.code"), Values: []string{"instance-reboot"}}}})
	require.NoError(t, err)
	require.Empty(t, out.InstanceStatuses)
}
