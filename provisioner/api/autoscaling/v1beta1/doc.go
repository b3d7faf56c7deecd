// Package v1beta1 has the wire type CapacityBuffer of group autoscaling.x-k8s.io: room that is kept free
// for pods that are still to come.
//
// Place in the flow: users write buffers; the provisioner turns them into virtual pods that it solves
// for. The package has no behaviour. The validation markers are the only source of manifests/crds.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.x-k8s.io
package v1beta1
