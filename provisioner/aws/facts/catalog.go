package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Data is everything a Catalog is made of.
type Data struct {
	Types []InstanceType
	Zones map[string][]Zone // region to its zones
	// OnDemand is region to instance type to USD per hour, Linux, shared tenancy.
	OnDemand map[string]map[string]float64
	// Estimated holds the region to instance type pairs whose price was
	// computed from other regions and not observed.
	Estimated map[string]map[string]bool
	// SpotFactor gives the spot price as a part of the on-demand price; nil
	// means the rule of SpotFactor in this package.
	SpotFactor func(instanceType, zone string) float64
}

// Catalog answers questions about instance types. The zero value knows nothing.
// It is never changed after NewCatalog, so copies may be used concurrently.
type Catalog struct {
	known  []InstanceType // all, sorted by name
	listed []InstanceType // status listed, sorted by name
	index  map[string]int // name to position in known
	data   Data
}

// NewCatalog makes a catalogue of d, which the caller must not change afterwards.
// A type without a name or with a name used twice is an error.
func NewCatalog(d Data) (Catalog, error) {
	c := Catalog{data: d, known: slices.Clone(d.Types), index: make(map[string]int, len(d.Types))}
	slices.SortFunc(c.known, func(a, b InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	c.listed = make([]InstanceType, 0, len(c.known))
	for i, t := range c.known {
		if t.Name == "" {
			return Catalog{}, fmt.Errorf("catalogue entry %d has no name", i)
		}
		if _, twice := c.index[t.Name]; twice {
			return Catalog{}, fmt.Errorf("instance type %s appears twice", t.Name)
		}
		c.index[t.Name] = i
		if t.Status == Listed {
			c.listed = append(c.listed, t)
		}
	}
	return c, nil
}

// Data returns what the catalogue was made of, to derive another one from it.
func (c Catalog) Data() Data { return c.data }

// Types returns the listed types sorted by name. The slice is shared: do not change it.
func (c Catalog) Types() []InstanceType { return c.listed }

// Lookup returns the listed type of that name.
func (c Catalog) Lookup(name string) (InstanceType, bool) {
	t, ok := c.lookup(name)
	if !ok || t.Status != Listed {
		return InstanceType{}, false
	}
	return *t, true
}

func (c Catalog) lookup(name string) (*InstanceType, bool) {
	i, ok := c.index[name]
	if !ok {
		return nil, false
	}
	return &c.known[i], true
}

// Regions returns, sorted, the regions where it is known which zone offers which type.
func (c Catalog) Regions() []string {
	seen := map[string]bool{}
	for i := range c.listed {
		for region := range c.listed[i].Zones {
			seen[region] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Zones returns the zones of a region sorted by name, nil for an unknown region.
func (c Catalog) Zones(region string) []Zone { return slices.Clone(c.data.Zones[region]) }

// ZonesOf returns, sorted, the names of the zones of a region that offer the type.
func (c Catalog) ZonesOf(region, instanceType string) []string {
	t, ok := c.lookup(instanceType)
	if !ok {
		return nil
	}
	letters := t.Zones[region]
	zones := make([]string, 0, len(letters))
	for _, letter := range letters {
		zones = append(zones, region+string(letter))
	}
	return zones
}

// Offers tells whether a zone of a region offers the type.
func (c Catalog) Offers(region, zone, instanceType string) bool {
	t, ok := c.lookup(instanceType)
	letter, inRegion := strings.CutPrefix(zone, region)
	return ok && inRegion && len(letter) == 1 && strings.Contains(t.Zones[region], letter)
}

// OnDemandPrice returns USD per hour for Linux on shared tenancy. It also knows
// regions whose zones are unknown (the us-gov ones) and types that are not listed.
func (c Catalog) OnDemandPrice(region, instanceType string) (float64, bool) {
	price, ok := c.data.OnDemand[region][instanceType]
	return price, ok
}

// PriceEstimated tells whether the on-demand price was computed from the
// us-east-1 price by regional ratios and not read from a price list.
func (c Catalog) PriceEstimated(region, instanceType string) bool {
	return c.data.Estimated[region][instanceType]
}

// SpotPrice returns a simulated spot price in USD per hour, rounded to six
// digits; false when the zone does not offer the type or the type has no spot.
func (c Catalog) SpotPrice(region, zone, instanceType string) (float64, bool) {
	t, ok := c.lookup(instanceType)
	if !ok || !slices.Contains(t.UsageClasses, "spot") || !c.Offers(region, zone, instanceType) {
		return 0, false
	}
	price, ok := c.OnDemandPrice(region, instanceType)
	if !ok {
		return 0, false
	}
	factor := c.data.SpotFactor
	if factor == nil {
		factor = SpotFactor
	}
	return round(price*factor(instanceType, zone), 1e6), true
}

// BandwidthMbps returns the published network bandwidth; false when there is
// none or only a word such as "Moderate". It also knows types that are not listed.
func (c Catalog) BandwidthMbps(instanceType string) (int, bool) {
	t, ok := c.lookup(instanceType)
	if !ok || t.Network.BandwidthMbps == 0 {
		return 0, false
	}
	return t.Network.BandwidthMbps, true
}

// BranchENIs returns how many branch interfaces the type can have, 0 when it
// cannot trunk or nothing is known. It also knows types that are not listed.
func (c Catalog) BranchENIs(instanceType string) int {
	t, ok := c.lookup(instanceType)
	if !ok || !t.BranchENI.Trunking {
		return 0
	}
	return t.BranchENI.Max
}
