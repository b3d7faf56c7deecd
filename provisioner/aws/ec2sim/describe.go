package ec2sim

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var stateCodes = map[string]int64{
	"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80,
}

var instanceFilters = filterTable[*instance]{
	"instance-id":              func(i *instance) []string { return []string{i.ID} },
	"instance-state-name":      func(i *instance) []string { return []string{i.State} },
	"instance-type":            func(i *instance) []string { return []string{i.Type} },
	"availability-zone":        func(i *instance) []string { return []string{i.Zone} },
	"availability-zone-id":     func(i *instance) []string { return []string{i.ZoneID} },
	"subnet-id":                func(i *instance) []string { return []string{i.SubnetID} },
	"image-id":                 func(i *instance) []string { return []string{i.ImageID} },
	"private-dns-name":         func(i *instance) []string { return []string{i.PrivateDNSName} },
	"private-ip-address":       func(i *instance) []string { return []string{i.PrivateIP} },
	"instance-lifecycle":       func(i *instance) []string { return present(i.lifecycle()) },
	"spot-instance-request-id": func(i *instance) []string { return present(i.SpotRequestID) },
	"capacity-reservation-id":  func(i *instance) []string { return present(i.CapacityReservationID) },
	"client-token":             func(i *instance) []string { return present(i.token) },
	"instance.group-id":        func(i *instance) []string { return i.SecurityGroupIDs },
}

