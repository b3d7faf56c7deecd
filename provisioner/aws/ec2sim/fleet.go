package ec2sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// candidate is one override of one template of a fleet request: a machine that
// the caller would accept.
type candidate struct {
	template *launchTemplate
	override *node // absent members echo as absent
	entry    *typeEntry
	subnet   *subnetState
	image    *Image
	pool     poolKey
	price    float64
	priority float64
	rank     float64 // of the pool's spare capacity; greater is better
	position int
	refused  *apiError // why this one cannot be launched
	ids      []string  // launched
}

// fleetRequest is a CreateFleet request after reading.
type fleetRequest struct {
	total        int
	capacityType string // spot, on-demand or reserved
	lifecycle    string // as replies say it
	strategy     string
	candidates   []*candidate
	instanceTags map[string]string
}

func (s *Server) createFleet(r *request) ([]byte, *apiError) {
	if known, body, bad := s.tokens.look(r); known {
		return body, bad
	}
	req, bad := s.readFleet(r.form)
	if bad != nil {
		return nil, bad
	}
	dry, bad := r.form.boolean("DryRun")
	if bad != nil || dry {
		return nil, orDryRun(bad)
	}
	fleetID := "fleet-" + s.newUUID("fleet")
	s.fill(req, fleetID, r.form.str("ClientToken"))
	body := s.fleetXML(req, fleetID)
	s.tokens.keep(r, body)
	return body, nil
}

var targetTypes = map[string]struct{ capacityType, lifecycle string }{
	"":                  {OnDemand, OnDemand},
	"on-demand":         {OnDemand, OnDemand},
	"spot":              {Spot, Spot},
	"capacity-block":    {Reserved, "capacity-block"},
	"reserved-capacity": {Reserved, "reserved-capacity"},
}

var strategies = map[string][]string{
	Spot: {"lowest-price", "diversified", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized",
		"lowestPrice", "capacityOptimized", "priceCapacityOptimized", "capacityOptimizedPrioritized"},
	OnDemand: {"lowest-price", "prioritized", "lowestPrice"},
}

func (s *Server) readFleet(f *form) (*fleetRequest, *apiError) {
	if kind := f.str("Type"); kind != "instant" {
		return nil, badRequest("UnsupportedOperation", "Fleets of type '%s' are not simulated; use instant", clip(kind))
	}
	req := &fleetRequest{}
	var bad *apiError
	if !f.has("TargetCapacitySpecification.TotalTargetCapacity") {
		return nil, missing("TargetCapacitySpecification.TotalTargetCapacity")
	}
	if req.total, bad = f.integer("TargetCapacitySpecification.TotalTargetCapacity", 0); bad != nil {
		return nil, bad
	}
	if req.total < 1 || req.total > 10_000 { // quota "target capacity per EC2 Fleet"
		return nil, badRequest("InvalidTargetCapacity", "TotalTargetCapacity %d is not between 1 and 10000", req.total)
	}
	target, known := targetTypes[f.str("TargetCapacitySpecification.DefaultTargetCapacityType")]
	if !known {
		return nil, badRequest("InvalidParameterValue", "Value (%s) for parameter DefaultTargetCapacityType is invalid",
			clip(f.str("TargetCapacitySpecification.DefaultTargetCapacityType")))
	}
	req.capacityType, req.lifecycle = target.capacityType, target.lifecycle
	option := map[string]string{Spot: "SpotOptions", OnDemand: "OnDemandOptions"}[req.capacityType]
	if option != "" {
		req.strategy = cmp.Or(f.str(option+".AllocationStrategy"), "lowest-price")
		if !slices.Contains(strategies[req.capacityType], req.strategy) {
			return nil, badRequest("InvalidParameterValue", "Value (%s) for parameter %s.AllocationStrategy is invalid", clip(req.strategy), option)
		}
	}
	specs, bad := tagSpecifications(&f.node)
	if bad != nil {
		return nil, bad
	}
	for kind := range specs {
		if !slices.Contains([]string{"fleet", "instance", "volume", "network-interface", "spot-instances-request"}, kind) {
			return nil, badRequest("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", clip(kind))
		}
	}
	req.instanceTags = specs["instance"]
	return req, s.readCandidates(f, req)
}

