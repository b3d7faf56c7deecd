package interruption

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/interruption/message"
)

// response is what a kind of message calls for.
type response struct {
	eventType, reason, text string
	// drain says that the NodeClaim is deleted.
	drain bool
	// shortage says that the offering is not to be bought again for now.
	shortage bool
}

// responseTo decides by the kind alone; ok is false when there is nothing to do.
func responseTo(kind message.Kind) (r response, ok bool) {
	switch kind {
	case message.SpotInterrupted:
		return response{corev1.EventTypeWarning, "SpotInterrupted", "Spot interruption warning was triggered", true, true}, true
	case message.RebalanceRecommendation:
		return response{corev1.EventTypeNormal, "SpotRebalanceRecommendation", "Spot rebalance recommendation was triggered", false, false}, true
	case message.ScheduledChange:
		return response{corev1.EventTypeWarning, "InstanceUnhealthy", "An unhealthy warning was triggered for the instance", true, false}, true
	case message.InstanceStopped:
		return response{corev1.EventTypeWarning, "InstanceStopping", "Instance is stopping", true, false}, true
	case message.InstanceTerminated:
		return response{corev1.EventTypeWarning, "InstanceTerminating", "Instance is terminating", true, false}, true
	case message.CapacityReservationInterrupted:
		return response{corev1.EventTypeWarning, "CapacityReservationInstanceInterrupted", "Capacity Reservation interruption warning was triggered", true, false}, true
	default:
		return response{}, false
	}
}
