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

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
}

func names(entries []promise.Entry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Pod.Name)
	}
	return out
}

func TestAskOnlyOnce(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	a := pod("a")
	require.True(t, table.Ask(a, start))
	require.False(t, table.Ask(a, start), "a pod that waits does not ask again")
	table.Promise(a, "claim", "", start.Add(time.Minute), start)
	require.False(t, table.Ask(a, start), "a pod with a promise does not ask")
	table.Refuse(a, "no pool", start)
	require.True(t, table.Ask(a, start), "a refused pod may ask again")
	e, ok := table.Lookup(a.UID)
	require.True(t, ok)
	require.Equal(t, promise.Asked, e.State)
	require.Empty(t, e.Reason)
}

func TestNodeNameArrivesAndChanges(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("b"), "claim", "", start.Add(time.Minute), start)
	table.Promise(pod("a"), "claim", "", start.Add(time.Minute), start)
	table.Promise(pod("c"), "other", "n2", start.Add(time.Minute), start)
	require.Empty(t, table.ForNode("n1"))
	require.Equal(t, []string{"a", "b"}, names(table.SetNode("claim", "n1")))
	require.Equal(t, []string{"a", "b"}, names(table.ForNode("n1")))
	table.SetNode("claim", "renamed")
	require.False(t, table.HasNode("n1"))
	require.True(t, table.HasNode("renamed"))
	require.Equal(t, []string{"c"}, names(table.ForNode("n2")))
	require.Empty(t, table.SetNode("unknown", "n3"))
}

func TestPromisesEnd(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("a"), "claim", "n1", start.Add(time.Minute), start)
	table.Promise(pod("b"), "claim", "n1", start.Add(2*time.Minute), start)
	table.Promise(pod("c"), "", "n2", start.Add(time.Hour), start)
	table.Ask(pod("d"), start)

	require.Empty(t, table.Expire(start.Add(time.Minute-1)))
	require.Equal(t, []string{"a"}, names(table.Expire(start.Add(time.Minute))), "a promise never outlives its deadline")
	require.Equal(t, []string{"b"}, names(table.DropClaim("claim")), "a promise never outlives its claim")
	require.False(t, table.HasNode("n1"))
	e, ok := table.Release("uid-c")
	require.True(t, ok)
	require.Equal(t, "n2", e.Node)
	_, ok = table.Release("uid-c")
	require.False(t, ok)
	require.Equal(t, map[promise.State]int{promise.Asked: 1, promise.Promised: 0, promise.Refused: 0}, table.Counts())
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				p := pod(fmt.Sprintf("p-%d-%d", w, i))
				table.Ask(p, start)
				table.Promise(p, "claim", "node", start.Add(time.Minute), start)
				table.Lookup(p.UID)
				table.ForNode("node")
				table.Release(p.UID)
			}
		})
	}
	wg.Wait()
	require.False(t, table.HasNode("node"))
}

func BenchmarkLookup(b *testing.B) {
	table := promise.NewTable()
	for i := range 10_000 {
		table.Promise(pod(fmt.Sprintf("p-%d", i)), fmt.Sprintf("claim-%d", i/20), "", start.Add(time.Minute), start)
	}
	uid := types.UID("uid-p-5000")
	for b.Loop() {
		if _, ok := table.Lookup(uid); !ok {
			b.Fatal("lost")
		}
	}
}