func (s *Server) readCandidates(f *form, req *fleetRequest) *apiError {
	configs := f.list("LaunchTemplateConfigs")
	if len(configs) == 0 {
		return missing("LaunchTemplateConfigs")
	}
	if len(configs) > 50 {
		return badRequest("InvalidFleetConfig", "A fleet may have at most 50 launch template configs, not %d", len(configs))
	}
	seen := map[poolKey]bool{}
	for _, config := range configs {
		if !config.has("LaunchTemplateSpecification") {
			return missing("LaunchTemplateConfigs.LaunchTemplateSpecification")
		}
		t, bad := s.templateVersion(config.at("LaunchTemplateSpecification"))
		if bad != nil {
			return bad
		}
		overrides := config.list("Overrides")
		if len(overrides) == 0 {
			overrides = []*node{{}}
		}
		for _, o := range overrides {
			c := &candidate{template: t, override: o, position: len(req.candidates)}
			if c.priority, bad = o.float("Priority", 1e18); bad != nil { // without one it comes last
				return bad
			}
			c.refused = s.examine(c, req)
			if seen[c.pool] && c.refused == nil {
				return badRequest("InvalidFleetConfig", "The fleet configuration contains duplicate instance pools: %s in %s",
					c.pool.instanceType, c.pool.zone)
			}
			seen[c.pool] = true
			req.candidates = append(req.candidates, c)
		}
	}
	return nil
}

