package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityBuffer keeps room free for pods that are still to come.
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=capacitybuffers,scope=Namespaced,categories=autoscaling,shortName=cb
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.provisioningStrategy",description="How the room is kept"
// +kubebuilder:printcolumn:name="PodTemplate",type="string",JSONPath=".status.podTemplateRef.name",description="Shape of the room"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".status.replicas",description="How many pods fit in"
// +kubebuilder:printcolumn:name="ConditionsType",type="string",JSONPath=".status.conditions[*].type",description="Conditions"
// +kubebuilder:printcolumn:name="ConditionsStatus",type="string",JSONPath=".status.conditions[*].status",description="Their status"
// +kubebuilder:printcolumn:name="ConditionsReason",type="string",JSONPath=".status.conditions[*].reason",description="Their reasons"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CapacityBuffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CapacityBufferSpec `json:"spec"`
	// +optional
	Status CapacityBufferStatus `json:"status,omitempty"`
}

// CapacityBufferList is a list of CapacityBuffers.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type CapacityBufferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CapacityBuffer `json:"items"`
}

// ActiveCapacity is the provisioning strategy that keeps room on running nodes, the only one that acts.
const ActiveCapacity = "buffer.x-k8s.io/active-capacity"

// CapacityBufferSpec says how much room is kept, and for pods of what shape.
// +kubebuilder:validation:XValidation:message="If podTemplateRef is set, replicas or limits must also be set",rule="!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:message="You must define either PodTemplateRef or ScalableRef, but not both",rule="!has(self.podTemplateRef) || !has(self.scalableRef)",fieldPath=".scalableRef"
type CapacityBufferSpec struct {
	// provisioningStrategy says how the room is kept. Buffers with a strategy other than
	// buffer.x-k8s.io/active-capacity are left alone.
	// +kubebuilder:default:="buffer.x-k8s.io/active-capacity"
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// podTemplateRef names the PodTemplate, in the same namespace, that room is kept for.
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// scalableRef names the workload, in the same namespace, whose pods room is kept for.
	// +optional
	ScalableRef *ScalableRef `json:"scalableRef,omitempty"`
	// replicas is how many more pods fit in. With percentage, the larger of the two counts.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// percentage is how many more pods fit in, of the replicas of scalableRef.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Percentage *int32 `json:"percentage,omitempty"`
	// limits caps the sum of the requests of the buffer's pods.
	// +optional
	Limits ResourceList `json:"limits,omitempty"`
}

// LocalObjectRef names an object in the buffer's namespace.
type LocalObjectRef struct {
	// name is the object's name.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// ScalableRef names a workload in the buffer's namespace: a Deployment, StatefulSet or ReplicaSet.
type ScalableRef struct {
	// apiGroup is the workload's group. Empty means apps.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// kind is the workload's kind.
	// +kubebuilder:validation:MinLength=1
	// +required
	Kind string `json:"kind"`
	// name is the workload's name.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// CapacityBufferStatus is what is observed of the buffer.
type CapacityBufferStatus struct {
	// podTemplateRef names the PodTemplate in use.
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// podTemplateGeneration is the generation of that PodTemplate.
	// +optional
	PodTemplateGeneration *int64 `json:"podTemplateGeneration,omitempty"`
	// replicas is how many pods room is kept for.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// provisioningStrategy is the strategy in use.
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// conditions say whether the buffer is understood and whether the room is there.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of CapacityBuffers. LimitedByQuotas is reserved and never written.
const (
	ConditionReadyForProvisioning = "ReadyForProvisioning"
	ConditionProvisioning         = "Provisioning"
	ConditionLimitedByQuotas      = "LimitedByQuotas"
)

// Reasons of CapacityBuffer conditions.
const (
	ReasonResolved                = "Resolved"
	ReasonPodTemplateNotFound     = "PodTemplateNotFound"
	ReasonScalableRefNotFound     = "ScalableRefNotFound"
	ReasonResolutionFailed        = "ResolutionFailed"
	ReasonFitsExistingCapacity    = "FitsExistingCapacity"
	ReasonRequiresNewCapacity     = "RequiresNewCapacity"
	ReasonNotReadyForProvisioning = "NotReadyForProvisioning"
	ReasonBufferEmpty             = "BufferEmpty"
)
