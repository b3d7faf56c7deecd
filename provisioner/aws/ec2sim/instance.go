package ec2sim

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Instance is a copy of what the server knows about a machine.
type Instance struct {
	ID, Type, Zone, ZoneID string
	SubnetID, ImageID      string
	ImageName              string
	Arch                   string // amd64 or arm64, as Kubernetes says it
	Windows                bool
	PrivateDNSName         string // the node name
	PrivateIP              string
	CapacityType           string // Spot, OnDemand or Reserved
	State                  string // pending, running, stopping, stopped, shutting-down, terminated
	UserData               string // decoded
	LaunchTime             time.Time
	BootAt                 time.Time // when the machine has booted and its kubelet starts
	Tags                   map[string]string
	FleetID                string
	Price                  float64 // USD per hour at launch
	Profile                string  // instance profile name
	SecurityGroupIDs       []string
	SpotRequestID          string
	CapacityReservationID  string
	RootGiB                map[string]int64 // volume sizes of the template by device
	EFAInterfaces          int
	TemplateName           string
}

// ProviderID is the id under which Kubernetes knows the machine.
func (i Instance) ProviderID() string { return "aws:///" + i.Zone + "/" + i.ID }

// instance is the server's own record.
type instance struct {
	Instance
	spec       *templateData
	subnet     *subnetState
	slot       int // of the address
	pool       poolKey
	token      string
	visibleAt  time.Time
	released   bool
	systemTags map[string]string
	merged     map[string]string // of allTags; nil after a change
	reason     string
	nic        string
	ailing     ailing
}

func (i *instance) copy() Instance {
	c := i.Instance
	c.Tags, c.RootGiB = maps.Clone(i.Tags), maps.Clone(i.RootGiB)
	c.SecurityGroupIDs = slices.Clone(i.SecurityGroupIDs)
	return c
}

func (i *instance) alive() bool { return i.State == "pending" || i.State == "running" }

// allTags are the user's tags and those that EC2 adds.
func (i *instance) allTags() map[string]string {
	if i.merged == nil {
		i.merged = maps.Clone(i.systemTags)
		maps.Copy(i.merged, i.Tags)
	}
	return i.merged
}

// launch starts a machine for a candidate that exhausted has just approved.
func (s *Server) launch(c *candidate, req *fleetRequest, fleetID, token string) *instance {
	now := s.opts.Clock.Now()
	addr, slot := c.subnet.take()
	data := &c.template.data
	tags := maps.Clone(data.tags["instance"])
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, req.instanceTags)
	i := &instance{
		Instance: Instance{
			ID: "i-" + s.newID("i"), Type: c.entry.Name, Zone: c.subnet.Zone, ZoneID: c.subnet.ZoneID,
			SubnetID: c.subnet.ID, ImageID: c.image.ID, ImageName: c.image.Name, Windows: c.image.Windows,
			Arch: kubeArch(c.image.Arch), PrivateIP: addr.String(), CapacityType: req.capacityType, State: "pending",
			UserData: data.userData, LaunchTime: now, BootAt: now.Add(s.opts.BootDelay), Tags: tags, FleetID: fleetID,
			Price: c.price, Profile: data.profile, SecurityGroupIDs: data.groups, CapacityReservationID: data.reservationID,
			RootGiB: data.rootGiB, TemplateName: c.template.name,
		},
		spec: data, subnet: c.subnet, slot: slot, pool: c.pool, token: token,
		visibleAt: now.Add(s.opts.VisibilityDelay),
		systemTags: map[string]string{
			"aws:ec2:fleet-id":              fleetID,
			"aws:ec2launchtemplate:id":      c.template.id,
			"aws:ec2launchtemplate:version": "1",
		},
	}
	if data.reservationID != "" {
		i.CapacityType = Reserved
		s.reservation(data.reservationID).Available--
	} else {
		s.pools.take(c.pool)
	}
	if i.CapacityType == Spot {
		i.SpotRequestID = "sir-" + s.newID("sir")[:8]
	}
	for _, kind := range data.interfaces {
		if kind == "efa" || kind == "efa-only" {
			i.EFAInterfaces++
		}
	}
	i.PrivateDNSName = s.dnsName(i)
	i.nic = "eni-" + s.newID("eni")
	s.instances[i.ID] = i
	s.order = append(s.order, i)
	s.after(s.opts.BootDelay/10, func() { s.run(i) })
	return i
}

