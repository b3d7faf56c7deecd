// Package v1 has the wire type EC2NodeClass of group karpenter.k8s.aws: how the machines of a pool are
// made on EC2.
//
// Place in the flow: users write classes; provisioner/aws/nodeclass resolves their selectors into the
// status; fleet launches from the status. The package has no behaviour. The validation markers are the
// only source of manifests/crds.
//
// The schema of a volume size is narrower than the Go type that carries it, so the type is an alias
// here; under the build tag crdschema, which only the CRD generator sets, schema_crd.go replaces it by
// an annotated twin.
//
// +k8s:deepcopy-gen=package
// +groupName=karpenter.k8s.aws
// +groupGoName=EC2
package v1
