//go:build !crdschema

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Taint is the core Taint. Its schema demands an effect and qualified names.
type Taint = corev1.Taint

// LabelValue is a string whose schema demands a valid label value.
type LabelValue = string

// NodeClaimCondition is the standard Condition. Its schema lets the reason be empty and the message be
// absent, because such NodeClaims exist in clusters that are taken over.
type NodeClaimCondition = metav1.Condition

// ResourceList is the core ResourceList. Its schema refuses the few texts that pass for quantities but
// cannot be parsed (1e1.5): one such stored object would keep every watcher from reading its kind.
type ResourceList = corev1.ResourceList
