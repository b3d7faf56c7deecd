package condition

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// Set stores the condition and reports whether anything changed. A True condition without a reason
// gets its type for one. The transition time is now when the status is new or another one than before,
// and stays otherwise; the one in c is ignored.
func Set(conds *[]metav1.Condition, c metav1.Condition, now time.Time) (changed bool) {
	if c.Reason == "" && c.Status == metav1.ConditionTrue {
		c.Reason = c.Type
	}
	c.LastTransitionTime = metav1.NewTime(now)
	i := index(*conds, c.Type)
	if i < 0 {
		*conds = append(*conds, c)
		order(*conds, karpv1.ConditionReady)
		return true
	}
	have := (*conds)[i]
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	if have == c {
		return false
	}
	(*conds)[i] = c
	order(*conds, karpv1.ConditionReady)
	return true
}

// Init adds the root and the dependents that are missing, as Unknown since created, so that timeouts
// count from there. It reports whether it added any.
func Init(conds *[]metav1.Condition, root string, dependents []string, created time.Time) (changed bool) {
	for _, kind := range append(slices.Clone(dependents), root) {
		if index(*conds, kind) < 0 {
			*conds = append(*conds, metav1.Condition{
				Type: kind, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(created),
				Reason: karpv1.ReasonAwaitingReconciliation, Message: karpv1.MessageAwaitingReconciliation,
			})
			changed = true
		}
	}
	order(*conds, root)
	return changed
}

// Roll sets the root from its dependents and reports whether anything changed: False when any of them
// is False at the generation, True when all are True at it, Unknown otherwise. A dependent that is
// missing counts as Unknown.
func Roll(conds *[]metav1.Condition, root string, dependents []string, generation int64, now time.Time) (changed bool) {
	var open []metav1.Condition
	failed := false
	for _, kind := range dependents {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
		if i := index(*conds, kind); i >= 0 {
			c = (*conds)[i]
		}
		current := c.ObservedGeneration == generation
		if c.Status != metav1.ConditionTrue || !current {
			open = append(open, c)
		}
		failed = failed || (c.Status == metav1.ConditionFalse && current)
	}
	c := metav1.Condition{Type: root, Status: metav1.ConditionTrue, Reason: root, ObservedGeneration: generation, Message: describe(open)}
	switch {
	case failed:
		c.Status, c.Reason = metav1.ConditionFalse, karpv1.ReasonUnhealthyDependents
	case len(open) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, karpv1.ReasonReconcilingDependents
	}
	changed = Set(conds, c, now)
	order(*conds, root)
	return changed
}

// describe lists the conditions, those that changed last first.
func describe(open []metav1.Condition) string {
	slices.SortStableFunc(open, func(a, b metav1.Condition) int { return b.LastTransitionTime.Compare(a.LastTransitionTime.Time) })
	parts := make([]string, len(open))
	for i, c := range open {
		parts[i] = c.Type + "=" + string(c.Status)
	}
	return strings.Join(parts, ", ")
}

// Remove takes the conditions of these types out and reports whether there were any. Only conditions
// that nothing depends on may go; their absence means no.
func Remove(conds *[]metav1.Condition, types ...string) (changed bool) {
	before := len(*conds)
	*conds = slices.DeleteFunc(*conds, func(c metav1.Condition) bool { return slices.Contains(types, c.Type) })
	return len(*conds) != before
}

// Transition is one condition whose status changed.
type Transition struct {
	Before metav1.ConditionStatus
	Now    metav1.Condition
}

// Transitions returns the conditions that exist on both sides with another status, in the order of
// after. New and removed conditions are none.
func Transitions(before, after []metav1.Condition) []Transition {
	var out []Transition
	for _, now := range after {
		if i := index(before, now.Type); i >= 0 && before[i].Status != now.Status {
			out = append(out, Transition{Before: before[i].Status, Now: now})
		}
	}
	return out
}

// order sorts by transition time, the root last.
func order(conds []metav1.Condition, root string) {
	rank := func(c metav1.Condition) int {
		if c.Type == root {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(conds, func(a, b metav1.Condition) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.LastTransitionTime.Compare(b.LastTransitionTime.Time))
	})
}

func index(conds []metav1.Condition, kind string) int {
	return slices.IndexFunc(conds, func(c metav1.Condition) bool { return c.Type == kind })
}
