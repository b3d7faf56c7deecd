package budget

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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

// Allowed returns how many of total nodes of the pool may be disrupted at once for the reason: the least
// over the budgets that are active now and name the reason. When there is none it is Unlimited, or 0 in a
// pool whose annotation denies what no budget allows. When any budget or annotation of the pool cannot be
// read, whatever its reasons, the result is 0 with an error that names it.
func Allowed(pool *karpv1.NodePool, reason karpv1.DisruptionReason, total int, now time.Time) (int, error) {
	rules, err := rulesOf(pool)
	errs := []error{err}
	allowed, limited := Unlimited, false
	for i, b := range pool.Spec.Disruption.Budgets {
		limit, active, err := one(b, rules.zone, total, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.disruption.budgets[%d]: %w", i, err))
		}
		if active && names(b, reason) {
			allowed, limited = min(allowed, limit), true
		}
	}
	switch err := errors.Join(errs...); {
	case err != nil:
		return 0, err
	case !limited && rules.closed:
		return 0, nil
	}
	return allowed, nil
}

func names(b karpv1.Budget, reason karpv1.DisruptionReason) bool {
	return len(b.Reasons) == 0 || slices.Contains(b.Reasons, reason)
}

// Remaining returns how many more nodes may go now.
func Remaining(allowed int, counts Counts) int {
	return max(allowed-counts.Disrupting, 0)
}

func one(b karpv1.Budget, zone *time.Location, total int, now time.Time) (limit int, active bool, err error) {
	active, _, err = window(b, zone, now)
	if err != nil {
		return 0, false, err
	}
	if limit, err = Share(b.Nodes, total); err != nil {
		return 0, false, fmt.Errorf("nodes %w", err)
	}
	return limit, active, nil
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
