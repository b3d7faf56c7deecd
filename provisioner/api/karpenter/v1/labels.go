package v1

import corev1 "k8s.io/api/core/v1"

// Labels of NodeClaims and Nodes.
const (
	// LabelNodePool has the name of the owning pool.
	LabelNodePool = Group + "/nodepool"
	// LabelCapacityType has one of the CapacityType values.
	LabelCapacityType = Group + "/capacity-type"
	// LabelRegistered is "true" on a Node that has been joined with its NodeClaim.
	LabelRegistered = Group + "/registered"
	// LabelInitialized is "true" on a Node that has become usable.
	LabelInitialized = Group + "/initialized"
	// LabelDoNotSyncTaints set to "true" on a Node keeps the NodeClaim's taints from being copied to it.
	LabelDoNotSyncTaints = Group + "/do-not-sync-taints"
	// LabelWindowsBuild has the Windows build of the node.
	LabelWindowsBuild = corev1.LabelWindowsBuild
)

// Values of LabelCapacityType.
const (
	CapacityTypeSpot     = "spot"
	CapacityTypeOnDemand = "on-demand"
	CapacityTypeReserved = "reserved"
)

// Values of kubernetes.io/arch.
const (
	ArchitectureAMD64 = "amd64"
	ArchitectureARM64 = "arm64"
)

// ValueTrue is how labels and annotations say yes.
const ValueTrue = "true"

// ExcludeFromLoadBalancersValue is the value of node.kubernetes.io/exclude-from-external-load-balancers
// on nodes that are being terminated.
const ExcludeFromLoadBalancersValue = "karpenter"

// WellKnownLabels returns the label keys outside any provider whose values the provisioner knows before
// a node exists.
func WellKnownLabels() []string {
	return []string{
		LabelNodePool,
		LabelCapacityType,
		corev1.LabelTopologyZone,
		corev1.LabelTopologyRegion,
		corev1.LabelInstanceTypeStable,
		corev1.LabelArchStable,
		corev1.LabelOSStable,
		corev1.LabelWindowsBuild,
	}
}

// Annotations.
const (
	// AnnotationDoNotDisrupt on a Pod is "true" or a positive duration from the pod's start; on a Node,
	// NodeClaim or pool template it is "true".
	AnnotationDoNotDisrupt = Group + "/do-not-disrupt"
	// AnnotationNodePoolHash has the hash of the pool's template; on NodeClaims, of the template they came from.
	AnnotationNodePoolHash = Group + "/nodepool-hash"
	// AnnotationNodePoolHashVersion names the algorithm of AnnotationNodePoolHash.
	AnnotationNodePoolHashVersion = Group + "/nodepool-hash-version"
	// AnnotationTerminationTimestamp on a NodeClaim has the RFC 3339 time from which termination is forced.
	AnnotationTerminationTimestamp = Group + "/nodeclaim-termination-timestamp"
	// AnnotationMinValuesRelaxed on a NodeClaim says whether minValues were lowered for it.
	AnnotationMinValuesRelaxed = Group + "/nodeclaim-min-values-relaxed"
	// AnnotationPriceOverlayApplied is "true" when a NodeOverlay set the price of a candidate type.
	AnnotationPriceOverlayApplied = Group + "/price-overlay-applied"
	// AnnotationCapacityOverlayApplied is "true" when a NodeOverlay added capacity to a candidate type.
	AnnotationCapacityOverlayApplied = Group + "/capacity-overlay-applied"
	// AnnotationRequestedDRADrivers has the sorted, comma separated DRA drivers to wait for.
	AnnotationRequestedDRADrivers = Group + "/requested-dra-drivers"
	// AnnotationBufferFakePod marks the virtual pods of a CapacityBuffer. Never stored.
	AnnotationBufferFakePod = Group + "/capacity-buffer-fake-pod"
	// AnnotationBufferName has the name of the virtual pod's CapacityBuffer. Never stored.
	AnnotationBufferName = Group + "/capacity-buffer-name"
	// AnnotationBufferNamespace has the namespace of the virtual pod's CapacityBuffer. Never stored.
	AnnotationBufferNamespace = Group + "/capacity-buffer-namespace"
	// AnnotationPodDeletionCost on a Pod feeds the cost of evicting it.
	AnnotationPodDeletionCost = corev1.PodDeletionCost
)

// BerthGroup is the domain of the annotations that only this project has.
const BerthGroup = "berth.dev"

// Annotations that only this project has.
const (
	// AnnotationPromises on a NodeClaim lists the pods that the node was bought for.
	AnnotationPromises = BerthGroup + "/promises"
	// AnnotationLaunchGroup on a NodeClaim has the identity of the cloud call that launches it.
	AnnotationLaunchGroup = BerthGroup + "/launch-group"
	// AnnotationBudgetTimeZone on a NodePool is the IANA time zone in which the schedules of its disruption
	// budgets are read, UTC when it is not set.
	AnnotationBudgetTimeZone = BerthGroup + "/budget-time-zone"
	// AnnotationBudgetsOutsideWindows on a NodePool says what holds for a reason of which no budget speaks
	// at the time: Allow, the default, or Deny.
	AnnotationBudgetsOutsideWindows = BerthGroup + "/budgets-outside-windows"
)

// Values of AnnotationBudgetsOutsideWindows.
const (
	BudgetsOutsideWindowsAllow = "Allow"
	BudgetsOutsideWindowsDeny  = "Deny"
)

// TerminationFinalizer keeps NodeClaims and Nodes until the instance is gone.
const TerminationFinalizer = Group + "/termination"

// Keys of the taints below.
const (
	TaintKeyDisrupted    = Group + "/disrupted"
	TaintKeyUnregistered = Group + "/unregistered"
)

var (
	// DisruptedNoScheduleTaint is on nodes that are about to go. Pods that tolerate it are not drained.
	DisruptedNoScheduleTaint = corev1.Taint{Key: TaintKeyDisrupted, Effect: corev1.TaintEffectNoSchedule}
	// UnregisteredNoExecuteTaint is on new nodes until they are joined with their NodeClaim.
	UnregisteredNoExecuteTaint = corev1.Taint{Key: TaintKeyUnregistered, Effect: corev1.TaintEffectNoExecute}
)

// ResourceNodes is the pseudo resource that counts nodes in limits and status.
const ResourceNodes corev1.ResourceName = "nodes"
