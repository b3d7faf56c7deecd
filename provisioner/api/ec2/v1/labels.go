package v1

import corev1 "k8s.io/api/core/v1"

// Labels of NodeClaims and Nodes on EC2. Instance type labels are facts about the type; the others
// depend on the launch.
const (
	LabelNodeClass = Group + "/ec2nodeclass"

	LabelCapacityReservationID            = Group + "/capacity-reservation-id"
	LabelCapacityReservationType          = Group + "/capacity-reservation-type"
	LabelCapacityReservationInterruptible = Group + "/capacity-reservation-interruptible"
	LabelPlacementGroupID                 = Group + "/placement-group-id"
	LabelPlacementGroupPartition          = Group + "/placement-group-partition"
	LabelInstanceTenancy                  = Group + "/instance-tenancy"
	LabelNitroSandbox                     = Group + "/nitro-sandbox"

	LabelInstanceAcceleratorCount             = Group + "/instance-accelerator-count"
	LabelInstanceAcceleratorManufacturer      = Group + "/instance-accelerator-manufacturer"
	LabelInstanceAcceleratorName              = Group + "/instance-accelerator-name"
	LabelInstanceCapabilityFlex               = Group + "/instance-capability-flex"
	LabelInstanceCategory                     = Group + "/instance-category"
	LabelInstanceCPU                          = Group + "/instance-cpu"
	LabelInstanceCPUManufacturer              = Group + "/instance-cpu-manufacturer"
	LabelInstanceCPUSustainedClockSpeedMHz    = Group + "/instance-cpu-sustained-clock-speed-mhz"
	LabelInstanceEBSBandwidth                 = Group + "/instance-ebs-bandwidth"
	LabelInstanceEncryptionInTransitSupported = Group + "/instance-encryption-in-transit-supported"
	LabelInstanceFamily                       = Group + "/instance-family"
	LabelInstanceGeneration                   = Group + "/instance-generation"
	LabelInstanceGPUCount                     = Group + "/instance-gpu-count"
	LabelInstanceGPUManufacturer              = Group + "/instance-gpu-manufacturer"
	LabelInstanceGPUMemory                    = Group + "/instance-gpu-memory"
	LabelInstanceGPUName                      = Group + "/instance-gpu-name"
	LabelInstanceHypervisor                   = Group + "/instance-hypervisor"
	LabelInstanceLocalNVMe                    = Group + "/instance-local-nvme"
	LabelInstanceMemory                       = Group + "/instance-memory"
	LabelInstanceNetworkBandwidth             = Group + "/instance-network-bandwidth"
	LabelInstanceSize                         = Group + "/instance-size"

	// LabelTopologyZoneID has the zone's ID, which names the same place in every account.
	LabelTopologyZoneID = "topology.k8s.aws/zone-id"
	// LabelEBSCSIZone is an alias of topology.kubernetes.io/zone in volume constraints.
	LabelEBSCSIZone = "topology.ebs.csi.aws.com/zone"
)

// WellKnownLabels returns the label keys that this provider knows values of beyond the core ones.
func WellKnownLabels() []string {
	return []string{
		LabelNodeClass,
		LabelCapacityReservationID,
		LabelCapacityReservationType,
		LabelCapacityReservationInterruptible,
		LabelPlacementGroupID,
		LabelPlacementGroupPartition,
		LabelInstanceTenancy,
		LabelNitroSandbox,
		LabelInstanceAcceleratorCount,
		LabelInstanceAcceleratorManufacturer,
		LabelInstanceAcceleratorName,
		LabelInstanceCapabilityFlex,
		LabelInstanceCategory,
		LabelInstanceCPU,
		LabelInstanceCPUManufacturer,
		LabelInstanceCPUSustainedClockSpeedMHz,
		LabelInstanceEBSBandwidth,
		LabelInstanceEncryptionInTransitSupported,
		LabelInstanceFamily,
		LabelInstanceGeneration,
		LabelInstanceGPUCount,
		LabelInstanceGPUManufacturer,
		LabelInstanceGPUMemory,
		LabelInstanceGPUName,
		LabelInstanceHypervisor,
		LabelInstanceLocalNVMe,
		LabelInstanceMemory,
		LabelInstanceNetworkBandwidth,
		LabelInstanceSize,
		LabelTopologyZoneID,
	}
}

// Annotations of EC2NodeClasses and NodeClaims.
const (
	// AnnotationNodeClassHash has the hash of the class's static fields; on NodeClaims, of the class they
	// were launched from.
	AnnotationNodeClassHash = Group + "/ec2nodeclass-hash"
	// AnnotationNodeClassHashVersion names the algorithm of AnnotationNodeClassHash.
	AnnotationNodeClassHashVersion = Group + "/ec2nodeclass-hash-version"
	// AnnotationTagged is "true" on a NodeClaim whose instance has its own tags.
	AnnotationTagged = Group + "/tagged"
	// AnnotationClusterNameTagged is "true" on a NodeClaim whose instance has the cluster name tag.
	AnnotationClusterNameTagged = "compatibility." + Group + "/cluster-name-tagged"
	// AnnotationInstanceProfileName has the instance profile that the NodeClaim was launched with.
	AnnotationInstanceProfileName = Group + "/instance-profile-name"
)

// TerminationFinalizer keeps an EC2NodeClass until its NodeClaims, profiles and launch templates are gone.
const TerminationFinalizer = Group + "/termination"

// Tags of EC2 resources. Tags that carry labels use the label's key.
const (
	// TagNodeClaim has the name of the NodeClaim on its instance.
	TagNodeClaim = "karpenter.sh/nodeclaim"
	// TagNodePool has the name of the pool.
	TagNodePool = "karpenter.sh/nodepool"
	// TagEKSClusterName has the name of the cluster.
	TagEKSClusterName = "eks:eks-cluster-name"
	// TagName has the name of the node, unless the class sets it.
	TagName = "Name"
	// TagClusterPrefix with the cluster's name appended has the value TagOwned.
	TagClusterPrefix = "kubernetes.io/cluster/"
	// TagOwned is the value of the tag of TagClusterPrefix.
	TagOwned = "owned"
)

// Extended resources of EC2 instances.
const (
	ResourceNVIDIAGPU    corev1.ResourceName = "nvidia.com/gpu"
	ResourceAMDGPU       corev1.ResourceName = "amd.com/gpu"
	ResourceNeuron       corev1.ResourceName = "aws.amazon.com/neuron"
	ResourceNeuronCore   corev1.ResourceName = "aws.amazon.com/neuroncore"
	ResourceHabanaGaudi  corev1.ResourceName = "habana.ai/gaudi"
	ResourcePodENI       corev1.ResourceName = "vpc.amazonaws.com/pod-eni"
	ResourcePrivateIPv4  corev1.ResourceName = "vpc.amazonaws.com/PrivateIPv4Address"
	ResourceEFA          corev1.ResourceName = "vpc.amazonaws.com/efa"
	ResourceNitroSandbox corev1.ResourceName = "eks.amazonaws.com/nitro-sandbox"
)
