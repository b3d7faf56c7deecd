package ec2sim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// World is what an account contains before the first call.
type World struct {
	VPCID                string
	Subnets              []Subnet
	SecurityGroups       []SecurityGroup
	Roles                []string          // IAM role names
	InstanceProfiles     map[string]string // name to role name, "" for none
	Images               []Image           // beside those that public SSM parameters name
	Parameters           map[string]string // SSM parameters beside the public ones
	CapacityReservations []CapacityReservation
	PlacementGroups      []PlacementGroup
}

// Subnet is a subnet of the VPC. Its free addresses follow from CIDR and use.
type Subnet struct {
	ID, Zone, ZoneID, CIDR string
	Tags                   map[string]string
}

// SecurityGroup is a security group of the VPC.
type SecurityGroup struct {
	ID, Name, Description string
	Tags                  map[string]string
}

// Image is a machine image.
type Image struct {
	ID, Name   string
	Arch       string // x86_64 or arm64
	OwnerID    string // account; default the server's own
	OwnerAlias string // amazon, or empty
	Windows    bool
	State      string    // default available
	Created    time.Time // default the server's start
	Deprecated time.Time // zero means never
	Tags       map[string]string
}

// CapacityReservation is an on-demand capacity reservation.
type CapacityReservation struct {
	ID, InstanceType, Zone string
	OwnerID                string // default the server's own
	MatchCriteria          string // default targeted
	ReservationType        string // default or capacity-block; default "default"
	Interruptible          bool
	Total, Available       int
	State                  string    // default active
	End                    time.Time // zero means unlimited
	Tags                   map[string]string
}

// PlacementGroup is a placement group.
type PlacementGroup struct {
	ID, Name, Strategy string // cluster, partition or spread
	State              string // default available
	PartitionCount     int
	SpreadLevel        string
}

// DefaultWorld is one VPC with a private subnet in each of the first three zones
// of the region, a security group, and the node role KarpenterNodeRole-<cluster>.
// Subnets and group carry karpenter.sh/discovery=<cluster>. Ids are stable.
func DefaultWorld(catalog facts.Catalog, region, cluster string) World {
	w := World{VPCID: "vpc-" + hexID("vpc|"+region), Roles: []string{"KarpenterNodeRole-" + cluster}}
	zones := catalog.Zones(region)
	for i, z := range zones[:min(3, len(zones))] {
		w.Subnets = append(w.Subnets, Subnet{
			ID: "subnet-" + hexID("subnet|"+z.Name), Zone: z.Name, ZoneID: z.ID,
			CIDR: fmt.Sprintf("10.0.%d.0/18", i*64),
			Tags: map[string]string{
				"Name":                            cluster + "/private-" + z.Name,
				"karpenter.sh/discovery":          cluster,
				"kubernetes.io/role/internal-elb": "1",
			},
		})
	}
	w.SecurityGroups = []SecurityGroup{{
		ID: "sg-" + hexID("sg|"+region), Name: cluster + "-nodes", Description: "nodes of " + cluster,
		Tags: map[string]string{"Name": cluster + "-nodes", "karpenter.sh/discovery": cluster},
	}}
	return w
}

func (w *World) validate(catalog facts.Catalog, region string) error {
	var errs []error
	seen := map[string]bool{}
	unique := func(kind, id string) {
		if id == "" || seen[id] {
			errs = append(errs, fmt.Errorf("world: %s id %q is empty or used twice", kind, id))
		}
		seen[id] = true
	}
	zones := catalog.Zones(region)
	for _, sn := range w.Subnets {
		unique("subnet", sn.ID)
		if !slices.ContainsFunc(zones, func(z facts.Zone) bool { return z.Name == sn.Zone }) {
			errs = append(errs, fmt.Errorf("world: subnet %s: zone %q is not in region %s", sn.ID, sn.Zone, region))
		}
		if p, err := netip.ParsePrefix(sn.CIDR); err != nil || !p.Addr().Is4() || p.Bits() < 16 || p.Bits() > 28 {
			errs = append(errs, fmt.Errorf("world: subnet %s: cidr %q is not an IPv4 prefix of /16 to /28", sn.ID, sn.CIDR))
		}
	}
	for _, g := range w.SecurityGroups {
		unique("security group", g.ID)
	}
	for _, img := range w.Images {
		unique("image", img.ID)
	}
	for _, r := range w.CapacityReservations {
		unique("capacity reservation", r.ID)
	}
	for _, g := range w.PlacementGroups {
		unique("placement group", g.ID)
	}
	for name, role := range w.InstanceProfiles {
		if role != "" && !slices.Contains(w.Roles, role) {
			errs = append(errs, fmt.Errorf("world: instance profile %s: no role %q", name, role))
		}
	}
	return errors.Join(errs...)
}

// subnetState is a subnet with its addresses in use.
type subnetState struct {
	Subnet
	prefix netip.Prefix
	size   int // usable addresses: AWS keeps five
	used   map[int]bool
	next   int
}

func newSubnetState(sn Subnet) *subnetState {
	p := netip.MustParsePrefix(sn.CIDR).Masked() // validate has parsed it
	return &subnetState{Subnet: sn, prefix: p, size: 1<<(32-p.Bits()) - 5, used: map[int]bool{}}
}

func (sn *subnetState) free() int { return sn.size - len(sn.used) }

// take hands out the next free address round robin, so that a freed one is not
// reused at once; the caller has checked free.
func (sn *subnetState) take() (netip.Addr, int) {
	for sn.used[sn.next] {
		sn.next = (sn.next + 1) % sn.size
	}
	slot := sn.next
	sn.used[slot] = true
	sn.next = (slot + 1) % sn.size
	base := sn.prefix.Addr().As4()
	n := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8 | uint32(base[3])
	n += uint32(slot) + 4 // the first four addresses belong to AWS
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), slot
}

func (r *CapacityReservation) fill(account string) {
	r.OwnerID = cmp.Or(r.OwnerID, account)
	r.MatchCriteria = cmp.Or(r.MatchCriteria, "targeted")
	r.ReservationType = cmp.Or(r.ReservationType, "default")
	r.State = cmp.Or(r.State, "active")
}
