package types

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// Convert describes a type as the class would launch it, without offerings. zones are the names of the
// zones where EC2 offers the type.
func Convert(info *ec2types.InstanceTypeInfo, zones []string, c *Class, s Settings) *catalog.InstanceType {
	whole := capacity(info, c, s)
	return &catalog.InstanceType{
		Name:         string(info.InstanceType),
		Requirements: labels(info, zones, c, s),
		Capacity:     whole,
		Overhead:     overhead(info, c, whole),
	}
}

// Incompatible returns why the class cannot launch the type at all, "" when it can. EC2 has the last word.
func Incompatible(info *ec2types.InstanceTypeInfo, c *Class) string {
	switch {
	case c.Family == ec2v1.AMIFamilyAL2023 && strings.HasPrefix(string(info.InstanceType), "a1."):
		return "AL2023 does not run on a1 instances"
	case c.NestedVirtualization && (info.ProcessorInfo == nil || !slices.Contains(info.ProcessorInfo.SupportedFeatures, nestedVirtualization)):
		return "the type has no nested virtualization"
	case c.ConnectionTracking && info.Hypervisor != ec2types.InstanceTypeHypervisorNitro:
		return "connection tracking settings need a nitro instance"
	case c.NetworkInterfaces != nil:
		return interfacesMisfit(info, c)
	}
	return ""
}

const nestedVirtualization ec2types.SupportedAdditionalProcessorFeature = "nested-virtualization"

func interfacesMisfit(info *ec2types.InstanceTypeInfo, c *Class) string {
	n := info.NetworkInfo
	if n == nil || len(n.NetworkCards) == 0 || n.EnaSupport == ec2types.EnaSupportUnsupported {
		return "the type has no network cards for networkInterfaces"
	}
	for _, nic := range c.NetworkInterfaces {
		i := slices.IndexFunc(n.NetworkCards, func(card ec2types.NetworkCardInfo) bool {
			return aws.ToInt32(card.NetworkCardIndex) == nic.NetworkCardIndex
		})
		if i < 0 || int(nic.NetworkCardIndex) >= len(n.NetworkCards) {
			return fmt.Sprintf("the type has no network card %d", nic.NetworkCardIndex)
		}
		if nic.DeviceIndex >= aws.ToInt32(n.NetworkCards[i].MaximumNetworkInterfaces) {
			return fmt.Sprintf("network card %d has no device %d", nic.NetworkCardIndex, nic.DeviceIndex)
		}
	}
	var efas int64
	if aws.ToBool(n.EfaSupported) && n.EfaInfo != nil {
		efas = int64(aws.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
	if c.efaOnly(-1) > efas {
		return fmt.Sprintf("the type has %d EFA interfaces", efas)
	}
	return ""
}

// Prices are in USD per hour; ok is false when there is none.
type Prices interface {
	OnDemand(instanceType string) (price float64, ok bool)
	Spot(instanceType, zone string) (price float64, ok bool)
}

// Stock tells what EC2 is known to have none of.
type Stock interface {
	// OutOf reports whether launches of the type in the zone are hopeless for now. subnets are the
	// class's subnets in the zone.
	OutOf(capacityType, instanceType, zone string, subnets []string) bool
}

// offeringMaker shares the requirements of equal offerings between all types of a class.
type offeringMaker struct {
	class  *Class
	zones  []string // of the region
	prices Prices
	stock  Stock
	shared map[[2]string]requirement.Set
}

func newOfferingMaker(c *Class, zones []string, prices Prices, stock Stock) *offeringMaker {
	return &offeringMaker{class: c, zones: zones, prices: prices, stock: stock, shared: map[[2]string]requirement.Set{}}
}

// Offerings are the ways to buy a type for a class: one per zone of the region and capacity type,
// sorted by zone. Those that cannot be bought now are there too, marked unavailable.
func (m *offeringMaker) offerings(info *ec2types.InstanceTypeInfo, offered []string) []catalog.Offering {
	kinds := capacityTypes(info)
	slices.Sort(kinds)
	compatible := Incompatible(info, m.class) == ""
	out := make([]catalog.Offering, 0, len(m.zones)*len(kinds))
	name := string(info.InstanceType)
	for _, zone := range m.zones {
		classZone, inClass := m.class.zone(zone)
		for _, kind := range kinds {
			price, priced := m.price(kind, name, zone)
			buyable := compatible && inClass && slices.Contains(offered, zone) &&
				!m.stock.OutOf(kind, name, zone, m.class.Subnets[zone])
			out = append(out, catalog.Offering{
				Zone: zone, ZoneID: classZone.ID, CapacityType: kind, Price: price,
				Requirements: m.requirements(kind, zone, classZone.ID),
				Available:    buyable && priced, Unpriced: buyable && !priced,
			})
		}
	}
	return out
}

func (m *offeringMaker) price(kind, name, zone string) (float64, bool) {
	if kind == karpv1.CapacityTypeSpot {
		return m.prices.Spot(name, zone)
	}
	return m.prices.OnDemand(name)
}

func (m *offeringMaker) requirements(kind, zone, zoneID string) requirement.Set {
	key := [2]string{kind, zone}
	if set, ok := m.shared[key]; ok {
		return set
	}
	set := requirement.NewSet(in(karpv1.LabelCapacityType, kind), in(corev1.LabelTopologyZone, zone),
		absent(ec2v1.LabelCapacityReservationID), absent(ec2v1.LabelCapacityReservationType), absent(ec2v1.LabelCapacityReservationInterruptible))
	if zoneID != "" {
		set.Add(in(ec2v1.LabelTopologyZoneID, zoneID))
	}
	m.shared[key] = set
	return set
}
