package aws_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func TestAP49WI23ReservationsInTheStatus(t *testing.T) {
	t.Parallel()
	catalog := facts.Default()
	world := ec2sim.DefaultWorld(catalog, "us-east-1", "berth")
	team := map[string]string{"team": "a"}
	world.CapacityReservations = []ec2sim.CapacityReservation{
		{ID: "cr-1", InstanceType: "m5.large", Zone: "us-east-1a", Total: 3, Available: 3, Tags: team},
		{ID: "cr-2", InstanceType: "p5.48xlarge", Zone: "us-east-1a", Total: 1, Available: 1, ReservationType: "capacity-block", End: time.Now().Add(39 * time.Minute), Tags: team},
		{ID: "cr-3", InstanceType: "p5.48xlarge", Zone: "us-east-1a", Total: 1, Available: 1, ReservationType: "capacity-block", End: time.Now().Add(2 * time.Hour), Tags: team},
		{ID: "cr-4", InstanceType: "m5.large", Zone: "us-east-1a", Total: 1, Available: 1},
	}
	w := newWorld(t, func(o *ec2sim.Options) { o.World = &world })
	w.class("default", func(nc *ec2v1.EC2NodeClass) {
		nc.Spec.CapacityReservationSelectorTerms = []ec2v1.CapacityReservationSelectorTerm{{Tags: team}, {ID: "cr-404"}}
	})
	p := w.start()
	w.waitReady(p, "default")
	got := map[string]ec2v1.CapacityReservationState{}
	for _, r := range w.getClass("default").Status.CapacityReservations {
		got[r.ID] = r.State
	}
	require.Equal(t, map[string]ec2v1.CapacityReservationState{"cr-1": "active", "cr-2": "expiring", "cr-3": "active"}, got)
}

func TestLA54IsolatedNetworksAskNeitherPricingNorForProfiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.change = func(c *aws.Config) { c.IsolatedVPC = true }
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	require.Zero(t, w.CallCount("GetProducts"))
	require.Zero(t, w.CallCount("ListInstanceProfiles"))
}

func TestWI32LA36IPv6Cluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *ec2sim.Options) { o.ServiceIPv6CIDR = "fd00::/108" })
	w.change = func(c *aws.Config) { c.KubeDNSIP = "fd00::a" }
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	form := w.template()
	require.Equal(t, "true", form.Get("LaunchTemplateData.NetworkInterface.1.PrimaryIpv6"))
	require.Equal(t, "1", form.Get("LaunchTemplateData.NetworkInterface.1.Ipv6AddressCount"))
}
