// Package v1 has the wire types of group karpenter.sh: NodePool, which says what nodes may be bought,
// and NodeClaim, which stands for one node from the wish to the end of the machine.
//
// Place in the flow: users write NodePools; launch writes NodeClaims and lifecycle their status;
// everything else reads them. The package has no behaviour beyond encoding. The validation markers are
// the only source of manifests/crds.
//
// Some schemas are narrower than the Go type that carries them (a taint, a label value, the condition
// of a NodeClaim). Those types are aliases here; under the build tag crdschema, which only the CRD
// generator sets, schema_crd.go replaces them by annotated twins.
//
// +k8s:deepcopy-gen=package
// +groupName=karpenter.sh
package v1