// examine resolves what an override names and tells why it cannot be launched.
func (s *Server) examine(c *candidate, req *fleetRequest) *apiError {
	o, data := c.override, &c.template.data
	name := cmp.Or(o.str("InstanceType"), data.instanceType)
	zone := o.str("AvailabilityZone")
	id := o.str("SubnetId")
	c.pool = poolKey{name, zone, req.capacityType}
	switch {
	case id != "":
		if c.subnet = s.subnet(id); c.subnet == nil {
			return badRequest("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", clip(id))
		}
		if zone != "" && zone != c.subnet.Zone {
			return badRequest("InvalidParameterValue", "Value (%s) for parameter availabilityZone is invalid. Subnet '%s' is in the availability zone %s",
				clip(zone), id, c.subnet.Zone)
		}
		c.pool.zone = c.subnet.Zone
	default: // the simulated VPC is not a default one
		return badRequest("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
	}
	if name == "" {
		return missing("InstanceType")
	}
	if c.entry = s.types.byName[name]; c.entry == nil {
		return badRequest("InvalidParameterValue", "Invalid value '%s' for InstanceType.", clip(name))
	}
	if !c.entry.offers(c.pool.zone) {
		return badRequest("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s). Please retry your request by not specifying an Availability Zone or choosing %s.",
			name, c.pool.zone, strings.Join(c.entry.zones, ", "))
	}
	if bad := s.examineTemplate(c); bad != nil {
		return bad
	}
	c.price = c.entry.price
	if req.capacityType == Spot {
		if !c.entry.spotCapable() {
			return badRequest("UnsupportedOperation", "The instance type %s does not support spot.", name)
		}
		c.price = c.entry.spot[c.pool.zone]
	}
	if code := s.pools.errorCode(c.pool); code != "" {
		return launchError(code, c.pool)
	}
	if data.reservationID != "" {
		return s.examineReservation(c)
	}
	if s.pools.left(c.pool) == 0 {
		return launchError("InsufficientInstanceCapacity", c.pool)
	}
	return nil
}

// examineTemplate checks what the template says beside the override: image,
// instance profile and security groups.
func (s *Server) examineTemplate(c *candidate) *apiError {
	data := &c.template.data
	imageID := cmp.Or(c.override.str("ImageId"), data.imageID)
	if imageID == "" {
		return missing("ImageId")
	}
	if bad := checkImageID(imageID); bad != nil {
		return bad
	}
	if c.image = s.images.byID[imageID]; c.image == nil {
		return badRequest("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", imageID)
	}
	if !slices.Contains(c.entry.Architectures, c.image.Arch) {
		return badRequest("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.",
			strings.Join(c.entry.Architectures, ","), c.image.Arch)
	}
	if data.profile != "" && !s.iam.has(data.profile) {
		return badProfile(data.profile)
	}
	for _, id := range data.groups {
		if !slices.ContainsFunc(s.groups, func(g SecurityGroup) bool { return g.ID == id }) {
			return badRequest("InvalidGroup.NotFound", "The security group '%s' does not exist", clip(id))
		}
	}
	return nil
}

func badProfile(name string) *apiError {
	return badRequest("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", clip(name))
}

func (s *Server) examineReservation(c *candidate) *apiError {
	res := s.reservation(c.template.data.reservationID)
	switch {
	case res == nil:
		return noReservation(c.template.data.reservationID)
	case res.InstanceType != c.pool.instanceType || res.Zone != c.pool.zone:
		return badRequest("InvalidParameterValue", "The capacity reservation %s is for %s in %s", res.ID, res.InstanceType, res.Zone)
	case res.Available < 1 || res.State != "active":
		return badRequest("ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible and available capacity for this request.")
	}
	return nil
}

func launchError(code string, k poolKey) *apiError {
	if code == "InsufficientInstanceCapacity" && k.capacityType == Spot {
		return badRequest(code, "There is no Spot capacity available that matches your request.")
	}
	if code == "InsufficientInstanceCapacity" {
		return badRequest(code, "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be working on provisioning additional capacity.",
			k.instanceType, k.zone)
	}
	if code == "InsufficientFreeAddressesInSubnet" {
		return badRequest(code, "There are not enough free addresses in the subnet to satisfy the requested number of instances.")
	}
	return injected(code)
}

// fill launches up to total instances in the order of the allocation strategy.
func (s *Server) fill(req *fleetRequest, fleetID, token string) {
	open := keep(req.candidates, func(c *candidate) bool { return c.refused == nil })
	for _, c := range open {
		c.rank = s.pools.rank(c.pool)
	}
	for launched := 0; launched < req.total && len(open) > 0; {
		c := pick(req, open)
		for launched < req.total {
			if c.refused = s.exhausted(c); c.refused != nil {
				break
			}
			c.ids = append(c.ids, s.launch(c, req, fleetID, token).ID)
			launched++
			if req.strategy == "diversified" {
				break
			}
		}
		c.rank = s.pools.rank(c.pool)
		if c.refused != nil {
			open = slices.DeleteFunc(open, func(o *candidate) bool { return o == c })
		}
	}
}

func (s *Server) exhausted(c *candidate) *apiError {
	if c.subnet.free() < 1 {
		return launchError("InsufficientFreeAddressesInSubnet", c.pool)
	}
	if c.template.data.reservationID != "" {
		return s.examineReservation(c)
	}
	if s.pools.left(c.pool) < 1 {
		return launchError("InsufficientInstanceCapacity", c.pool)
	}
	return nil
}

// pick chooses the next candidate as the strategy wants it. The strategies that
// look at capacity take the half of the pools with most of it and choose there,
// so the cheapest pool is often passed over.
func pick(req *fleetRequest, open []*candidate) *candidate {
	depth := func(a, b *candidate) int { return cmp.Compare(b.rank, a.rank) }
	price := func(a, b *candidate) int { return cmp.Compare(a.price, b.price) }
	priority := func(a, b *candidate) int { return cmp.Compare(a.priority, b.priority) }
	position := func(a, b *candidate) int { return cmp.Compare(a.position, b.position) }
	fewest := func(a, b *candidate) int { return cmp.Compare(len(a.ids), len(b.ids)) }

	deepHalf := func() []*candidate {
		sorted := slices.SortedStableFunc(slices.Values(open), depth)
		return sorted[:(len(sorted)+1)/2]
	}
	best := func(list []*candidate, orders ...func(a, b *candidate) int) *candidate {
		return slices.MinFunc(list, func(a, b *candidate) int {
			for _, order := range append(orders, position) {
				if c := order(a, b); c != 0 {
					return c
				}
			}
			return 0
		})
	}
	switch req.strategy {
	case "price-capacity-optimized", "priceCapacityOptimized":
		return best(deepHalf(), price, depth)
	case "capacity-optimized", "capacityOptimized":
		return best(open, depth, price)
	case "capacity-optimized-prioritized", "capacityOptimizedPrioritized":
		return best(deepHalf(), priority, depth)
	case "diversified":
		return best(open, fewest, price, depth)
	case "prioritized":
		return best(open, priority, price, depth)
	default: // lowest-price, and reserved capacity, which has no strategy
		return best(open, price, depth)
	}
}

func (s *Server) fleetXML(req *fleetRequest, fleetID string) []byte {
	w := xmlWriter{buf: make([]byte, 0, 512*(len(req.candidates)+1))}
	w.text("fleetId", fleetID)
	w.in("errorSet", func() {
		for _, c := range req.candidates {
			if c.refused == nil {
				continue
			}
			w.in("item", func() {
				c.echo(&w)
				w.text("lifecycle", req.lifecycle)
				w.text("errorCode", c.refused.code)
				w.text("errorMessage", c.refused.message)
			})
		}
	})
	w.in("fleetInstanceSet", func() {
		for _, c := range req.candidates {
			if len(c.ids) == 0 {
				continue
			}
			w.in("item", func() {
				c.echo(&w)
				w.text("lifecycle", req.lifecycle)
				w.items("instanceIds", c.ids)
				w.text("instanceType", c.entry.Name)
				if c.image.Windows {
					w.text("platform", "Windows")
				}
			})
		}
	})
	return w.buf
}

// echo repeats the override as it was asked for.
func (c *candidate) echo(w *xmlWriter) {
	w.in("launchTemplateAndOverrides", func() {
		w.in("launchTemplateSpecification", func() {
			w.text("launchTemplateId", c.template.id)
			w.text("launchTemplateName", c.template.name)
			w.text("version", "1")
		})
		w.in("overrides", func() {
			w.opt("instanceType", c.override.str("InstanceType"))
			w.opt("subnetId", c.override.str("SubnetId"))
			w.opt("availabilityZone", c.override.str("AvailabilityZone"))
			w.opt("imageId", c.override.str("ImageId"))
			w.opt("priority", c.override.str("Priority"))
		})
	})
}

// runInstances answers dry runs; the provisioner launches by CreateFleet only.
func (s *Server) runInstances(r *request) ([]byte, *apiError) {
	f := r.form
	t := &launchTemplate{}
	if f.has("LaunchTemplate") {
		var bad *apiError
		if t, bad = s.templateVersion(f.at("LaunchTemplate")); bad != nil {
			return nil, bad
		}
	}
	for _, name := range []string{"MinCount", "MaxCount"} {
		n, bad := f.integer(name, 0)
		if bad != nil {
			return nil, bad
		}
		if n < 1 {
			return nil, missing(name)
		}
	}
	subnetID := f.str("SubnetId")
	for _, nic := range f.list("NetworkInterface") {
		subnetID = cmp.Or(nic.str("SubnetId"), subnetID)
	}
	o := &node{}
	for key, value := range map[string]string{"InstanceType": f.str("InstanceType"), "ImageId": f.str("ImageId"), "SubnetId": subnetID} {
		if value != "" {
			if bad := o.put(key, value); bad != nil {
				return nil, bad
			}
		}
	}
	if _, bad := tagSpecifications(&f.node); bad != nil {
		return nil, bad
	}
	dry, bad := f.boolean("DryRun")
	if bad != nil {
		return nil, bad
	}
	c := &candidate{template: t, override: o}
	if bad := s.examine(c, &fleetRequest{capacityType: OnDemand}); bad != nil && (!dry || !capacityCode(bad.code)) {
		return nil, bad
	}
	if !dry {
		return nil, badRequest("UnsupportedOperation", "RunInstances is simulated as a dry run only; %s", fmt.Sprintf("use CreateFleet for %s", c.pool.instanceType))
	}
	return nil, dryRun()
}

// capacityCode tells the refusals that a dry run does not look for.
func capacityCode(code string) bool {
	return code == "InsufficientInstanceCapacity" || code == "InsufficientFreeAddressesInSubnet" || code == "ReservationCapacityExceeded"
}
