// Package v1alpha1 has the wire type NodeOverlay of group karpenter.sh: corrections to the price and the
// capacity of instance types.
//
// Place in the flow: users write overlays; the provisioner applies them to the catalogue before it
// solves. The package has no behaviour. The validation markers are the only source of manifests/crds.
// Types whose schema is narrower than the Go type that carries them are aliases here; under the build tag
// crdschema, which only the CRD generator sets, schema_crd.go replaces them by annotated twins.
//
// +k8s:deepcopy-gen=package
// +groupName=karpenter.sh
package v1alpha1
