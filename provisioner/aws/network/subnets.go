package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

const pageSize = 500

// Subnets knows the free addresses of the subnets that it resolved, less those that launches in flight
// will take. Safe for concurrent use.
type Subnets struct {
	api   ec2.DescribeSubnetsAPIClient
	clock clock.PassiveClock
	keep  time.Duration // how long free addresses are believed

	mu   sync.Mutex
	free map[string]count
}

// count is the number of free addresses of a subnet.
type count struct {
	told    int64 // by EC2
	planned int64 // less what launches since then take; equal to told right after EC2 told
	at      time.Time
}

// NewSubnets makes an empty store. interval is how often classes resolve their subnets.
func NewSubnets(api ec2.DescribeSubnetsAPIClient, clock clock.PassiveClock, interval time.Duration) *Subnets {
	return &Subnets{api: api, clock: clock, keep: max(5*time.Minute, interval+4*time.Minute), free: map[string]count{}}
}

// Resolve asks EC2 for the subnets that match any of the terms, most free addresses first, then by id.
func (s *Subnets) Resolve(ctx context.Context, terms []ec2v1.SubnetSelectorTerm) ([]ec2v1.Subnet, error) {
	found := map[string]ec2types.Subnet{}
	for _, filters := range subnetFilters(terms) {
		pages := ec2.NewDescribeSubnetsPaginator(s.api, &ec2.DescribeSubnetsInput{Filters: filters, MaxResults: aws.Int32(pageSize)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("describe subnets: %w", err)
			}
			for _, subnet := range page.Subnets {
				found[aws.ToString(subnet.SubnetId)] = subnet
			}
		}
	}
	s.remember(found)
	sorted := slices.SortedFunc(maps.Values(found), func(a, b ec2types.Subnet) int {
		return cmp.Or(cmp.Compare(aws.ToInt32(b.AvailableIpAddressCount), aws.ToInt32(a.AvailableIpAddressCount)),
			cmp.Compare(aws.ToString(a.SubnetId), aws.ToString(b.SubnetId)))
	})
	out := make([]ec2v1.Subnet, len(sorted))
	for i, subnet := range sorted {
		out[i] = ec2v1.Subnet{ID: aws.ToString(subnet.SubnetId), Zone: aws.ToString(subnet.AvailabilityZone), ZoneID: aws.ToString(subnet.AvailabilityZoneId)}
	}
	return out, nil
}

func (s *Subnets) remember(found map[string]ec2types.Subnet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for id, subnet := range found {
		n := int64(aws.ToInt32(subnet.AvailableIpAddressCount))
		s.free[id] = count{told: n, planned: n, at: now}
	}
	maps.DeleteFunc(s.free, func(_ string, c count) bool { return now.Sub(c.at) > s.keep })
}

// subnetFilters makes one query of all ids and one per term of tags.
func subnetFilters(terms []ec2v1.SubnetSelectorTerm) [][]ec2types.Filter {
	var queries [][]ec2types.Filter
	var ids []string
	for _, t := range terms {
		if t.ID != "" {
			ids = append(ids, t.ID)
		} else {
			queries = append(queries, TagFilters(t.Tags))
		}
	}
	if len(ids) > 0 {
		queries = append([][]ec2types.Filter{{Filter("subnet-id", ids...)}}, queries...)
	}
	return queries
}

// Filter makes a filter of a describe call.
func Filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

// TagFilters makes filters of selector tags: the value * asks for the key alone.
func TagFilters(tags map[string]string) []ec2types.Filter {
	var filters []ec2types.Filter
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if tags[key] == "*" {
			filters = append(filters, Filter("tag-key", key))
		} else {
			filters = append(filters, Filter("tag:"+key, tags[key]))
		}
	}
	return filters
}

// Plan is what a launch takes from the chosen subnets until EC2 has answered.
type Plan struct {
	// ByZone has the chosen subnet's id of each zone.
	ByZone map[string]string
	taken  map[string]taken // by subnet
}

type taken struct{ addresses, told int64 }

// Choose picks the subnet with the most free addresses for each zone and reserves the addresses that a
// launch there will need. Equal subnets are taken in the given order.
func (s *Subnets) Choose(subnets []ec2v1.Subnet, need func(zone string) int64) Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	plan := Plan{ByZone: map[string]string{}, taken: map[string]taken{}}
	best := map[string]int64{}
	for _, subnet := range subnets {
		n := s.free[subnet.ID].planned
		if _, chosen := plan.ByZone[subnet.Zone]; !chosen || n > best[subnet.Zone] {
			plan.ByZone[subnet.Zone], best[subnet.Zone] = subnet.ID, n
		}
	}
	for zone, id := range plan.ByZone {
		c, known := s.free[id]
		if !known {
			continue
		}
		t := taken{addresses: need(zone), told: c.told}
		c.planned -= t.addresses
		s.free[id], plan.taken[id] = c, t
	}
	return plan
}

// Settle gives the addresses of subnets that got no instance back, unless EC2 has counted since.
func (s *Subnets) Settle(plan Plan, used map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range plan.taken {
		if c, ok := s.free[id]; ok && !used[id] && c.told == t.told {
			c.planned += t.addresses
			s.free[id] = c
		}
	}
}

// Full notes that a subnet has no free address left.
func (s *Subnets) Full(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[id] = count{at: s.clock.Now()}
}
