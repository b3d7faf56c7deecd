package types

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/refresh"
	"github.com/berth-dev/berth/provisioner/catalog"
)

const (
	refreshPeriod = 12 * time.Hour
	// keepIdle is how long the types of a class that nobody asks for are kept.
	keepIdle = 10 * time.Minute
)

// EC2 is what the catalogue asks of EC2.
type EC2 interface {
	ec2.DescribeInstanceTypesAPIClient
	ec2.DescribeInstanceTypeOfferingsAPIClient
}

// VersionedPrices also tell when they change.
type VersionedPrices interface {
	Prices
	Version() uint64
}

// Deps of a Catalog; all are needed.
type Deps struct {
	EC2     EC2
	Prices  VersionedPrices
	Stock   *Unavailable
	Clock   clock.Clock
	Metrics *Metrics
}

// Catalog knows the instance types of the region and computes what they are for each class. Results
// are shared until something changes. Safe for concurrent use.
type Catalog struct {
	deps     Deps
	settings Settings

	mu      sync.Mutex
	infos   []*ec2types.InstanceTypeInfo // sorted by name
	offered map[string][]string          // type name to zone names, sorted
	zones   []string                     // all, sorted
	version uint64                       // of the three above
	classes map[apitypes.UID]*entry
	known   chan struct{} // closed once the types are known
}

// entry is what was computed for a class.
type entry struct {
	key, offeringKey string // of the inputs
	base             []*catalog.InstanceType
	types            []*catalog.InstanceType
	used             time.Time
}

// NewCatalog makes an empty catalogue; Run fills it.
func NewCatalog(deps Deps, settings Settings) *Catalog {
	return &Catalog{deps: deps, settings: settings, classes: map[apitypes.UID]*entry{}, known: make(chan struct{})}
}

// Known is closed as soon as the types of the region are known.
func (c *Catalog) Known() <-chan struct{} { return c.known }

// Run keeps the catalogue up to date until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	refresh.Loop(ctx, c.deps.Clock, "instance types", refreshPeriod, c.Refresh)
}

// Refresh asks EC2 once. On an error everything stays as it was.
func (c *Catalog) Refresh(ctx context.Context) error {
	infos, err := c.describeTypes(ctx)
	if err != nil {
		return err
	}
	offered, err := c.describeOfferings(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(infos) == 0:
		return errors.New("EC2 described no instance types")
	case len(offered) == 0:
		return errors.New("EC2 described no instance type offerings")
	}
	zones := map[string]bool{}
	for _, names := range offered {
		for _, zone := range names {
			zones[zone] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == 0 {
		close(c.known)
		klog.FromContext(ctx).V(2).Info("Instance types are known", "types", len(infos), "zones", len(zones))
	}
	c.infos, c.offered, c.zones = infos, offered, slices.Sorted(maps.Keys(zones))
	c.version++
	clear(c.classes)
	c.deps.Metrics.setTypes(infos)
	return nil
}

func (c *Catalog) describeTypes(ctx context.Context) ([]*ec2types.InstanceTypeInfo, error) {
	var infos []*ec2types.InstanceTypeInfo
	pages := ec2.NewDescribeInstanceTypesPaginator(c.deps.EC2, &ec2.DescribeInstanceTypesInput{
		MaxResults: aws.Int32(100),
		Filters: []ec2types.Filter{
			{Name: aws.String("supported-virtualization-type"), Values: []string{"hvm"}},
			{Name: aws.String("processor-info.supported-architecture"), Values: []string{"x86_64", "arm64"}},
		},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe instance types: %w", err)
		}
		for i := range page.InstanceTypes {
			infos = append(infos, &page.InstanceTypes[i])
		}
	}
	slices.SortFunc(infos, func(a, b *ec2types.InstanceTypeInfo) int { return cmp.Compare(a.InstanceType, b.InstanceType) })
	return infos, nil
}

func (c *Catalog) describeOfferings(ctx context.Context) (map[string][]string, error) {
	offered := map[string][]string{}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(c.deps.EC2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe instance type offerings: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			offered[string(o.InstanceType)] = append(offered[string(o.InstanceType)], aws.ToString(o.Location))
		}
	}
	for _, zones := range offered {
		slices.Sort(zones)
	}
	return offered, nil
}

// ForClass returns the types as the class would launch them, sorted by name, with the offerings of now.
// The result is shared and must not be changed; it is the same slice as before when nothing changed.
func (c *Catalog) ForClass(nc *ec2v1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	prices, stock := c.deps.Prices.Version(), c.deps.Stock.Version()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.infos) == 0:
		return nil, errors.New("no instance types found: EC2 has not answered yet")
	case len(nc.Status.Subnets) == 0:
		return nil, fmt.Errorf("no subnets found: class %s has none in its status", nc.Name)
	}
	now := c.deps.Clock.Now()
	c.dropIdle(now)
	class := ClassOf(nc)
	key := fmt.Sprint(c.version, nc.Generation, class.Zones)
	e := c.classes[nc.UID]
	if e == nil || e.key != key {
		e = &entry{key: key, base: c.convertAll(&class)}
		c.classes[nc.UID] = e
	}
	e.used = now
	offeringKey := strconv.FormatUint(prices, 10) + "/" + strconv.FormatUint(stock, 10) + fmt.Sprint(class.Subnets)
	if e.types == nil || e.offeringKey != offeringKey {
		e.types, e.offeringKey = c.offer(e.base, &class), offeringKey
	}
	return e.types, nil
}

func (c *Catalog) dropIdle(now time.Time) {
	maps.DeleteFunc(c.classes, func(_ apitypes.UID, e *entry) bool { return now.Sub(e.used) > keepIdle })
}

func (c *Catalog) convertAll(class *Class) []*catalog.InstanceType {
	out := make([]*catalog.InstanceType, len(c.infos))
	for i, info := range c.infos {
		out[i] = Convert(info, c.offered[string(info.InstanceType)], class, c.settings)
	}
	return out
}

func (c *Catalog) offer(base []*catalog.InstanceType, class *Class) []*catalog.InstanceType {
	maker := newOfferingMaker(class, c.zones, c.deps.Prices, c.deps.Stock)
	out := make([]*catalog.InstanceType, len(base))
	for i, it := range base {
		withOfferings := *it
		withOfferings.Offerings = maker.offerings(c.infos[i], c.offered[it.Name])
		out[i] = &withOfferings
	}
	return out
}

// Info returns what EC2 tells about a type.
func (c *Catalog) Info(name string) (*ec2types.InstanceTypeInfo, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := slices.BinarySearchFunc(c.infos, name, func(info *ec2types.InstanceTypeInfo, name string) int {
		return cmp.Compare(string(info.InstanceType), name)
	})
	if !ok {
		return nil, false
	}
	return c.infos[i], true
}

// Names lists the types of the region, sorted.
func (c *Catalog) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, len(c.infos))
	for i, info := range c.infos {
		names[i] = string(info.InstanceType)
	}
	return names
}
