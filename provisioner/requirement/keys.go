package requirement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// aliases maps old and provider-specific keys to the one that everything is compared by.
var aliases = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	ec2v1.LabelEBSCSIZone:               corev1.LabelTopologyZone,
}

// NormalizeKey returns the canonical key for an alias, and any other key as it is.
func NormalizeKey(key string) string {
	if canonical, ok := aliases[key]; ok {
		return canonical
	}
	return key
}

var sortedWellKnown = func() []string {
	keys := append(karpv1.WellKnownLabels(), ec2v1.WellKnownLabels()...)
	slices.Sort(keys)
	return slices.Compact(keys)
}()

// IsWellKnown reports whether the provisioner knows the key's values before a node exists: instance
// types and offerings define it.
func IsWellKnown(key string) bool {
	_, ok := slices.BinarySearch(sortedWellKnown, key)
	return ok
}
