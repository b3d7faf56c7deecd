package ec2sim

import (
	"slices"
	"strconv"
	"strings"
)

var subnetFilters = filterTable[*subnetState]{
	"subnet-id":            func(sn *subnetState) []string { return []string{sn.ID} },
	"availability-zone":    func(sn *subnetState) []string { return []string{sn.Zone} },
	"availability-zone-id": func(sn *subnetState) []string { return []string{sn.ZoneID} },
	"cidr-block":           func(sn *subnetState) []string { return []string{sn.CIDR} },
	"state":                func(*subnetState) []string { return []string{"available"} },
	"available-ip-address-count": func(sn *subnetState) []string {
		return []string{strconv.Itoa(sn.free())}
	},
}

func (s *Server) describeSubnets(r *request) ([]byte, *apiError) {
	filters := filterTable[*subnetState]{
		"vpc-id":   func(*subnetState) []string { return []string{s.opts.World.VPCID} },
		"owner-id": func(*subnetState) []string { return []string{s.opts.AccountID} },
	}
	for name, get := range subnetFilters {
		filters[name] = get
	}
	pass, bad := filters.compile(r.form, func(sn *subnetState) map[string]string { return sn.Tags })
	if bad != nil {
		return nil, bad
	}
	list := s.subnets
	if ids := r.form.strs("SubnetId"); len(ids) > 0 {
		if list, bad = choose(list, ids, func(sn *subnetState) string { return sn.ID },
			"InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist"); bad != nil {
			return nil, bad
		}
	}
	list = keep(list, pass)
	from, to, next, bad := paging{5, 1000, 0}.window(r.form, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("subnetSet", func() {
		for _, sn := range list[from:to] {
			w.in("item", func() {
				w.text("subnetId", sn.ID)
				w.text("subnetArn", s.arn("ec2", "subnet/"+sn.ID))
				w.text("state", "available")
				w.text("ownerId", s.opts.AccountID)
				w.text("vpcId", s.opts.World.VPCID)
				w.text("cidrBlock", sn.CIDR)
				w.int("availableIpAddressCount", int64(sn.free()))
				w.text("availabilityZone", sn.Zone)
				w.text("availabilityZoneId", sn.ZoneID)
				w.bool("defaultForAz", false)
				w.bool("mapPublicIpOnLaunch", false)
				w.tags(sn.Tags)
			})
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

var groupFilters = filterTable[SecurityGroup]{
	"group-id":    func(g SecurityGroup) []string { return []string{g.ID} },
	"group-name":  func(g SecurityGroup) []string { return []string{g.Name} },
	"description": func(g SecurityGroup) []string { return []string{g.Description} },
}

func (s *Server) describeSecurityGroups(r *request) ([]byte, *apiError) {
	filters := filterTable[SecurityGroup]{
		"vpc-id":   func(SecurityGroup) []string { return []string{s.opts.World.VPCID} },
		"owner-id": func(SecurityGroup) []string { return []string{s.opts.AccountID} },
	}
	for name, get := range groupFilters {
		filters[name] = get
	}
	pass, bad := filters.compile(r.form, func(g SecurityGroup) map[string]string { return g.Tags })
	if bad != nil {
		return nil, bad
	}
	list := s.groups
	if ids := r.form.strs("GroupId"); len(ids) > 0 {
		if list, bad = choose(list, ids, func(g SecurityGroup) string { return g.ID },
			"InvalidGroup.NotFound", "The security group '%s' does not exist"); bad != nil {
			return nil, bad
		}
	}
	list = keep(list, pass)
	from, to, next, bad := paging{5, 1000, 0}.window(r.form, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("securityGroupInfo", func() {
		for _, g := range list[from:to] {
			w.in("item", func() {
				w.text("groupId", g.ID)
				w.text("groupName", g.Name)
				w.text("groupDescription", g.Description)
				w.text("ownerId", s.opts.AccountID)
				w.text("vpcId", s.opts.World.VPCID)
				w.tags(g.Tags)
			})
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

func (s *Server) describeAvailabilityZones(*request) ([]byte, *apiError) {
	w := xmlWriter{}
	w.in("availabilityZoneInfo", func() {
		for _, z := range s.types.catalog.Zones(s.opts.Region) {
			w.in("item", func() {
				w.text("zoneName", z.Name)
				w.text("zoneId", z.ID)
				w.text("zoneState", "available")
				w.text("zoneType", "availability-zone")
				w.text("regionName", s.opts.Region)
			})
		}
	})
	return w.buf, nil
}

// choose picks the things with the given ids; an unknown id fails the call.
func choose[T any](list []T, ids []string, id func(T) string, code, message string) ([]T, *apiError) {
	for _, want := range ids {
		if !slices.ContainsFunc(list, func(x T) bool { return id(x) == want }) {
			return nil, badRequest(code, message, clip(want))
		}
	}
	return keep(list, func(x T) bool { return slices.Contains(ids, id(x)) }), nil
}

func (s *Server) subnet(id string) *subnetState {
	for _, sn := range s.subnets {
		if sn.ID == id {
			return sn
		}
	}
	return nil
}

func (s *Server) arn(service, resource string) string {
	partition := "aws"
	switch {
	case strings.HasPrefix(s.opts.Region, "cn-"):
		partition = "aws-cn"
	case strings.HasPrefix(s.opts.Region, "us-gov-"):
		partition = "aws-us-gov"
	}
	region := s.opts.Region
	if service == "iam" {
		region = ""
	}
	return "arn:" + partition + ":" + service + ":" + region + ":" + s.opts.AccountID + ":" + resource
}
