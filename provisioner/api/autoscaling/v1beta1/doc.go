// Package v1beta1 has the wire type CapacityBuffer of group autoscaling.x-k8s.io: room that is kept free
// for pods that are still to come.
//
// Place in the flow: users write buffers; the provisioner turns them into virtual pods that it solves
// for. The package has no behaviour. The validation markers are the only source of manifests/crds.
// Types whose schema is narrower than the Go type that carries them are aliases here; under the build tag
// crdschema, which only the CRD generator sets, schema_crd.go replaces them by annotated twins.
//
// +k8s:deepcopy-gen=package
// +groupName=autoscaling.x-k8s.io
package v1beta1