func present(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func (i *instance) lifecycle() string {
	switch {
	case i.CapacityType == Spot:
		return "spot"
	case i.spec.marketType != "":
		return i.spec.marketType
	}
	return ""
}

var instanceIDPattern = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// named finds instances by id; a malformed or unknown one fails the call.
func (s *Server) named(ids []string, hideNew bool) ([]*instance, *apiError) {
	list := make([]*instance, 0, len(ids))
	var unknown []string
	now := s.opts.Clock.Now()
	for _, id := range ids {
		if !instanceIDPattern.MatchString(id) {
			return nil, badRequest("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", clip(id))
		}
		i, ok := s.instances[id]
		if !ok || hideNew && i.visibleAt.After(now) {
			unknown = append(unknown, id)
			continue
		}
		if !slices.Contains(list, i) {
			list = append(list, i)
		}
	}
	switch len(unknown) {
	case 0:
		return list, nil
	case 1:
		return nil, badRequest("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", unknown[0])
	default:
		return nil, badRequest("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(unknown, ", "))
	}
}

func (s *Server) describeInstances(r *request) ([]byte, *apiError) {
	f := r.form
	ids := f.strs("InstanceId")
	if len(ids) > 0 && f.has("MaxResults") {
		return nil, badRequest("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	pass, bad := instanceFilters.compile(f, (*instance).allTags)
	if bad != nil {
		return nil, bad
	}
	list := s.order
	if len(ids) > 0 {
		if list, bad = s.named(ids, true); bad != nil {
			return nil, bad
		}
	}
	now := s.opts.Clock.Now()
	list = keep(list, func(i *instance) bool { return !i.visibleAt.After(now) && pass(i) })
	from, to, next, bad := paging{5, 1000, 0}.window(f, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{buf: make([]byte, 0, 2048*(to-from)+64)}
	w.in("reservationSet", func() {
		for _, i := range list[from:to] {
			w.in("item", func() {
				w.text("reservationId", "r-"+i.ID[2:])
				w.text("ownerId", s.opts.AccountID)
				w.in("instancesSet", func() { w.in("item", func() { s.instanceXML(&w, i) }) })
			})
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

func (s *Server) instanceXML(w *xmlWriter, i *instance) {
	d := i.spec
	w.text("instanceId", i.ID)
	w.text("imageId", i.ImageID)
	w.in("instanceState", func() { stateXML(w, i.State) })
	gone := i.State == "terminated"
	if !gone {
		w.text("privateDnsName", i.PrivateDNSName)
		w.text("privateIpAddress", i.PrivateIP)
		w.text("subnetId", i.SubnetID)
		w.text("vpcId", s.opts.World.VPCID)
	}
	w.opt("reason", i.reason)
	w.text("instanceType", i.Type)
	w.time("launchTime", i.LaunchTime)
	w.in("placement", func() {
		w.text("availabilityZone", i.Zone)
		w.text("availabilityZoneId", i.ZoneID)
		w.opt("groupId", d.groupID)
		tenancy := d.tenancy
		if tenancy == "" {
			tenancy = "default"
		}
		w.text("tenancy", tenancy)
		if d.partition > 0 {
			w.int("partitionNumber", int64(d.partition))
		}
	})
	if d.profile != "" {
		w.in("iamInstanceProfile", func() { w.text("arn", s.arn("iam", "instance-profile/"+d.profile)) })
	}
	w.opt("spotInstanceRequestId", i.SpotRequestID)
	w.opt("instanceLifecycle", i.lifecycle())
	if i.CapacityReservationID != "" {
		w.text("capacityReservationId", i.CapacityReservationID)
	}
	w.in("capacityReservationSpecification", func() {
		preference := d.preference
		if preference == "" {
			preference = "open"
		}
		w.text("capacityReservationPreference", preference)
	})
	w.in("groupSet", func() { groupsXML(w, i.SecurityGroupIDs) })
	if !gone {
		s.interfacesXML(w, i)
	}
	w.opt("clientToken", i.token)
	w.text("architecture", s.images.byID[i.ImageID].Arch)
	w.text("hypervisor", "xen")
	w.text("virtualizationType", "hvm")
	w.text("rootDeviceType", "ebs")
	w.tags(i.allTags())
}

func stateXML(w *xmlWriter, state string) {
	w.int("code", stateCodes[state])
	w.text("name", state)
}

func groupsXML(w *xmlWriter, ids []string) {
	for _, id := range ids {
		w.in("item", func() { w.text("groupId", id) })
	}
}

func (s *Server) interfacesXML(w *xmlWriter, i *instance) {
	kinds := i.spec.interfaces
	if len(kinds) == 0 {
		kinds = []string{""}
	}
	w.in("networkInterfaceSet", func() {
		for n, kind := range kinds {
			if kind == "" {
				kind = "interface"
			}
			w.in("item", func() {
				w.text("networkInterfaceId", i.nic[:len(i.nic)-2]+strconv.FormatInt(int64(16+n), 16))
				w.text("subnetId", i.SubnetID)
				w.text("status", "in-use")
				w.text("interfaceType", kind)
				if n == 0 {
					w.text("privateIpAddress", i.PrivateIP)
					w.text("privateDnsName", i.PrivateDNSName)
				}
				w.in("groupSet", func() { groupsXML(w, i.SecurityGroupIDs) })
			})
		}
	})
}

func (s *Server) terminateInstances(r *request) ([]byte, *apiError) {
	ids := r.form.strs("InstanceId")
	if len(ids) == 0 {
		return nil, missing("InstanceId")
	}
	list, bad := s.named(ids, false)
	if bad != nil {
		return nil, bad
	}
	dry, bad := r.form.boolean("DryRun")
	if bad != nil || dry {
		return nil, orDryRun(bad)
	}
	w := xmlWriter{}
	w.in("instancesSet", func() {
		for _, i := range list {
			before := i.State
			s.end(i, "Client.UserInitiatedShutdown: User initiated shutdown")
			w.in("item", func() {
				w.text("instanceId", i.ID)
				w.in("currentState", func() { stateXML(&w, i.State) })
				w.in("previousState", func() { stateXML(&w, before) })
			})
		}
	})
	return w.buf, nil
}

func (s *Server) createTags(r *request) ([]byte, *apiError) {
	f := r.form
	ids := f.strs("ResourceId")
	tags, bad := f.tags("Tag")
	switch {
	case bad != nil:
		return nil, bad
	case len(ids) == 0:
		return nil, missing("ResourceId")
	case len(tags) == 0:
		return nil, missing("Tag")
	}
	var set []func()
	for _, id := range ids {
		target, bad := s.taggable(id)
		if bad != nil {
			return nil, bad
		}
		set = append(set, func() {
			if *target == nil {
				*target = map[string]string{}
			}
			merged := maps.Clone(*target) // copies handed out earlier stay as they were
			maps.Copy(merged, tags)
			*target = merged
		})
	}
	dry, bad := f.boolean("DryRun")
	if bad != nil || dry {
		return nil, orDryRun(bad)
	}
	for _, act := range set {
		act()
	}
	for _, id := range ids {
		if i := s.instances[id]; i != nil {
			i.merged = nil
		}
	}
	w := xmlWriter{}
	w.bool("return", true)
	return w.buf, nil
}

// taggable finds the tags of a resource by its id.
func (s *Server) taggable(id string) (*map[string]string, *apiError) {
	kind, _, _ := strings.Cut(id, "-")
	switch kind {
	case "i":
		list, bad := s.named([]string{id}, true)
		if bad != nil {
			return nil, bad
		}
		if list[0].State == "terminated" {
			return nil, badRequest("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
		return &list[0].Tags, nil
	case "lt":
		if t, ok := s.templates[s.templateIDs[id]]; ok {
			return &t.tags, nil
		}
		return nil, noTemplateID(id)
	case "subnet":
		if sn := s.subnet(id); sn != nil {
			return &sn.Tags, nil
		}
		return nil, badRequest("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", clip(id))
	case "sg":
		for i := range s.groups {
			if s.groups[i].ID == id {
				return &s.groups[i].Tags, nil
			}
		}
		return nil, badRequest("InvalidGroup.NotFound", "The security group '%s' does not exist", clip(id))
	}
	return nil, badRequest("InvalidID", "The ID '%s' is not valid", clip(id))
}

var statusFilters = filterTable[*instance]{
	"instance-state-name":    func(i *instance) []string { return []string{i.State} },
	"availability-zone":      func(i *instance) []string { return []string{i.Zone} },
	"instance-status.status": func(i *instance) []string { return []string{statusWord(i.ailing.instance)} },
	"system-status.status":   func(i *instance) []string { return []string{statusWord(i.ailing.system)} },
	"attached-ebs-status.status": func(*instance) []string {
		return []string{"ok"}
	},
	"event.code":                   func(i *instance) []string { return i.ailing.codes() },
	"instance-status.reachability": func(*instance) []string { return []string{"passed"} },
	"system-status.reachability":   func(*instance) []string { return []string{"passed"} },
}

// describeInstanceStatus finds running machines healthy, but for those that tests made ail.
func (s *Server) describeInstanceStatus(r *request) ([]byte, *apiError) {
	f := r.form
	ids := f.strs("InstanceId")
	if len(ids) > 0 && f.has("MaxResults") {
		return nil, badRequest("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	pass, bad := statusFilters.compile(f, (*instance).allTags)
	if bad != nil {
		return nil, bad
	}
	all, bad := f.boolean("IncludeAllInstances")
	if bad != nil {
		return nil, bad
	}
	list := s.order
	if len(ids) > 0 {
		if list, bad = s.named(ids, true); bad != nil {
			return nil, bad
		}
	}
	list = keep(list, func(i *instance) bool { return (all || i.State == "running") && pass(i) })
	from, to, next, bad := paging{5, 1000, 0}.window(f, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	status := func(name string, since time.Time) {
		w.in(name, func() {
			w.text("status", statusWord(since))
			w.in("details", func() {
				w.in("item", func() {
					w.text("name", "reachability")
					if since.IsZero() {
						w.text("status", "passed")
						return
					}
					w.text("status", "failed")
					w.text("impairedSince", since.UTC().Format(time.RFC3339))
				})
			})
		})
	}
	w.in("instanceStatusSet", func() {
		for _, i := range list[from:to] {
			w.in("item", func() {
				w.text("instanceId", i.ID)
				w.text("availabilityZone", i.Zone)
				w.in("instanceState", func() { stateXML(&w, i.State) })
				if len(i.ailing.events) > 0 {
					w.in("eventsSet", func() {
						for _, e := range i.ailing.events {
							w.in("item", func() {
								w.text("code", e.Code)
								w.text("description", e.Description)
							})
						}
					})
				}
				status("systemStatus", i.ailing.system)
				status("instanceStatus", i.ailing.instance)
				status("attachedEbsStatus", time.Time{})
			})
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}
