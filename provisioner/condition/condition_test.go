package condition_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/provisioner/condition"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func types(conds []metav1.Condition) []string {
	out := make([]string, len(conds))
	for i, c := range conds {
		out[i] = c.Type
	}
	return out
}

func TestSet(t *testing.T) {
	t.Parallel()
	yes := metav1.Condition{Type: "A", Status: metav1.ConditionTrue}
	no := metav1.Condition{Type: "A", Status: metav1.ConditionFalse, Reason: "Bad", Message: "m"}
	tests := map[string]struct {
		sets        []metav1.Condition // the i-th one at second i
		wantChanged bool               // of the last one
		wantAt      time.Time
		wantReason  string
	}{
		"a new condition starts now, with its type as reason when True": {sets: []metav1.Condition{yes}, wantChanged: true, wantAt: at(0), wantReason: "A"},
		"the same again changes nothing":                                {sets: []metav1.Condition{yes, yes}, wantAt: at(0), wantReason: "A"},
		"another status moves the time":                                 {sets: []metav1.Condition{yes, no}, wantChanged: true, wantAt: at(1), wantReason: "Bad"},
		"another reason alone keeps the time": {
			sets:        []metav1.Condition{no, {Type: "A", Status: metav1.ConditionFalse, Reason: "Worse"}},
			wantChanged: true, wantAt: at(0), wantReason: "Worse",
		},
		"another generation alone keeps the time": {
			sets:        []metav1.Condition{yes, {Type: "A", Status: metav1.ConditionTrue, ObservedGeneration: 2}},
			wantChanged: true, wantAt: at(0), wantReason: "A",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conds []metav1.Condition
			var changed bool
			for i, c := range tc.sets {
				changed = condition.Set(&conds, c, at(i))
			}
			require.Equal(t, tc.wantChanged, changed)
			require.Len(t, conds, 1)
			require.Equal(t, tc.wantAt, conds[0].LastTransitionTime.Time)
			require.Equal(t, tc.wantReason, conds[0].Reason)
		})
	}
}

func TestInitAddsWhatIsMissingSinceCreation(t *testing.T) {
	t.Parallel()
	conds := []metav1.Condition{{Type: "B", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(5))}}
	require.True(t, condition.Init(&conds, "Ready", []string{"A", "B"}, t0))
	require.Equal(t, []string{"A", "B", "Ready"}, types(conds))
	require.Equal(t, metav1.Condition{
		Type: "A", Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(t0),
		Reason: "AwaitingReconciliation", Message: "object is awaiting reconciliation",
	}, conds[0])
	require.Equal(t, metav1.ConditionTrue, conds[1].Status)
	require.False(t, condition.Init(&conds, "Ready", []string{"A", "B"}, at(9)))
}

func TestRoll(t *testing.T) {
	t.Parallel()
	cond := func(kind string, status metav1.ConditionStatus, generation int64, second int) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(at(second))}
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	tests := map[string]struct {
		conds                   []metav1.Condition
		want                    metav1.ConditionStatus
		wantReason, wantMessage string
	}{
		"all True at the generation":           {conds: []metav1.Condition{cond("A", yes, 2, 1), cond("B", yes, 2, 2)}, want: yes, wantReason: "Ready"},
		"True at an older generation is open":  {conds: []metav1.Condition{cond("A", yes, 1, 1), cond("B", yes, 2, 2)}, want: unknown, wantReason: "ReconcilingDependents", wantMessage: "A=True"},
		"one False wins over Unknown":          {conds: []metav1.Condition{cond("A", no, 2, 1), cond("B", unknown, 2, 2)}, want: no, wantReason: "UnhealthyDependents", wantMessage: "B=Unknown, A=False"},
		"False at an older generation is open": {conds: []metav1.Condition{cond("A", no, 1, 1), cond("B", yes, 2, 2)}, want: unknown, wantReason: "ReconcilingDependents", wantMessage: "A=False"},
		"the newest transition is named first": {conds: []metav1.Condition{cond("A", no, 2, 7), cond("B", no, 2, 3)}, want: no, wantReason: "UnhealthyDependents", wantMessage: "A=False, B=False"},
		"a missing dependent is Unknown":       {conds: []metav1.Condition{cond("A", yes, 2, 1)}, want: unknown, wantReason: "ReconcilingDependents", wantMessage: "B=Unknown"},
		"others do not count":                  {conds: []metav1.Condition{cond("A", yes, 2, 1), cond("B", yes, 2, 2), cond("C", no, 2, 3)}, want: yes, wantReason: "Ready"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conds := tc.conds
			require.True(t, condition.Roll(&conds, "Ready", []string{"A", "B"}, 2, at(0)))
			root := conds[len(conds)-1]
			require.Equal(t, "Ready", root.Type, "the root is last although it changed first")
			require.Equal(t, tc.want, root.Status)
			require.Equal(t, tc.wantReason, root.Reason)
			require.Equal(t, tc.wantMessage, root.Message)
			require.EqualValues(t, 2, root.ObservedGeneration)
			require.False(t, condition.Roll(&conds, "Ready", []string{"A", "B"}, 2, at(99)), "rolling again changes nothing")
		})
	}
}

func TestConditionsAreStoredByTransition(t *testing.T) {
	t.Parallel()
	var conds []metav1.Condition
	condition.Init(&conds, "Ready", []string{"A", "B"}, t0)
	condition.Set(&conds, metav1.Condition{Type: "A", Status: metav1.ConditionTrue}, at(1))
	require.Equal(t, []string{"B", "A", "Ready"}, types(conds))
}

func TestRemove(t *testing.T) {
	t.Parallel()
	conds := []metav1.Condition{{Type: "A"}, {Type: "B"}}
	require.True(t, condition.Remove(&conds, "A"))
	require.False(t, condition.Remove(&conds, "A"))
	require.Equal(t, []string{"B"}, types(conds))
}

func TestTransitionsAreOfConditionsThatExisted(t *testing.T) {
	t.Parallel()
	before := []metav1.Condition{{Type: "A", Status: "Unknown"}, {Type: "B", Status: "True"}, {Type: "Gone", Status: "True"}}
	after := []metav1.Condition{{Type: "A", Status: "True"}, {Type: "B", Status: "True", Reason: "Other"}, {Type: "New", Status: "True"}}
	require.Equal(t, []condition.Transition{{Before: "Unknown", Now: after[0]}}, condition.Transitions(before, after))
}
