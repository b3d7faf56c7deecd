// Package v1alpha1 serves CapacityBuffer under its older version, which published examples still use.
// The schema is that of v1beta1, the stored version.
//
// Place in the flow: none in memory; Berth reads and writes v1beta1. The type exists so that the CRD has
// the version and programs can decode it.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.x-k8s.io
package v1alpha1
