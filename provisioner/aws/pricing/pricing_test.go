package pricing_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/provisioner/aws/facts"
	own "github.com/berth-dev/berth/provisioner/aws/pricing"
)

func TestPricesOverTheWire(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	server.SetOnDemandPrice("m5.large", 0.5)
	server.SetSpotPrice("m5.large", "us-east-1a", 0.2)
	p := own.New(pricing.NewFromConfig(cfg), ec2.NewFromConfig(cfg), clock, own.Options{Region: "us-east-1"})
	static, ok := facts.OnDemandPrice("us-east-1", "m5.large")
	require.True(t, ok)
	price, ok := p.OnDemand("m5.large")
	require.True(t, ok)
	require.InDelta(t, static, price, 1e-9, "IT-30: before the API has answered")
	price, _ = p.Spot("m5.large", "us-east-1a")
	require.InDelta(t, static, price, 1e-9, "IT-29: spot costs what on-demand costs")

	version := p.Version()
	require.NoError(t, p.RefreshOnDemand(t.Context()))
	require.NoError(t, p.RefreshSpot(t.Context()))
	require.Greater(t, p.Version(), version)
	price, _ = p.OnDemand("m5.large")
	require.InDelta(t, 0.5, price, 1e-9)
	price, _ = p.OnDemand("m5.metal")
	require.Positive(t, price, "bare metal is a query of its own")
	price, _ = p.Spot("m5.large", "us-east-1a")
	require.InDelta(t, 0.2, price, 1e-9)
	_, ok = p.Spot("m5.large", "us-east-1z")
	require.False(t, ok, "IT-28: no price, no offering")

	server.FailNext("GetProducts", "InternalErrorException", -1)
	require.Error(t, p.RefreshOnDemand(t.Context()))
	price, _ = p.OnDemand("m5.large")
	require.InDelta(t, 0.5, price, 1e-9, "old prices stay")
}

type list []string

func (l list) GetProducts(_ context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	return &pricing.GetProductsOutput{PriceList: l}, nil
}

type history []ec2types.SpotPrice

func (h history) DescribeSpotPriceHistory(context.Context, *ec2.DescribeSpotPriceHistoryInput, ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	return &ec2.DescribeSpotPriceHistoryOutput{SpotPriceHistory: h}, nil
}

func product(name, currency, price string) string {
	return fmt.Sprintf(`{"product":{"attributes":{"instanceType":%q}},"terms":{"OnDemand":{"X":{"priceDimensions":{"Y":{"pricePerUnit":{%q:%q}}}}}}}`, name, currency, price)
}

func TestOddPriceLists(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	usd := own.New(list{product("a.large", "USD", "0.0000000000"), product("b.large", "USD", "1.5"), "nonsense", product("c.large", "CNY", "2")}, nil, clock, own.Options{Region: "us-east-1"})
	require.NoError(t, usd.RefreshOnDemand(t.Context()))
	_, ok := usd.OnDemand("a.large")
	require.False(t, ok, "WI-34")
	price, _ := usd.OnDemand("b.large")
	require.InDelta(t, 1.5, price, 1e-9)
	cny := own.New(list{product("c.large", "CNY", "2")}, nil, clock, own.Options{Region: "cn-north-1"})
	require.NoError(t, cny.RefreshOnDemand(t.Context()))
	price, _ = cny.OnDemand("c.large")
	require.InDelta(t, 2, price, 1e-9, "WI-33")
	require.Error(t, own.New(list{}, nil, clock, own.Options{Region: "us-east-1"}).RefreshOnDemand(t.Context()), "an empty answer changes nothing")
}

func TestWI37SpotRecordsWithoutTimeAreIgnored(t *testing.T) {
	t.Parallel()
	now := time.Now()
	quote := func(zone, price string, at *time.Time) ec2types.SpotPrice {
		return ec2types.SpotPrice{InstanceType: "m5.large", AvailabilityZone: aws.String(zone), SpotPrice: aws.String(price), Timestamp: at}
	}
	p := own.New(nil, history{quote("a", "1", nil), quote("b", "2", aws.Time(now.Add(-time.Hour))), quote("b", "3", aws.Time(now)), quote("b", "4", aws.Time(now.Add(-time.Minute)))},
		clocktesting.NewFakeClock(now), own.Options{Region: "us-east-1"})
	require.NoError(t, p.RefreshSpot(t.Context()))
	_, ok := p.Spot("m5.large", "a")
	require.False(t, ok)
	price, _ := p.Spot("m5.large", "b")
	require.InDelta(t, 3, price, 1e-9, "the latest one counts")
	require.Error(t, own.New(nil, history{}, clocktesting.NewFakeClock(now), own.Options{}).RefreshSpot(t.Context()))
}

func TestIT31NoPricingCallForGovCloud(t *testing.T) {
	t.Parallel()
	server, clock, cfg := newSim(t, nil)
	for _, opts := range []own.Options{{Region: "us-gov-west-1"}, {Region: "us-east-1", Isolated: true}} {
		p := own.New(pricing.NewFromConfig(cfg), ec2.NewFromConfig(cfg), clock, opts)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		before := server.CallCount("DescribeSpotPriceHistory")
		require.Eventually(t, func() bool { return server.CallCount("DescribeSpotPriceHistory") > before }, 10*time.Second, 5*time.Millisecond)
		cancel()
		<-done
		_, ok := p.OnDemand("m5.large")
		require.True(t, ok)
	}
	require.Zero(t, server.CallCount("GetProducts"), "LA-54")
}

func TestAPIRegion(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{"ap-southeast-2": "ap-south-1", "cn-north-1": "cn-northwest-1", "eu-west-1": "eu-central-1", "us-west-2": "us-east-1", "sa-east-1": "us-east-1"} {
		require.Equal(t, want, own.APIRegion(region))
	}
}
