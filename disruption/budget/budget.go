package budget

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/meta"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// Unlimited is what a pool without an active budget allows.
const Unlimited = math.MaxInt

// Counts are the nodes of one pool that budgets look at.
type Counts struct {
	// Total nodes are initialized and their instance is not terminating.
	Total int
	// Disrupting are those of them that are not ready or on their way out, for whatever cause.
	Disrupting int
}

// Count sums up the nodes of every pool.
func Count(nodes []*cluster.Node) map[string]Counts {
	counts := map[string]Counts{}
	for _, node := range nodes {
		if node.Pool == "" || node.Claim == nil || !node.Initialized ||
			meta.IsStatusConditionTrue(node.Claim.Status.Conditions, karpv1.ConditionInstanceTerminating) {
			continue
		}
		c := counts[node.Pool]
		c.Total++
		if !node.Ready || node.Deleting {
			c.Disrupting++
		}
		counts[node.Pool] = c
	}
	return counts
}

// Allowed returns how many of total nodes may be disrupted at once for the reason: the least over the
// budgets that are active now and name the reason, Unlimited when there is none. When any budget of
// the pool cannot be read, whatever its reasons, the result is 0 with an error that names the budget.
func Allowed(budgets []karpv1.Budget, reason karpv1.DisruptionReason, total int, now time.Time) (int, error) {
	allowed := Unlimited
	var errs []error
	for i, b := range budgets {
		limit, err := one(b, total, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.disruption.budgets[%d]: %w", i, err))
		}
		if len(b.Reasons) == 0 || slices.Contains(b.Reasons, reason) {
			allowed = min(allowed, limit)
		}
	}
	if len(errs) > 0 {
		return 0, errors.Join(errs...)
	}
	return allowed, nil
}

// Remaining returns how many more nodes may go now.
func Remaining(allowed int, counts Counts) int {
	return max(allowed-counts.Disrupting, 0)
}

func one(b karpv1.Budget, total int, now time.Time) (int, error) {
	active, err := isActive(b, now)
	if err != nil {
		return 0, err
	}
	limit, err := Share(b.Nodes, total)
	switch {
	case err != nil:
		return 0, fmt.Errorf("nodes %w", err)
	case !active:
		return Unlimited, nil
	}
	return limit, nil
}

// Share reads a number, or a percentage of total, rounded up.
func Share(text string, total int) (int, error) {
	number, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || (isPercent && n > 100) {
		return 0, fmt.Errorf("%q is neither a number nor a percentage up to 100%%", text)
	}
	if !isPercent {
		return int(n), nil
	}
	return (total*int(n) + 99) / 100, nil
}

// isActive reports whether the schedule, in UTC, has a hit after now-duration and not after now.
func isActive(b karpv1.Budget, now time.Time) (bool, error) {
	if b.Schedule == nil && b.Duration == nil {
		return true, nil
	}
	if b.Schedule == nil || b.Duration == nil {
		return false, errors.New("schedule and duration must be set together")
	}
	schedule, err := cron.ParseStandard(strings.TrimSpace(*b.Schedule))
	if err != nil {
		return false, fmt.Errorf("schedule %q is not in cron syntax: %w", *b.Schedule, err)
	}
	next := schedule.Next(now.UTC().Add(-b.Duration.Duration))
	return !next.IsZero() && !next.After(now), nil // zero: a date that does not exist
}
