package method

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/poolhash"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// Reasons of the Drifted condition that are found without the provider.
const (
	NodePoolDrifted      = "NodePoolDrifted"
	RequirementsDrifted  = "RequirementsDrifted"
	InstanceTypeNotFound = "InstanceTypeNotFound"
)

// typeGrace is how long a new claim is not judged by its instance type: price lists and offerings lag.
const typeGrace = time.Hour

// Drifted returns why the claim no longer is what its pool asks for, "" when it is. types are those of
// the pool's class, nil when they are not known now. The provider's own reasons come after these.
func Drifted(claim *karpv1.NodeClaim, pool *karpv1.NodePool, types []*catalog.InstanceType, now time.Time) string {
	switch {
	case !meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionLaunched):
		return ""
	case staticDrift(claim, pool):
		return NodePoolDrifted
	case requirementDrift(claim, pool):
		return RequirementsDrifted
	case types != nil && now.Sub(claim.CreationTimestamp.Time) >= typeGrace && !offered(claim, types):
		return InstanceTypeNotFound
	}
	return ""
}

// staticDrift compares the hash of the template that the claim was made from with the pool's. Hashes of
// other versions say nothing.
func staticDrift(claim *karpv1.NodeClaim, pool *karpv1.NodePool) bool {
	version, hash := karpv1.AnnotationNodePoolHashVersion, karpv1.AnnotationNodePoolHash
	for _, annotations := range []map[string]string{claim.Annotations, pool.Annotations} {
		if annotations[version] != poolhash.HashVersion || annotations[hash] == "" {
			return false
		}
	}
	return claim.Annotations[hash] != pool.Annotations[hash]
}

// requirementDrift reports whether the claim's labels fall outside the pool's requirements. A key that
// the claim lacks counts, well-known or not.
func requirementDrift(claim *karpv1.NodeClaim, pool *karpv1.NodePool) bool {
	return !requirement.FromLabels(claim.Labels).Allows(requirement.FromClaim(pool.Spec.Template.Spec.Requirements), nil)
}

// offered reports whether the claim's type is sold in its zone in its way, available now or not.
func offered(claim *karpv1.NodeClaim, types []*catalog.InstanceType) bool {
	name, zone, kind := claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone], claim.Labels[karpv1.LabelCapacityType]
	i := slices.IndexFunc(types, func(it *catalog.InstanceType) bool { return it.Name == name })
	if i < 0 {
		return false
	}
	return slices.ContainsFunc(types[i].Offerings, func(o catalog.Offering) bool {
		return o.Zone == zone && (o.CapacityType == kind || kind == karpv1.CapacityTypeReserved && o.CapacityType == karpv1.CapacityTypeOnDemand)
	})
}
