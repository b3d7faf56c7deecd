package promise_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner/promise"
)

var epoch = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

func names(entries []promise.Entry) []string {
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Pod.Name)
	}
	return list
}

func TestAskIsNewsOnlyOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before func(*promise.Table)
		want   bool
	}{
		"an unknown pod is news":     {before: func(*promise.Table) {}, want: true},
		"an asking pod is not":       {before: func(tb *promise.Table) { tb.Ask(pod("a"), epoch) }},
		"a promised pod is not":      {before: func(tb *promise.Table) { tb.Promise(pod("a"), "c", "", time.Time{}, epoch) }},
		"a refused pod asks again":   {before: func(tb *promise.Table) { tb.Refuse(pod("a"), "too big", epoch) }, want: true},
		"a released pod is news too": {before: func(tb *promise.Table) { tb.Ask(pod("a"), epoch); tb.Release("uid-a") }, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := promise.NewTable()
			tc.before(table)
			require.Equal(t, tc.want, table.Ask(pod("a"), epoch.Add(time.Second)))
			e, ok := table.Lookup("uid-a")
			require.True(t, ok)
			require.Equal(t, tc.want, e.Since.After(epoch), "only news restarts the clock")
		})
	}
}

func TestNodeNameMayComeLateAndChange(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	for _, name := range []string{"b", "a", "c"} {
		table.Promise(pod(name), "claim", "", epoch.Add(time.Minute), epoch)
	}
	require.Zero(t, table.Kept())
	require.Equal(t, []string{"a", "b", "c"}, names(table.SetNode("claim", "planned")))
	require.Equal(t, 3, table.Kept())
	require.Equal(t, []string{"a", "b", "c"}, names(table.ForNode("planned")))

	renamed := table.SetNode("claim", "real")
	require.Equal(t, "real", renamed[0].Node)
	require.Empty(t, table.ForNode("planned"))
	require.Equal(t, []string{"a", "b", "c"}, names(table.ForNode("real")))
	e, _ := table.Lookup("uid-a")
	require.Equal(t, "real", e.Node)
	require.Equal(t, epoch.Add(time.Minute), e.Deadline, "a rename keeps the deadline")
	require.Empty(t, table.SetNode("other", "x"))
}

func TestPlacesForgetPodsThatLeave(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("a"), "c1", "n1", time.Time{}, epoch)
	table.Promise(pod("b"), "c1", "n1", time.Time{}, epoch)
	before := table.ForNode("n1")
	e, ok := table.Release("uid-a")
	require.True(t, ok)
	require.Equal(t, "n1", e.Node)
	require.Equal(t, []string{"b"}, names(table.ForNode("n1")))
	require.Equal(t, []string{"a", "b"}, names(before), "a list handed out does not change")

	table.Promise(pod("b"), "c2", "n2", time.Time{}, epoch)
	require.Empty(t, table.ForNode("n1"))
	require.Empty(t, table.ForClaim("c1"))
	require.Equal(t, []string{"b"}, names(table.ForClaim("c2")))

	table.Refuse(pod("b"), "too big", epoch)
	require.Empty(t, table.ForNode("n2"))
	require.Zero(t, table.Kept())
	require.Equal(t, []string{"b"}, names(table.Refused()))
	_, ok = table.Release("never-seen")
	require.False(t, ok)
}

func TestDropClaimReturnsWhoMustAskAgain(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("b"), "c1", "n1", time.Time{}, epoch)
	table.Promise(pod("a"), "c1", "n1", time.Time{}, epoch)
	table.Promise(pod("z"), "c2", "n2", time.Time{}, epoch)
	require.Equal(t, []string{"a", "b"}, names(table.DropClaim("c1")))
	require.Empty(t, table.DropClaim("c1"))
	_, ok := table.Lookup("uid-a")
	require.False(t, ok)
	require.Equal(t, []string{"z"}, names(table.Promises()))
}

