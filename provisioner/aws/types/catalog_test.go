package types_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/catalog"
)

type prices struct{ version uint64 }

func (*prices) OnDemand(string) (float64, bool)     { return 1, true }
func (*prices) Spot(_, zone string) (float64, bool) { return 0.5, zone != "us-east-1b" }
func (p *prices) Version() uint64                   { return p.version }

func newCatalog(t *testing.T) (*ec2sim.Server, *clocktesting.FakeClock, *types.Catalog, *types.Unavailable, *prices) {
	t.Helper()
	server, clock, cfg := newSim(t, nil)
	stock, p := types.NewUnavailable(clock), &prices{}
	c := types.NewCatalog(types.Deps{EC2: ec2.NewFromConfig(cfg), Prices: p, Stock: stock, Clock: clock, Metrics: types.NewMetrics(prometheus.NewRegistry())}, settings)
	return server, clock, c, stock, p
}

func nodeClass() *ec2v1.EC2NodeClass {
	nc := &ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", Generation: 1}}
	nc.Spec.AMISelectorTerms = []ec2v1.AMISelectorTerm{{Alias: "al2023@latest"}}
	nc.Status.Subnets = []ec2v1.Subnet{{ID: "s1", Zone: "us-east-1a", ZoneID: "use1-az1"}, {ID: "s2", Zone: "us-east-1b", ZoneID: "use1-az2"}}
	return nc
}

func offering(t *testing.T, list []*catalog.InstanceType, name, zone, kind string) catalog.Offering {
	t.Helper()
	for _, it := range list {
		for _, o := range it.Offerings {
			if it.Name == name && o.Zone == zone && o.CapacityType == kind {
				return o
			}
		}
	}
	t.Fatalf("no %s offering of %s in %s", kind, name, zone)
	return catalog.Offering{}
}

func TestWI04CatalogFollowsPages(t *testing.T) {
	t.Parallel()
	server, _, c, _, _ := newCatalog(t)
	_, err := c.ForClass(nodeClass())
	require.ErrorContains(t, err, "no instance types found")
	require.NoError(t, c.Refresh(t.Context()))
	<-c.Known()
	require.Greater(t, len(c.Names()), 1000)
	require.Greater(t, server.CallCount("DescribeInstanceTypes"), 10, "WI-04")
	_, ok := c.Info("m5.large")
	require.True(t, ok)
	_, err = c.ForClass(&ec2v1.EC2NodeClass{})
	require.ErrorContains(t, err, "no subnets found")
	server.FailNext("DescribeInstanceTypes", "InternalError", -1)
	require.Error(t, c.Refresh(t.Context()))
	require.Greater(t, len(c.Names()), 1000, "a failure keeps the old data")
}

func TestOfferings(t *testing.T) {
	t.Parallel()
	_, clock, c, stock, p := newCatalog(t)
	require.NoError(t, c.Refresh(t.Context()))
	list, err := c.ForClass(nodeClass())
	require.NoError(t, err)
	a := offering(t, list, "m5.large", "us-east-1a", "on-demand")
	require.True(t, a.Available)
	require.Equal(t, "use1-az1", a.ZoneID)
	elsewhere := offering(t, list, "m5.large", "us-east-1c", "on-demand")
	require.False(t, elsewhere.Available, "IT-27: no subnet there")
	require.Empty(t, elsewhere.ZoneID)
	require.False(t, offering(t, list, "m5.large", "us-east-1b", "spot").Available, "IT-28: no price")
	require.True(t, offering(t, list, "m5.large", "us-east-1b", "spot").Unpriced, "an overlay may give it a price")
	require.False(t, a.Unpriced)
	require.False(t, elsewhere.Unpriced, "a price would not help")
	require.False(t, offering(t, list, "a1.large", "us-east-1a", "on-demand").Available, "IT-52")

	again, err := c.ForClass(nodeClass())
	require.NoError(t, err)
	require.Same(t, &list[0], &again[0], "nothing changed, nothing is computed")
	p.version++
	again, err = c.ForClass(nodeClass())
	require.NoError(t, err)
	require.NotSame(t, &list[0], &again[0])

	stock.MarkOffering("on-demand", "m5.large", "us-east-1a")
	again, err = c.ForClass(nodeClass())
	require.NoError(t, err)
	require.False(t, offering(t, again, "m5.large", "us-east-1a", "on-demand").Available, "IT-35")
	require.True(t, offering(t, again, "m5.large", "us-east-1a", "spot").Available)
	clock.Step(3*time.Minute + time.Second)
	again, err = c.ForClass(nodeClass())
	require.NoError(t, err)
	require.True(t, offering(t, again, "m5.large", "us-east-1a", "on-demand").Available, "IT-35: three minutes later")
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	u := types.NewUnavailable(clock)
	out := func() bool { return u.OutOf("spot", "m5.large", "a", []string{"s1", "s2"}) }
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	require.False(t, out())
	v := u.Version()
	u.MarkOffering("spot", "m5.large", "a")
	require.True(t, out())
	require.NotEqual(t, v, u.Version())
	pass(2 * time.Minute)
	u.MarkOffering("spot", "m5.large", "a")
	pass(2 * time.Minute)
	require.True(t, out(), "marking again begins anew")
	v = u.Version()
	pass(time.Minute)
	require.False(t, out())
	require.NotEqual(t, v, u.Version(), "the end of a mark is a change")
	u.MarkOffering("spot", "m5.large", "a")
	pass(4 * time.Minute)
	require.True(t, out(), "a shortage that comes back at once lasts longer")
	pass(time.Hour)
	u.MarkOffering("spot", "m5.large", "a")
	pass(4 * time.Minute)
	require.False(t, out(), "after a long rest it starts from three minutes")

	u.MarkSubnet("s1")
	require.False(t, out(), "IT-36: another subnet of the zone has room")
	u.MarkSubnet("s2")
	require.True(t, out(), "IT-36")
	require.False(t, u.OutOf("spot", "m5.large", "b", nil))
	u.MarkCapacityType("spot")
	require.True(t, u.OutOf("spot", "m5.large", "b", nil), "IT-37")
	require.False(t, u.OutOf("on-demand", "m5.large", "b", nil))
}
