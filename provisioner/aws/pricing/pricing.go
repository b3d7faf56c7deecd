package pricing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/aws/refresh"
)

const (
	refreshPeriod = 12 * time.Hour
	fallback      = "us-east-1" // whose prices stand in for regions without a list
)

// Options of Prices.
type Options struct {
	Region string
	// Isolated networks cannot reach the Pricing API.
	Isolated bool
}

// Prices answers from memory. Safe for concurrent use.
type Prices struct {
	api   pricing.GetProductsAPIClient
	ec2   ec2.DescribeSpotPriceHistoryAPIClient
	clock clock.Clock
	opts  Options

	mu       sync.RWMutex
	onDemand map[string]float64            // from the API; missing ones come from facts
	spot     map[string]map[string]float64 // type to zone; nil until the first answer
	version  uint64
}

// New makes Prices that know the embedded list; Run asks AWS.
func New(api pricing.GetProductsAPIClient, spot ec2.DescribeSpotPriceHistoryAPIClient, clock clock.Clock, opts Options) *Prices {
	return &Prices{api: api, ec2: spot, clock: clock, opts: opts, onDemand: map[string]float64{}, version: 1}
}

// APIRegion is where the Pricing API is asked for a region's prices: it exists in few regions.
func APIRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	default:
		return "us-east-1"
	}
}

// Run keeps the prices up to date until ctx ends.
func (p *Prices) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if p.asksForOnDemand() {
		wg.Go(func() { refresh.Loop(ctx, p.clock, "on-demand prices", refreshPeriod, p.RefreshOnDemand) })
	}
	wg.Go(func() { refresh.Loop(ctx, p.clock, "spot prices", refreshPeriod, p.RefreshSpot) })
	wg.Wait()
}

// asksForOnDemand is false where the Pricing API cannot be reached or does not list the region.
func (p *Prices) asksForOnDemand() bool {
	return !p.opts.Isolated && !strings.HasPrefix(p.opts.Region, "us-gov")
}

// OnDemand returns USD (in China CNY) per hour.
func (p *Prices) OnDemand(instanceType string) (float64, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.onDemandLocked(instanceType)
}

func (p *Prices) onDemandLocked(instanceType string) (float64, bool) {
	if price, ok := p.onDemand[instanceType]; ok {
		return price, true
	}
	if price, ok := facts.OnDemandPrice(p.opts.Region, instanceType); ok {
		return price, true
	}
	if len(facts.Zones(p.opts.Region)) > 0 || strings.HasPrefix(p.opts.Region, "us-gov") {
		return 0, false // the region has a list and the type is not on it
	}
	return facts.OnDemandPrice(fallback, instanceType)
}

// Spot returns USD per hour. Until EC2 has told spot prices it is the on-demand price; from then on a
// type and zone without a price cannot be bought.
func (p *Prices) Spot(instanceType, zone string) (float64, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.spot == nil {
		return p.onDemandLocked(instanceType)
	}
	price, ok := p.spot[instanceType][zone]
	return price, ok
}

// Version changes whenever a price may have.
func (p *Prices) Version() uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.version
}

// RefreshSpot asks EC2 once for the current spot prices.
func (p *Prices) RefreshSpot(ctx context.Context) error {
	type quote struct {
		price float64
		at    time.Time
	}
	quotes := map[string]map[string]quote{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(p.ec2, &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		StartTime:           aws.Time(p.clock.Now()), MaxResults: aws.Int32(2000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("describe spot price history: %w", err)
		}
		for _, s := range page.SpotPriceHistory {
			price, err := strconv.ParseFloat(aws.ToString(s.SpotPrice), 64)
			if err != nil || price <= 0 || s.Timestamp == nil {
				continue
			}
			name, zone := string(s.InstanceType), aws.ToString(s.AvailabilityZone)
			if quotes[name] == nil {
				quotes[name] = map[string]quote{}
			}
			if old, ok := quotes[name][zone]; !ok || s.Timestamp.After(old.at) {
				quotes[name][zone] = quote{price, *s.Timestamp}
			}
		}
	}
	if len(quotes) == 0 {
		return errors.New("EC2 told no spot prices")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spot == nil {
		p.spot = map[string]map[string]float64{}
	}
	for name, zones := range quotes {
		merged := maps.Clone(p.spot[name])
		if merged == nil {
			merged = map[string]float64{}
		}
		for zone, q := range zones {
			merged[zone] = q.price
		}
		p.spot[name] = merged
	}
	p.version++
	return nil
}

// RefreshOnDemand asks the Pricing API once. When either half fails or is empty, nothing changes.
func (p *Prices) RefreshOnDemand(ctx context.Context) error {
	queries := [2][2]string{{"Shared", "Compute Instance"}, {"Dedicated", "Compute Instance (bare metal)"}}
	var found [2]map[string]float64
	var errs [2]error
	var wg sync.WaitGroup
	for i, q := range queries {
		wg.Go(func() { found[i], errs[i] = p.products(ctx, q[0], q[1]) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.onDemand, found[0])
	maps.Copy(p.onDemand, found[1])
	p.version++
	return nil
}

func (p *Prices) products(ctx context.Context, tenancy, family string) (map[string]float64, error) {
	filter := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Field: aws.String(field), Type: pricingtypes.FilterTypeTermMatch, Value: aws.String(value)}
	}
	pages := pricing.NewGetProductsPaginator(p.api, &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100),
		Filters: []pricingtypes.Filter{
			filter("regionCode", p.opts.Region), filter("serviceCode", "AmazonEC2"), filter("preInstalledSw", "NA"),
			filter("operatingSystem", "Linux"), filter("capacitystatus", "Used"), filter("marketoption", "OnDemand"),
			filter("tenancy", tenancy), filter("productFamily", family),
		},
	})
	prices := map[string]float64{}
	currency := "USD"
	if strings.HasPrefix(p.opts.Region, "cn-") {
		currency = "CNY"
	}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("get %s products: %w", strings.ToLower(tenancy), err)
		}
		for _, text := range page.PriceList {
			if name, price, ok := parseProduct(text, currency); ok {
				prices[name] = price
			}
		}
	}
	if len(prices) == 0 {
		return nil, fmt.Errorf("get %s products: no prices for region %s", strings.ToLower(tenancy), p.opts.Region)
	}
	return prices, nil
}

// product is the part of a price list item that matters.
type product struct {
	Product struct {
		Attributes struct {
			InstanceType string `json:"instanceType"`
		} `json:"attributes"`
	} `json:"product"`
	Terms struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]struct {
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

// parseProduct skips what has no positive price: free tiers and placeholders.
func parseProduct(text, currency string) (name string, price float64, ok bool) {
	var p product
	if json.Unmarshal([]byte(text), &p) != nil || p.Product.Attributes.InstanceType == "" {
		return "", 0, false
	}
	for _, term := range p.Terms.OnDemand {
		for _, dimension := range term.PriceDimensions {
			if n, err := strconv.ParseFloat(dimension.PricePerUnit[currency], 64); err == nil && n > 0 {
				return p.Product.Attributes.InstanceType, n, true
			}
		}
	}
	return "", 0, false
}