func TestExpireTakesOnlyPromisesPastTheirDeadline(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("late"), "c", "", epoch.Add(time.Second), epoch)
	table.Promise(pod("now"), "c", "", epoch.Add(2*time.Second), epoch)
	table.Promise(pod("forever"), "c", "", time.Time{}, epoch)
	table.Ask(pod("asked"), epoch)
	table.Refuse(pod("refused"), "no", epoch)
	require.Equal(t, []string{"late"}, names(table.Expire(epoch.Add(2*time.Second))))
	require.Equal(t, []string{"forever", "now"}, names(table.Promises()))
	require.Equal(t, []string{"asked"}, names(table.Asking()))
}

func owned(name, owner string) *corev1.Pod {
	yes := true
	p := pod(name)
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: &yes}}
	return p
}

func TestSwapExchangesPlaces(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("a"), "c1", "n1", epoch.Add(time.Minute), epoch)
	table.Promise(pod("b"), "c2", "n2", epoch.Add(time.Hour), epoch)
	table.Ask(pod("c"), epoch)
	require.True(t, table.Swap("uid-a", "uid-b"))
	require.Equal(t, []string{"b"}, names(table.ForNode("n1")))
	require.Equal(t, []string{"a"}, names(table.ForClaim("c2")))
	e, _ := table.Lookup("uid-a")
	require.Equal(t, epoch.Add(time.Hour), e.Deadline)
	require.Equal(t, "a", e.Pod.Name)
	require.False(t, table.Swap("uid-a", "uid-c"), "nobody swaps with a pod that has no place")
	require.False(t, table.Swap("uid-a", "uid-a"))
	require.Equal(t, []string{"a"}, names(table.ForNode("n2")))
	require.Equal(t, 2, table.Kept())
}

func TestPromisedPodsAreCounted(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(owned("a", "rs"), "c", "", time.Time{}, epoch)
	table.Promise(owned("b", "rs"), "c", "", time.Time{}, epoch)
	table.Promise(pod("z"), "c", "", time.Time{}, epoch)
	table.Ask(owned("x", "rs"), epoch)
	require.Equal(t, 2, table.PromisedOf("rs"))
	require.Equal(t, 3, table.PromisedIn("default"))
	table.Refuse(owned("a", "rs"), "no", epoch)
	table.Release("uid-z")
	table.Promise(owned("b", "rs"), "d", "n", time.Time{}, epoch)
	require.Equal(t, 1, table.PromisedOf("rs"))
	require.Equal(t, 1, table.PromisedIn("default"))
	table.DropClaim("d")
	require.Zero(t, table.PromisedOf("rs"))
	require.Zero(t, table.PromisedIn("default"))
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 300 {
				p := pod(fmt.Sprintf("%d-%d", w, i%20))
				claim := fmt.Sprint("c", i%5)
				table.Ask(p, epoch)
				table.Promise(p, claim, "", epoch, epoch)
				table.SetNode(claim, fmt.Sprint("n", i%7))
				for _, e := range table.ForNode(fmt.Sprint("n", i%7)) {
					_ = e.Pod.Name
				}
				table.ForClaim(claim)
				switch i % 4 {
				case 0:
					table.DropClaim(claim)
				case 1:
					table.Expire(epoch.Add(time.Second))
				case 2:
					table.Release(p.UID)
				}
			}
		})
	}
	wg.Wait()
	for _, e := range table.Promises() {
		table.Release(e.Pod.UID)
	}
	require.Zero(t, table.Kept())
	for i := range 7 {
		require.Empty(t, table.ForNode(fmt.Sprint("n", i)))
	}
}

func BenchmarkLookup(b *testing.B) {
	table := promise.NewTable()
	for i := range 20000 {
		table.Promise(pod(fmt.Sprint(i)), fmt.Sprint("c", i/20), fmt.Sprint("n", i/20), time.Time{}, epoch)
	}
	b.ReportAllocs()
	for b.Loop() {
		table.Lookup("uid-777")
	}
}

func BenchmarkForNode(b *testing.B) {
	table := promise.NewTable()
	for i := range 20000 {
		table.Promise(pod(fmt.Sprint(i)), fmt.Sprint("c", i/20), fmt.Sprint("n", i/20), time.Time{}, epoch)
	}
	b.ReportAllocs()
	for b.Loop() {
		table.ForNode("n77")
	}
}
