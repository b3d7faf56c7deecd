//go:build crdschema

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelValue is the value of a label: at most 63 letters, digits, '-', '_' and '.', or empty.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// NillableDuration is a duration, or Never.
type NillableDuration string

// Taint keeps pods without a matching toleration off a node.
type Taint struct {
	// key is the taint key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +required
	Key string `json:"key"`
	// value is the taint value. Leave it out for a taint without value.
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +optional
	Value string `json:"value,omitempty"`
	// effect says what happens to pods that do not tolerate the taint.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	// +required
	Effect corev1.TaintEffect `json:"effect"`
	// timeAdded is when the taint was added. Not used.
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// NodeClaimCondition is one observation of the NodeClaim's state.
type NodeClaimCondition struct {
	// type of the condition in CamelCase or in foo.example.com/CamelCase.
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	// +kubebuilder:validation:MaxLength=316
	// +required
	Type string `json:"type"`
	// status of the condition.
	// +kubebuilder:validation:Enum="True";"False";Unknown
	// +required
	Status metav1.ConditionStatus `json:"status"`
	// observedGeneration is the metadata.generation that the condition was set for.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// reason is a CamelCase word for the last transition; may be empty.
	// +kubebuilder:validation:Pattern=`^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$`
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Reason string `json:"reason"`
	// message has the details for people.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`
}

// ResourceList has amounts by resource name.
type ResourceList map[corev1.ResourceName]Quantity

// Quantity is an amount: 500m, 2, 1.5Gi, 1e3.
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Pattern=`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,3}))?$`
type Quantity string
