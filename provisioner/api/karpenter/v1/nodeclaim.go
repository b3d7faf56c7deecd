package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeClaim is one node, from the intent to buy it until its instance is gone.
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeclaims,scope=Cluster,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".metadata.labels.node\\.kubernetes\\.io/instance-type",description="Instance type"
// +kubebuilder:printcolumn:name="Capacity",type="string",JSONPath=".metadata.labels.karpenter\\.sh/capacity-type",description="Capacity type"
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=".metadata.labels.topology\\.kubernetes\\.io/zone",description="Zone"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName",description="Node, once registered"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the node is launched, registered and initialized"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="ImageID",type="string",JSONPath=".status.imageID",priority=1,description="Machine image"
// +kubebuilder:printcolumn:name="ID",type="string",JSONPath=".status.providerID",priority=1,description="Instance"
// +kubebuilder:printcolumn:name="NodePool",type="string",JSONPath=".metadata.labels.karpenter\\.sh/nodepool",priority=1,description="Pool"
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.nodeClassRef.name",priority=1,description="Class"
// +kubebuilder:printcolumn:name="Drifted",type="string",JSONPath=".status.conditions[?(@.type==\"Drifted\")].status",priority=1,description="Whether the node no longer matches its pool or class"
type NodeClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:message="spec is immutable",rule="self == oldSelf"
	// +required
	Spec NodeClaimSpec `json:"spec"`
	// +optional
	Status NodeClaimStatus `json:"status,omitempty"`
}

// NodeClaimList is a list of NodeClaims.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type NodeClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeClaim `json:"items"`
}

// NodeClaimSpec is what the node must be. It never changes.
type NodeClaimSpec struct {
	// nodeClassRef names the class that the node is made from.
	// +required
	NodeClassRef *NodeClassReference `json:"nodeClassRef"`
	// requirements limit the labels that the node may have. The provider may choose any instance that
	// satisfies all of them.
	// +kubebuilder:validation:XValidation:message="requirements with operator 'In' must have a value defined",rule="self.all(x, x.operator != 'In' || (has(x.values) && size(x.values) > 0))"
	// +kubebuilder:validation:XValidation:message="requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",rule="self.all(x, !(x.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(x.values) && size(x.values) == 1 && int(x.values[0]) >= 0))"
	// +kubebuilder:validation:XValidation:message="requirements with 'minValues' must have at least that many values specified in the 'values' field",rule="self.all(x, !(x.operator == 'In' && has(x.minValues)) || (has(x.values) && size(x.values) >= x.minValues))"
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +required
	Requirements []NodeSelectorRequirementWithMinValues `json:"requirements"`
	// resources is the least that the instance must offer.
	// +optional
	Resources ResourceRequirements `json:"resources,omitzero"`
	// taints are on the node from the start.
	// +listType=atomic
	// +optional
	Taints []Taint `json:"taints,omitempty"`
	// startupTaints are on the node from the start and are taken off by something else once the node is
	// prepared.
	// +listType=atomic
	// +optional
	StartupTaints []Taint `json:"startupTaints,omitempty"`
	// expireAfter is how long the node may live, or Never.
	// +kubebuilder:default:="720h"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +optional
	ExpireAfter NillableDuration `json:"expireAfter,omitzero"`
	// terminationGracePeriod is how long draining may take before pods are deleted regardless of disruption
	// budgets. Unset means wait for ever.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:message="must be shorter than 292 years",rule="duration(self) >= duration('0s')"
	// +optional
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
}

// ResourceRequirements is what the instance must offer.
type ResourceRequirements struct {
	// requests is the sum over the pods planned for the node and its daemons, pods included.
	// +optional
	Requests ResourceList `json:"requests,omitempty"`
}

// NodeClaimStatus is what is observed of the node.
type NodeClaimStatus struct {
	// nodeName is the node's name, from registration on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// providerID is the instance, from launch on. It equals spec.providerID of the Node.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// imageID is the machine image in use.
	// +optional
	ImageID string `json:"imageID,omitempty"`
	// capacity estimates what the instance has, from its type.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// allocatable estimates what pods can use of it.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// lastPodEventTime is when a pod other than a daemon last came to, or left, the node, to 10 seconds.
	// +optional
	LastPodEventTime metav1.Time `json:"lastPodEventTime,omitzero"`
	// conditions say how far the node has come and what is happening to it.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []NodeClaimCondition `json:"conditions,omitempty"`
}
