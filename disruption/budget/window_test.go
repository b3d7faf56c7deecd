package budget_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/disruption/budget"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// core is the pool of case-015.
func core(annotations ...string) *karpv1.NodePool {
	pool := &karpv1.NodePool{}
	pool.Annotations = map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		pool.Annotations[annotations[i]] = annotations[i+1]
	}
	pool.Spec.Disruption.Budgets = []karpv1.Budget{at("35%", "0 1 * * mon", 4*time.Hour), at("35%", "", 0, karpv1.DisruptionReasonEmpty)}
	return pool
}

var (
	thursday = time.Date(2026, 4, 30, 14, 50, 0, 0, time.UTC)
	inWindow = time.Date(2026, 5, 4, 2, 0, 0, 0, time.UTC)
)

func TestCase015HoursThatNoBudgetCovers(t *testing.T) {
	t.Parallel()
	const zone, outside = karpv1.AnnotationBudgetTimeZone, karpv1.AnnotationBudgetsOutsideWindows
	no := budget.Unlimited
	tests := map[string]struct {
		pool    *karpv1.NodePool
		now     time.Time
		want    [3]int // for Empty, Drifted, Underutilized
		wantErr string
	}{
		"no budget is no limit":                    {pool: core(), now: thursday, want: [3]int{4, no, no}},
		"inside the window":                        {pool: core(), now: inWindow, want: [3]int{4, 4, 4}},
		"said to be so":                            {pool: core(outside, "Allow"), now: thursday, want: [3]int{4, no, no}},
		"denied outside":                           {pool: core(outside, "Deny"), now: thursday, want: [3]int{4, 0, 0}},
		"denied outside, inside":                   {pool: core(outside, "Deny"), now: inWindow, want: [3]int{4, 4, 4}},
		"the window is another one in New York":    {pool: core(zone, "America/New_York"), now: inWindow, want: [3]int{4, no, no}},
		"it opens four hours later there":          {pool: core(zone, "America/New_York"), now: inWindow.Add(4 * time.Hour), want: [3]int{4, 4, 4}},
		"denied outside the window of New York":    {pool: core(zone, "America/New_York", outside, "Deny"), now: inWindow, want: [3]int{4, 0, 0}},
		"a zone that does not exist allows none":   {pool: core(zone, "Mars/Olympus"), now: inWindow, wantErr: `annotation berth.dev/budget-time-zone has "Mars/Olympus": use a name of the IANA`},
		"nor the zone of whatever machine this is": {pool: core(zone, "Local"), now: inWindow, wantErr: "budget-time-zone"},
		"nor a word that means nothing":            {pool: core(outside, "no"), now: inWindow, wantErr: `annotation berth.dev/budgets-outside-windows has "no": use Allow or Deny`},
		"nor an empty one":                         {pool: core(outside, ""), now: inWindow, wantErr: "budgets-outside-windows"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, reason := range []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonDrifted, karpv1.DisruptionReasonUnderutilized} {
				got, err := budget.Allowed(tc.pool, reason, 10, tc.now)
				if tc.wantErr != "" {
					require.ErrorContains(t, err, tc.wantErr)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, tc.want[i], got, reason)
			}
		})
	}
}

// A night in which clocks change has the window's hours, not those of UTC.
func TestWindowsFollowSummerTime(t *testing.T) {
	t.Parallel()
	pool := core(karpv1.AnnotationBudgetTimeZone, "Europe/Berlin")
	pool.Spec.Disruption.Budgets = []karpv1.Budget{at("1", "0 22 * * *", time.Hour)}
	for _, open := range []time.Time{time.Date(2026, 1, 10, 21, 30, 0, 0, time.UTC), time.Date(2026, 7, 10, 20, 30, 0, 0, time.UTC)} {
		allowed, err := budget.Allowed(pool, karpv1.DisruptionReasonDrifted, 10, open)
		require.NoError(t, err)
		require.Equal(t, 1, allowed, open)
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	with := func(budgets ...karpv1.Budget) *karpv1.NodePool {
		pool := core()
		pool.Spec.Disruption.Budgets = budgets
		return pool
	}
	drifted := karpv1.DisruptionReasonDrifted
	tests := map[string]struct {
		pool *karpv1.NodePool
		now  time.Time
		want string // "" for none
	}{
		"now":                               {pool: core(), now: thursday, want: "2026-04-30T14:50:00Z"},
		"at the end of the window":          {pool: core(), now: inWindow, want: "2026-05-04T05:00:00Z"},
		"not where it is denied":            {pool: core(karpv1.AnnotationBudgetsOutsideWindows, "Deny"), now: thursday},
		"not with a budget at all times":    {pool: with(at("0", "0 1 * * mon", time.Hour), at("5", "", 0)), now: thursday},
		"not of a reason that is not named": {pool: with(at("0", "0 1 * * mon", time.Hour, karpv1.DisruptionReasonEmpty)), now: thursday},
		"windows that meet":                 {pool: with(at("0", "0 0 * * *", 12*time.Hour), at("5", "0 12 * * *", 12*time.Hour)), now: thursday},
		"windows that just do not":          {pool: with(at("0", "0 0 * * *", 12*time.Hour), at("5", "1 12 * * *", 12*time.Hour)), now: thursday, want: "2026-05-01T12:00:00Z"},
		"windows of a minute":               {pool: with(at("0", "* * * * *", time.Minute)), now: thursday},
		"budgets that cannot be read":       {pool: with(at("0", "x", time.Minute)), now: thursday},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := budget.Gap(tc.pool, drifted, tc.now)
			require.Equal(t, tc.want != "", ok)
			if ok {
				require.Equal(t, tc.want, got.UTC().Format(time.RFC3339))
				require.Contains(t, budget.GapText(drifted, got), "no budget for Drifted outside the windows")
			}
		})
	}
}
