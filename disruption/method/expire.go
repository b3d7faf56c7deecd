package method

import (
	"hash/fnv"
	"time"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// maxEarly bounds how long before its deadline a node may be replaced.
const maxEarly = 24 * time.Hour

// Expiry returns when the claim may be replaced because it will expire, and when it goes regardless. ok
// is false when it never expires. The first moment lies within the last tenth of the lifetime, at most a
// day before the deadline, at a point that differs from claim to claim, so that a fleet which was made
// at once does not go at once.
func Expiry(claim *karpv1.NodeClaim) (early, deadline time.Time, ok bool) {
	after := claim.Spec.ExpireAfter.Duration
	if after == nil {
		return time.Time{}, time.Time{}, false
	}
	deadline = claim.CreationTimestamp.Add(*after)
	window := min(*after/10, maxEarly)
	h := fnv.New32a()
	_, _ = h.Write([]byte(claim.UID))
	share := float64(h.Sum32()) / (1 << 32)
	return deadline.Add(-window + time.Duration(share*float64(window)/2)), deadline, true
}
