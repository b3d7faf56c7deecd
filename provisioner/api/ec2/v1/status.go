package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EC2NodeClassStatus is what the class's selectors resolved to.
type EC2NodeClassStatus struct {
	// subnets in use, most free addresses first.
	// +listType=atomic
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// securityGroups in use, by id.
	// +listType=atomic
	// +optional
	SecurityGroups []SecurityGroup `json:"securityGroups,omitempty"`
	// capacityReservations that may be used, by id.
	// +listType=atomic
	// +optional
	CapacityReservations []CapacityReservation `json:"capacityReservations,omitempty"`
	// amis in use, newest first.
	// +listType=atomic
	// +optional
	AMIs []AMI `json:"amis,omitempty"`
	// instanceProfile in use.
	// +optional
	InstanceProfile string `json:"instanceProfile,omitempty"`
	// conditions say whether machines can be made.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Subnet is a resolved subnet.
type Subnet struct {
	// id of the subnet.
	// +required
	ID string `json:"id"`
	// zone of the subnet.
	// +required
	Zone string `json:"zone"`
	// zoneID names the same place in every account.
	// +optional
	ZoneID string `json:"zoneID,omitempty"`
}

// SecurityGroup is a resolved security group.
type SecurityGroup struct {
	// id of the security group.
	// +required
	ID string `json:"id"`
	// name of the security group.
	// +optional
	Name string `json:"name,omitempty"`
}

// AMI is a resolved machine image.
type AMI struct {
	// id of the image.
	// +required
	ID string `json:"id"`
	// name of the image.
	// +optional
	Name string `json:"name,omitempty"`
	// deprecated says that its owner has deprecated the image.
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`
	// requirements say which instance types the image is used for.
	// +listType=atomic
	// +required
	Requirements []corev1.NodeSelectorRequirement `json:"requirements"`
}

// CapacityReservationType is the kind of a capacity reservation.
type CapacityReservationType string

// The kinds of capacity reservation.
const (
	CapacityReservationTypeDefault       CapacityReservationType = "default"
	CapacityReservationTypeCapacityBlock CapacityReservationType = "capacity-block"
)

// CapacityReservationState is how far along a capacity reservation is.
type CapacityReservationState string

// The states of a capacity reservation. Only capacity blocks expire.
const (
	CapacityReservationStateActive   CapacityReservationState = "active"
	CapacityReservationStateExpiring CapacityReservationState = "expiring"
)

// Match criteria of capacity reservations.
const (
	InstanceMatchCriteriaOpen     = "open"
	InstanceMatchCriteriaTargeted = "targeted"
)

// CapacityReservation is a resolved capacity reservation.
type CapacityReservation struct {
	// availabilityZone of the reserved instances.
	// +required
	AvailabilityZone string `json:"availabilityZone"`
	// endTime is when the reservation ends; absent when it does not.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// id of the reservation.
	// +kubebuilder:validation:Pattern=`^cr-[0-9a-z]+$`
	// +required
	ID string `json:"id"`
	// instanceMatchCriteria is open or targeted.
	// +kubebuilder:validation:Enum=open;targeted
	// +required
	InstanceMatchCriteria string `json:"instanceMatchCriteria"`
	// instanceType of the reserved instances.
	// +required
	InstanceType string `json:"instanceType"`
	// interruptible says that the reservation's owner may take the instances back.
	// +optional
	Interruptible bool `json:"interruptible,omitempty"`
	// ownerID is the account that owns the reservation.
	// +kubebuilder:validation:Pattern=`^[0-9]{12}$`
	// +required
	OwnerID string `json:"ownerID"`
	// reservationType is default or capacity-block.
	// +kubebuilder:default:=default
	// +kubebuilder:validation:Enum=default;capacity-block
	// +optional
	ReservationType CapacityReservationType `json:"reservationType,omitempty"`
	// state is expiring when the reservation's end is near.
	// +kubebuilder:default:=active
	// +kubebuilder:validation:Enum=active;expiring
	// +optional
	State CapacityReservationState `json:"state,omitempty"`
}

// Conditions of EC2NodeClasses. Ready depends on all the others; on CapacityReservationsReady only when
// capacity reservations are switched on.
const (
	ConditionReady                     = "Ready"
	ConditionAMIsReady                 = "AMIsReady"
	ConditionSubnetsReady              = "SubnetsReady"
	ConditionSecurityGroupsReady       = "SecurityGroupsReady"
	ConditionInstanceProfileReady      = "InstanceProfileReady"
	ConditionCapacityReservationsReady = "CapacityReservationsReady"
	ConditionPlacementGroupReady       = "PlacementGroupReady"
	ConditionValidationSucceeded       = "ValidationSucceeded"
)

// Reasons of EC2NodeClass conditions.
const (
	ReasonAMINotFound                       = "AMINotFound"
	ReasonUnsupportedAlias                  = "UnsupportedAlias"
	ReasonSubnetsNotFound                   = "SubnetsNotFound"
	ReasonSecurityGroupsNotFound            = "SecurityGroupsNotFound"
	ReasonPlacementGroupNotFound            = "PlacementGroupNotFound"
	ReasonPlacementGroupResolutionFailed    = "PlacementGroupResolutionFailed"
	ReasonDependenciesNotReady              = "DependenciesNotReady"
	ReasonTagValidationFailed               = "TagValidationFailed"
	ReasonInvalidKubeletConfiguration       = "InvalidKubeletConfiguration"
	ReasonUnsupportedKubeletConfiguration   = "UnsupportedKubeletConfiguration"
	ReasonKubeletExpressionsDisabled        = "KubeletExpressionsDisabled"
	ReasonKubeletExpressionInvalid          = "KubeletExpressionInvalid"
	ReasonKubeletExpressionEvaluationFailed = "KubeletExpressionEvaluationFailed"
)

// Reasons of the Drifted condition that this provider gives.
const (
	DriftReasonNodeClass           = "NodeClassDrift"
	DriftReasonAMI                 = "AMIDrift"
	DriftReasonSecurityGroup       = "SecurityGroupDrift"
	DriftReasonSubnet              = "SubnetDrift"
	DriftReasonCapacityReservation = "CapacityReservationDrift"
	DriftReasonPlacementGroup      = "PlacementGroupDrift"
)
