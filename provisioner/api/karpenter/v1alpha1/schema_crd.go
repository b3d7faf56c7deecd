//go:build crdschema

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// ResourceList has amounts by resource name.
type ResourceList map[corev1.ResourceName]Quantity

// Quantity is an amount: 500m, 2, 1.5Gi, 1e3.
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Pattern=`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,3}))?$`
type Quantity string
