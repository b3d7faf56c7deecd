package facts

import (
	"bytes"
	_ "embed"
	"fmt"
	"sync"
)

//go:embed catalogue.tsv.gz
var embedded []byte

var load = sync.OnceValues(func() (Catalog, error) {
	data, err := Decode(bytes.NewReader(embedded))
	if err != nil {
		return Catalog{}, fmt.Errorf("decode embedded catalogue: %w", err)
	}
	return NewCatalog(data)
})

// Load returns the embedded catalogue, decoded once. An error means that the
// binary was built from a damaged catalogue.tsv.gz.
func Load() (Catalog, error) { return load() }

// Default is Load for callers that cannot go on without facts: it panics when
// the embedded file is damaged, which a test of this package rules out.
func Default() Catalog {
	c, err := load()
	if err != nil {
		panic(err)
	}
	return c
}

// The functions below ask the embedded catalogue; see the methods of Catalog.

// Types returns the listed types sorted by name. Shared: do not change it.
func Types() []InstanceType { return Default().Types() }

// Lookup returns the listed type of that name.
func Lookup(name string) (InstanceType, bool) { return Default().Lookup(name) }

// Regions returns the regions where it is known which zone offers which type.
func Regions() []string { return Default().Regions() }

// Zones returns the zones of a region sorted by name.
func Zones(region string) []Zone { return Default().Zones(region) }

// ZonesOf returns the names of the zones of a region that offer the type.
func ZonesOf(region, instanceType string) []string { return Default().ZonesOf(region, instanceType) }

// OnDemandPrice returns USD per hour for Linux on shared tenancy.
func OnDemandPrice(region, instanceType string) (float64, bool) {
	return Default().OnDemandPrice(region, instanceType)
}

// SpotPrice returns a simulated spot price in USD per hour.
func SpotPrice(region, zone, instanceType string) (float64, bool) {
	return Default().SpotPrice(region, zone, instanceType)
}

// BandwidthMbps returns the published network bandwidth of a type.
func BandwidthMbps(instanceType string) (int, bool) { return Default().BandwidthMbps(instanceType) }

// BranchENIs returns how many branch interfaces a type can have.
func BranchENIs(instanceType string) int { return Default().BranchENIs(instanceType) }
