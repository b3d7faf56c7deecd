// Package v1alpha1 has the wire type NodeOverlay of group karpenter.sh: corrections to the price and the
// capacity of instance types.
//
// Place in the flow: users write overlays; the provisioner applies them to the catalogue before it
// solves. The package has no behaviour. The validation markers are the only source of manifests/crds.
//
// +k8s:deepcopy-gen=package
// +groupName=karpenter.sh
package v1alpha1