func kubeArch(arch string) string {
	if strings.HasPrefix(arch, "arm64") {
		return "arm64"
	}
	return "amd64"
}

func (s *Server) dnsName(i *instance) string {
	domain := ".ec2.internal"
	if s.opts.Region != "us-east-1" {
		domain = "." + s.opts.Region + ".compute.internal"
	}
	if s.opts.Naming == ResourceName {
		return i.ID + domain
	}
	return "ip-" + strings.ReplaceAll(i.PrivateIP, ".", "-") + domain
}

func (s *Server) run(i *instance) {
	if i.State != "pending" {
		return
	}
	i.State = "running"
	s.publish(InstanceEvent{Kind: Running, Instance: i.copy()})
}

// goneFor is how long a terminated instance stays visible, about an hour as in EC2.
const goneFor = time.Hour

// end begins the shut-down; ended machines are left alone.
func (s *Server) end(i *instance, reason string) {
	if i.State == "shutting-down" || i.State == "terminated" {
		return
	}
	i.State, i.reason = "shutting-down", reason
	s.release(i)
	s.publish(InstanceEvent{Kind: Gone, Instance: i.copy()})
	s.after(s.opts.BootDelay/10, func() {
		i.State = "terminated"
		s.after(goneFor, func() { s.forget(i) })
	})
}

// release gives address and capacity back.
func (s *Server) release(i *instance) {
	if i.released {
		return
	}
	i.released = true
	delete(i.subnet.used, i.slot)
	if res := s.reservation(i.CapacityReservationID); res != nil {
		res.Available++
		return
	}
	s.pools.give(i.pool)
}

func (s *Server) forget(i *instance) {
	delete(s.instances, i.ID)
	s.order = slices.DeleteFunc(s.order, func(o *instance) bool { return o == i })
}

// Instances returns copies of all instances that DescribeInstances could show,
// terminated ones included, in the order of their launch.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	list := make([]Instance, 0, len(s.order))
	for _, i := range s.order {
		list = append(list, i.copy())
	}
	return list
}

// Instance returns a copy of one instance.
func (s *Server) Instance(id string) (Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	i, ok := s.instances[id]
	if !ok {
		return Instance{}, false
	}
	return i.copy(), true
}

// Terminate ends an instance as its owner would; false if there is none.
func (s *Server) Terminate(id string) bool {
	return s.change(id, func(i *instance) { s.end(i, "Client.UserInitiatedShutdown: User initiated shutdown") })
}

// Interrupt takes a spot instance back at once, as EC2 does when the two
// minutes of its warning are over; false if there is no such instance.
func (s *Server) Interrupt(id string) bool {
	return s.change(id, func(i *instance) { s.end(i, "Server.SpotInstanceTermination: Instance terminated by EC2") })
}

// StopInstance stops an instance behind the provisioner's back; false if there is none.
func (s *Server) StopInstance(id string) bool {
	return s.change(id, func(i *instance) {
		if !i.alive() {
			return
		}
		i.State, i.reason = "stopping", "Client.UserInitiatedShutdown: User initiated shutdown"
		s.publish(InstanceEvent{Kind: Gone, Instance: i.copy()})
		s.after(s.opts.BootDelay/10, func() {
			if i.State == "stopping" {
				i.State = "stopped"
			}
		})
	})
}

func (s *Server) change(id string, act func(*instance)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	i, ok := s.instances[id]
	if ok {
		act(i)
	}
	return ok
}
