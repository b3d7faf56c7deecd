package lifecycle

import (
	"time"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

const (
	// longestHold is how long a drain waits for replacements to be launched: planning and launching take a
	// second or two, and a node that goes must not stay because nothing can be bought.
	longestHold = 10 * time.Second
	holdRetry   = 100 * time.Millisecond
)

// mustHold reports whether the drain waits for the replacements of the node's pods to be on their way.
func (c *Controller) mustHold(claim *karpv1.NodeClaim, deadline time.Time) bool {
	if c.Hooks.Placed == nil {
		return false
	}
	begun := claim.DeletionTimestamp.Time
	return c.Clock.Since(begun) < holdFor(begun, deadline) && !c.Hooks.Placed(claim)
}

// holdFor returns how long a drain that could have begun at that time may wait: of a short time until the
// deadline a quarter, as the pods need the rest of it. A zero deadline is none.
func holdFor(begun, deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return longestHold
	}
	return min(longestHold, max(0, deadline.Sub(begun)/4))
}
