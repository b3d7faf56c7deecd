package catalog

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// InstanceType is a kind of machine as one node class would launch it.
type InstanceType struct {
	Name string
	// Requirements are its labels; a key may have several values where the launch decides (zone,
	// capacity type) and none where the type lacks the label.
	Requirements requirement.Set
	// Capacity is the whole machine, Overhead what pods cannot have of it.
	Capacity, Overhead resources.Vector
	// Offerings, one per zone, capacity type and reservation, in a stable order.
	Offerings []Offering
	// PriceOverlaid and CapacityOverlaid say that a NodeOverlay set the price of an offering, or declared
	// some of the capacity.
	PriceOverlaid, CapacityOverlaid bool
}

// Offering is one way to buy an instance type.
type Offering struct {
	Zone, ZoneID, CapacityType string
	// ReservationID is set for capacity type "reserved" only.
	ReservationID string
	// ReservationCount is how many instances the reservation still has.
	ReservationCount int
	Price            float64 // USD per hour
	// Available is false while the cloud is known to have none of it.
	Available bool
	// Unpriced says that only the lack of a price keeps it from being available.
	Unpriced bool
	// Requirements are the labels that the offering decides: zone, zone ID, capacity type, reservation.
	Requirements requirement.Set
}

// Allocatable returns what pods may use: capacity less overhead and huge pages, at least 0.
func (it *InstanceType) Allocatable() resources.Vector {
	v := it.Capacity.Sub(it.Overhead)
	for _, a := range it.Capacity.Extended {
		if strings.HasPrefix(string(a.Name), corev1.ResourceHugePagesPrefix) {
			v.Memory -= a.Value
		}
	}
	return v.NonNegative()
}
