package budget_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/disruption/budget"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// monday at 10:00 UTC, told in another zone: schedules must not follow it.
var monday = time.Date(2026, 8, 3, 12, 0, 0, 0, time.FixedZone("CEST", 2*60*60))

func at(nodes, schedule string, duration time.Duration, reasons ...karpv1.DisruptionReason) karpv1.Budget {
	b := karpv1.Budget{Nodes: nodes, Reasons: reasons}
	if schedule != "" {
		b.Schedule, b.Duration = &schedule, &metav1.Duration{Duration: duration}
	}
	return b
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	only := at("0", "", 0, karpv1.DisruptionReasonDrifted)
	half := "0 9 * * *"
	tests := map[string]struct {
		budgets []karpv1.Budget
		total   int
		after   time.Duration // from monday
		want    int
		wantErr string
	}{
		"no budget is no limit":                            {total: 5, want: budget.Unlimited},
		"DISR-035 zero":                                    {budgets: []karpv1.Budget{at("0", "", 0)}, total: 5, want: 0},
		"DISR-036 percentages round up":                    {budgets: []karpv1.Budget{at("10%", "", 0)}, total: 19, want: 2},
		"1% of 3 nodes allows one":                         {budgets: []karpv1.Budget{at("1%", "", 0)}, total: 3, want: 1},
		"a percentage of nothing allows nothing":           {budgets: []karpv1.Budget{at("100%", "", 0)}, total: 0, want: 0},
		"7% of 100 is not rounded up by float error":       {budgets: []karpv1.Budget{at("7%", "", 0)}, total: 100, want: 7},
		"DISR-038 budgets for other reasons do not count":  {budgets: []karpv1.Budget{only}, total: 5, want: budget.Unlimited},
		"a budget that names the reason counts":            {budgets: []karpv1.Budget{at("2", "", 0, "Drifted", "Empty")}, total: 5, want: 2},
		"DISR-039 the smallest counts":                     {budgets: []karpv1.Budget{at("20%", "", 0), at("5", "", 0)}, total: 100, want: 5},
		"DISR-040 inside the window":                       {budgets: []karpv1.Budget{at("0", "0 9 * * mon-fri", 8*time.Hour)}, total: 5, want: 0},
		"DISR-040 after the window":                        {budgets: []karpv1.Budget{at("0", "0 9 * * mon-fri", 8*time.Hour)}, total: 5, after: 8 * time.Hour, want: budget.Unlimited},
		"the window is open at its first instant":          {budgets: []karpv1.Budget{at("0", "0 9 * * *", time.Hour)}, total: 5, after: -time.Hour, want: 0},
		"the window is closed at its end":                  {budgets: []karpv1.Budget{at("0", "0 9 * * *", time.Hour)}, total: 5, want: budget.Unlimited},
		"overlapping windows extend each other":            {budgets: []karpv1.Budget{at("0", "@hourly", 90*time.Minute)}, total: 5, after: 50 * time.Minute, want: 0},
		"a date that never comes is never active":          {budgets: []karpv1.Budget{at("0", "0 0 30 2 *", time.Hour)}, total: 5, want: budget.Unlimited},
		"DISR-041 a schedule that is not cron allows none": {budgets: []karpv1.Budget{at("3", "61 9 * * *", time.Hour)}, total: 5, wantErr: "budgets[0]: schedule"},
		"a fault in a budget for another reason allows none": {
			budgets: []karpv1.Budget{at("3", "", 0), at("3", "a b c d e", time.Hour, karpv1.DisruptionReasonDrifted)}, total: 5, wantErr: "budgets[1]: schedule",
		},
		"a fault in the value of an inactive budget counts": {budgets: []karpv1.Budget{at("101%", "0 0 1 1 *", time.Hour)}, total: 5, wantErr: `nodes "101%"`},
		"a negative number allows none":                     {budgets: []karpv1.Budget{at("-1", "", 0)}, total: 5, wantErr: `nodes "-1"`},
		"a schedule without a duration allows none":         {budgets: []karpv1.Budget{{Nodes: "3", Schedule: &half}}, total: 5, wantErr: "set together"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &karpv1.NodePool{Spec: karpv1.NodePoolSpec{Disruption: karpv1.Disruption{Budgets: tc.budgets}}}
			got, err := budget.Allowed(pool, karpv1.DisruptionReasonEmpty, tc.total, monday.Add(tc.after))
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestDISR037NodesThatAreNotReadyUseUpTheBudget(t *testing.T) {
	t.Parallel()
	node := func(change func(*cluster.Node)) *cluster.Node {
		n := &cluster.Node{Pool: "a", Claim: &karpv1.NodeClaim{}, Initialized: true, Ready: true}
		change(n)
		return n
	}
	counts := budget.Count([]*cluster.Node{
		node(func(*cluster.Node) {}),
		node(func(n *cluster.Node) { n.Ready = false }),
		node(func(n *cluster.Node) { n.Deleting = true }),
		node(func(n *cluster.Node) { n.Initialized = false }),
		node(func(n *cluster.Node) { n.Claim = nil }),
		node(func(n *cluster.Node) { n.Pool = "b" }),
		node(func(n *cluster.Node) { n.Pool = "" }),
		node(func(n *cluster.Node) {
			n.Claim = &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{Conditions: []metav1.Condition{{Type: "InstanceTerminating", Status: "True"}}}}
		}),
	})
	require.Equal(t, map[string]budget.Counts{"a": {Total: 3, Disrupting: 2}, "b": {Total: 1}}, counts)
	require.Equal(t, 1, budget.Remaining(3, counts["a"]))
	require.Equal(t, 0, budget.Remaining(1, counts["a"]))
	require.Equal(t, budget.Unlimited-2, budget.Remaining(budget.Unlimited, counts["a"]))
}
