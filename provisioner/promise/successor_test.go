package promise_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner/promise"
)

// controlled makes a pod of a controller; one with a node is bound there.
func controlled(kind, owner, name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(name)
	p.Spec.NodeName = node
	p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true)}}
	for _, f := range change {
		f(p)
	}
	return p
}

func revision(hash string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash} }
}

func TestInherit(t *testing.T) {
	t.Parallel()
	promised := func(pods ...*corev1.Pod) func(*promise.Table) {
		return func(tb *promise.Table) {
			for _, p := range pods {
				tb.Promise(p, "claim-"+p.Name, "", time.Time{}, epoch)
			}
		}
	}
	tests := map[string]struct {
		before func(*promise.Table)
		gone   string
		pod    *corev1.Pod
		want   string // claim
	}{
		"the next pod of the controller":        {before: promised(controlled("ReplicaSet", "rs", "old", "n")), pod: controlled("ReplicaSet", "rs", "new", ""), want: "claim-old"},
		"not a pod of another controller":       {before: promised(controlled("ReplicaSet", "rs", "old", "n")), pod: controlled("ReplicaSet", "other", "new", "")},
		"not a pod of another template":         {before: promised(controlled("StatefulJob", "j", "old", "n", revision("1"))), pod: controlled("StatefulJob", "j", "new", "", revision("2"))},
		"in a StatefulSet the name decides":     {before: promised(controlled("StatefulSet", "s", "s-0", "n"), controlled("StatefulSet", "s", "s-1", "n")), pod: func() *corev1.Pod { p := controlled("StatefulSet", "s", "s-1", ""); p.UID = "new"; return p }(), want: "claim-s-1"},
		"a place for an unbound pod is its own": {before: promised(controlled("ReplicaSet", "rs", "old", "")), pod: controlled("ReplicaSet", "rs", "new", "")},
		"a bare pod has no successor":           {before: promised(func() *corev1.Pod { p := pod("old"); p.Spec.NodeName = "n"; return p }()), pod: pod("new")},
		"first the place of a pod that is gone": {
			before: promised(controlled("ReplicaSet", "rs", "a", "n"), controlled("ReplicaSet", "rs", "b", "n")), gone: "uid-b", pod: controlled("ReplicaSet", "rs", "new", ""), want: "claim-b",
		},
		"a pod that must spread takes no place of a running one": {
			before: promised(controlled("ReplicaSet", "rs", "a", "n", overZones)), pod: controlled("ReplicaSet", "rs", "new", "", overZones),
		},
		"but of one that is gone": {
			before: promised(controlled("ReplicaSet", "rs", "a", "n", overZones)), gone: "uid-a", pod: controlled("ReplicaSet", "rs", "new", "", overZones), want: "claim-a",
		},
		"a pod that keeps away from its like takes no place of a running one": {
			before: promised(controlled("ReplicaSet", "rs", "a", "n", apart)), pod: controlled("ReplicaSet", "rs", "new", "", apart),
		},
		"first a node that is there": {
			before: func(tb *promise.Table) {
				promised(controlled("ReplicaSet", "rs", "a", "n"), controlled("ReplicaSet", "rs", "b", "n"))(tb)
				tb.SetNode("claim-b", "node-b")
			},
			pod: controlled("ReplicaSet", "rs", "new", ""), want: "claim-b",
		},
		"a pod with a place keeps it": {
			before: promised(controlled("ReplicaSet", "rs", "old", "n"), controlled("ReplicaSet", "rs", "new", "")), pod: controlled("ReplicaSet", "rs", "new", ""),
		},
		"a refused pod may": {
			before: func(tb *promise.Table) {
				promised(controlled("ReplicaSet", "rs", "old", "n"))(tb)
				tb.Refuse(controlled("ReplicaSet", "rs", "new", ""), "too big", epoch)
			},
			pod: controlled("ReplicaSet", "rs", "new", ""), want: "claim-old",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := promise.NewTable()
			tc.before(table)
			count := len(table.Promises())
			e, ok := table.Inherit(tc.pod, func(p *corev1.Pod) bool { return string(p.UID) == tc.gone }, epoch.Add(time.Hour), epoch)
			require.Equal(t, tc.want != "", ok)
			require.Equal(t, tc.want, e.Claim)
			require.Len(t, table.Promises(), count, "no place is lost or made")
			if ok {
				held, _ := table.Lookup(tc.pod.UID)
				require.Equal(t, e, held)
				require.Equal(t, epoch.Add(time.Hour), held.Deadline)
				_, again := table.Inherit(controlled("ReplicaSet", "rs", "third", ""), func(*corev1.Pod) bool { return false }, epoch, epoch)
				require.Equal(t, count > 1 && tc.pod.OwnerReferences[0].Kind == "ReplicaSet", again, "each place is inherited once")
			}
		})
	}
}

func overZones(p *corev1.Pod) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule}}
}

func apart(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}},
	}}
}

func TestOnlyPodsThatAreDueCount(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	counts := func() [2]int { return [2]int{table.PromisedOf("rs"), table.PromisedIn("ns")} }
	waiting, running := controlled("ReplicaSet", "rs", "a", ""), controlled("ReplicaSet", "rs", "b", "n")
	waiting.Namespace, running.Namespace = "ns", "ns"
	table.Promise(waiting, "claim", "", time.Time{}, epoch)
	table.Promise(running, "claim", "", time.Time{}, epoch)
	require.Equal(t, [2]int{1, 1}, counts(), "the successor of a running pod is not due")
	table.Vacate(waiting.UID)
	require.Equal(t, [2]int{1, 1}, counts(), "nobody succeeds a pod that waits")
	table.Vacate(running.UID)
	table.Vacate(running.UID)
	require.Equal(t, [2]int{2, 2}, counts())
	next := controlled("ReplicaSet", "rs", "c", "")
	next.Namespace = "ns"
	_, ok := table.Inherit(next, func(*corev1.Pod) bool { return true }, epoch, epoch)
	require.True(t, ok)
	require.Equal(t, [2]int{2, 2}, counts())
	table.Release(next.UID)
	table.Release(waiting.UID)
	require.Equal(t, [2]int{}, counts())
}

func TestReleasedPlacesAreNotInherited(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(controlled("ReplicaSet", "rs", "old", "n"), "claim", "", time.Time{}, epoch)
	table.Release("uid-old")
	_, ok := table.Inherit(controlled("ReplicaSet", "rs", "new", ""), func(*corev1.Pod) bool { return true }, epoch, epoch)
	require.False(t, ok)
}

func TestShorten(t *testing.T) {
	t.Parallel()
	table := promise.NewTable()
	table.Promise(pod("a"), "claim", "", epoch.Add(time.Minute), epoch)
	table.Promise(pod("b"), "claim", "", time.Time{}, epoch)
	table.Shorten("uid-a", epoch.Add(time.Hour))
	table.Shorten("uid-b", epoch.Add(time.Second))
	table.Shorten("uid-none", epoch)
	require.Equal(t, []string{"b"}, names(table.Expire(epoch.Add(2*time.Second))))
	require.Equal(t, []string{"a"}, names(table.Expire(epoch.Add(2*time.Minute))), "a promise never gets longer")
}
