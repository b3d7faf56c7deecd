package v1

// ConditionReady is the root condition of every kind: it sums up the conditions that it depends on.
const ConditionReady = "Ready"

// Conditions of NodePools. Ready depends on the first two.
const (
	ConditionValidationSucceeded     = "ValidationSucceeded"
	ConditionNodeClassReady          = "NodeClassReady"
	ConditionNodeRegistrationHealthy = "NodeRegistrationHealthy"
	// Berth's own; they tell of trouble and do not make the pool unready.
	ConditionZonesServed     = "berth.dev/ZonesServed"     // every zone that the requirements name has a subnet
	ConditionWithinLimits    = "berth.dev/WithinLimits"    // something is left of every limit
	ConditionLaunchesAllowed = "berth.dev/LaunchesAllowed" // no safety brake holds launches back
)

// Conditions of NodeClaims. Ready depends on the first three.
const (
	ConditionLaunched             = "Launched"
	ConditionRegistered           = "Registered"
	ConditionInitialized          = "Initialized"
	ConditionConsolidatable       = "Consolidatable"
	ConditionDrifted              = "Drifted"
	ConditionDisruptionReason     = "DisruptionReason"
	ConditionDrained              = "Drained"
	ConditionVolumesDetached      = "VolumesDetached"
	ConditionInstanceTerminating  = "InstanceTerminating"
	ConditionConsistentStateFound = "ConsistentStateFound"
)

// Reasons of every kind's conditions. A True condition without a reason of its own has its type.
const (
	ReasonAwaitingReconciliation = "AwaitingReconciliation"
	ReasonReconcilingDependents  = "ReconcilingDependents"
	ReasonUnhealthyDependents    = "UnhealthyDependents"

	// MessageAwaitingReconciliation goes with ReasonAwaitingReconciliation.
	MessageAwaitingReconciliation = "object is awaiting reconciliation"
)

// Reasons of NodePool conditions.
const (
	ReasonNodePoolValidationFailed  = "NodePoolValidationFailed"
	ReasonNodeClassNotFound         = "NodeClassNotFound"
	ReasonNodeClassTerminating      = "NodeClassTerminating"
	ReasonNodeClassReadinessUnknown = "NodeClassReadinessUnknown"
	ReasonRegistrationFailed        = "RegistrationFailed"
)

// Reasons of NodeClaim conditions.
const (
	ReasonLaunchFailed                  = "LaunchFailed"
	ReasonNodeNotFound                  = "NodeNotFound"
	ReasonMultipleNodesFound            = "MultipleNodesFound"
	ReasonRegistrationHookPending       = "RegistrationHookPending"
	ReasonNodeNotReady                  = "NodeNotReady"
	ReasonStartupTaintsExist            = "StartupTaintsExist"
	ReasonKnownEphemeralTaintsExist     = "KnownEphemeralTaintsExist"
	ReasonResourceNotRegistered         = "ResourceNotRegistered"
	ReasonDRADriverPoolsNotPublished    = "DRADriverPoolsNotPublished"
	ReasonDraining                      = "Draining"
	ReasonAwaitingVolumeDetachment      = "AwaitingVolumeDetachment"
	ReasonTerminationGracePeriodElapsed = "TerminationGracePeriodElapsed"
	ReasonConsistencyCheckFailed        = "ConsistencyCheckFailed"
)

// Reasons of the Drifted condition that do not come from the provider.
const (
	ReasonNodePoolDrifted      = "NodePoolDrifted"
	ReasonRequirementsDrifted  = "RequirementsDrifted"
	ReasonInstanceTypeNotFound = "InstanceTypeNotFound"
)

// Reasons of Berth's own conditions of a NodePool.
const (
	ReasonZoneWithoutSubnet = "ZoneWithoutSubnet"
	ReasonLimitReached      = "LimitReached"
	ReasonSafetyBrake       = "SafetyBrake"
)
