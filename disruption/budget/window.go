package budget

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the image has no zone files

	"github.com/robfig/cron/v3"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// rules are what the annotations of a pool say about all its budgets.
type rules struct {
	zone   *time.Location // of schedules
	closed bool           // what no budget allows is denied
}

func rulesOf(pool *karpv1.NodePool) (rules, error) {
	r := rules{zone: time.UTC}
	if name, ok := pool.Annotations[karpv1.AnnotationBudgetTimeZone]; ok {
		zone, err := time.LoadLocation(name)
		if err != nil || name == "" || name == "Local" {
			return r, fmt.Errorf("annotation %s has %q: use a name of the IANA time zone database, like America/New_York", karpv1.AnnotationBudgetTimeZone, name)
		}
		r.zone = zone
	}
	switch value, ok := pool.Annotations[karpv1.AnnotationBudgetsOutsideWindows]; {
	case value == karpv1.BudgetsOutsideWindowsDeny:
		r.closed = true
	case ok && value != karpv1.BudgetsOutsideWindowsAllow:
		return r, fmt.Errorf("annotation %s has %q: use %s or %s", karpv1.AnnotationBudgetsOutsideWindows, value,
			karpv1.BudgetsOutsideWindowsAllow, karpv1.BudgetsOutsideWindowsDeny)
	}
	return r, nil
}

// window reports whether the schedule, in the zone, has a hit after now-duration and not after now, and if
// so, until when it is active at least. Budgets without a schedule are always active; until is zero then.
func window(b karpv1.Budget, zone *time.Location, now time.Time) (active bool, until time.Time, err error) {
	if b.Schedule == nil && b.Duration == nil {
		return true, time.Time{}, nil
	}
	if b.Schedule == nil || b.Duration == nil {
		return false, time.Time{}, errors.New("schedule and duration must be set together")
	}
	schedule, err := cron.ParseStandard(strings.TrimSpace(*b.Schedule))
	if err != nil {
		return false, time.Time{}, fmt.Errorf("schedule %q is not in cron syntax: %w", *b.Schedule, err)
	}
	hit := schedule.Next(now.In(zone).Add(-b.Duration.Duration))
	if hit.IsZero() || hit.After(now) { // zero: a date that does not exist
		return false, time.Time{}, nil
	}
	return true, hit.Add(b.Duration.Duration), nil
}

const (
	// gapHorizon is how far ahead gaps are looked for; gapSteps bounds the work where windows are short.
	gapHorizon = 35 * 24 * time.Hour
	gapSteps   = 1000
)

// Gap returns the next moment at which no budget of the pool speaks of the reason although at other times
// one does, so that any number of nodes may go. ok is false when there is none, when the pool denies what
// no budget allows, and when its budgets cannot be read, which Allowed tells.
func Gap(pool *karpv1.NodePool, reason karpv1.DisruptionReason, now time.Time) (at time.Time, ok bool) {
	rules, err := rulesOf(pool)
	if err != nil || rules.closed {
		return time.Time{}, false
	}
	var timed []karpv1.Budget
	for _, b := range pool.Spec.Disruption.Budgets {
		if names(b, reason) {
			timed = append(timed, b)
		}
	}
	if len(timed) == 0 {
		return time.Time{}, false
	}
	at = now
	for range gapSteps {
		next := at
		for _, b := range timed {
			active, until, err := window(b, rules.zone, at)
			if err != nil || active && until.IsZero() {
				return time.Time{}, false
			}
			if active && until.After(next) {
				next = until
			}
		}
		if next.Equal(at) {
			return at, true
		}
		if at = next; at.Sub(now) > gapHorizon {
			break
		}
	}
	return time.Time{}, false
}

// GapText tells what a gap means and how to close it.
func GapText(reason karpv1.DisruptionReason, at time.Time) string {
	return fmt.Sprintf("no budget for %s outside the windows of the schedules, next at %s: any number of nodes may go at once then. "+
		"Add a budget without a schedule, or the annotation %s: %s", reason, at.UTC().Format(time.RFC3339),
		karpv1.AnnotationBudgetsOutsideWindows, karpv1.BudgetsOutsideWindowsDeny)
}
