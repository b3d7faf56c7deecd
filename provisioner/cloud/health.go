package cloud

import "time"

// Ailment is something that the cloud says is wrong with an instance, or about to happen to it.
type Ailment struct {
	InstanceID string
	Category   AilmentCategory
	// Since is when a check began to fail; zero when the cloud does not say.
	Since time.Time
}

// AilmentCategory tells kinds of trouble apart; the words are label values of metrics.
type AilmentCategory string

// Categories of ailments.
const (
	// InstanceCheckFailed and SystemCheckFailed: the machine, or what it runs on, is broken.
	InstanceCheckFailed AilmentCategory = "InstanceStatus"
	SystemCheckFailed   AilmentCategory = "SystemStatus"
	// MaintenanceScheduled: the cloud will reboot, stop or retire the machine.
	MaintenanceScheduled AilmentCategory = "EventStatus"
)
