package nodeprovision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/berth-dev/berth/provisioner/promise"
)

func TestFactoryRefusesWrongArguments(t *testing.T) {
	t.Parallel()
	deps := Deps{Asker: &asker{}, Promises: promise.NewTable()}
	tests := map[string]struct {
		deps Deps
		args runtime.Object
		want string
	}{
		"Cheapest is reserved":   {deps, &runtime.Unknown{Raw: []byte(`{"preemption":"Cheapest"}`)}, "reserved and not available yet"},
		"unknown fields":         {deps, &runtime.Unknown{Raw: []byte(`{"batch":"1s"}`)}, `unknown field "batch"`},
		"a type of someone else": {deps, &corev1.Pod{}, "*v1.Pod"},
		"no asker":               {Deps{Promises: promise.NewTable()}, nil, "required"},
		"no table":               {Deps{Asker: &asker{}}, nil, "required"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Factory(tc.deps)(t.Context(), tc.args, nil)
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := Factory(deps)(t.Context(), nil, nil)
	require.NoError(t, err, "no arguments mean the defaults")
}

func statuses(node string, code fwk.Code, plugin string) *framework.NodeToStatus {
	m := framework.NewDefaultNodeToStatus()
	if node != "" {
		m.Set(node, fwk.NewStatus(code, "no").WithPlugin(plugin))
	}
	return m
}

func TestPostFilterAnswers(t *testing.T) {
	t.Parallel()
	p := makePod("p", "1")
	tests := map[string]struct {
		args   string
		order  []string
		nodes  []*corev1.Node
		pod    *corev1.Pod
		before func(*fixture)
		status *framework.NodeToStatus

		want      fwk.Code
		wantNode  string // of the nomination
		wantNoop  bool   // no nomination given
		wantAsked bool
		wantMsg   string
	}{
		"an unknown pod asks and nobody is evicted meanwhile": {
			want: fwk.UnschedulableAndUnresolvable, wantNoop: true, wantAsked: true, wantMsg: messageAsked,
		},
		"an asking pod waits": {
			before: func(f *fixture) { f.table.Ask(p, epoch) },
			want:   fwk.UnschedulableAndUnresolvable, wantNoop: true, wantMsg: messageAsked,
		},
		"a promise without a name keeps the nomination as it is": {
			before: func(f *fixture) { f.table.Promise(p, "claim", "", time.Time{}, epoch) },
			want:   fwk.Success, wantNoop: true, wantMsg: "node claim claim will take the pod",
		},
		"a promise with a name nominates it, though the node is not there": {
			before: func(f *fixture) { f.table.Promise(p, "claim", "n", time.Time{}, epoch) },
			want:   fwk.Success, wantNode: "n",
		},
		"and again while the node starts": {
			before: func(f *fixture) { f.table.Promise(p, "claim", "n", time.Time{}, epoch) },
			nodes:  []*corev1.Node{makeNode("n", "4", tainted(notReady))},
			status: statuses("n", fwk.Pending, Name),
			want:   fwk.Success, wantNode: "n",
		},
		"a pod that must spread is not nominated": {
			pod: makePod("p", "1", spreadOverZones),
			before: func(f *fixture) {
				f.table.Promise(makePod("p", "1", spreadOverZones), "claim", "n", time.Time{}, epoch)
			},
			want: fwk.Success, wantNoop: true,
		},
		"unevenness passes while others of its kind are on their way": {
			pod: makePod("p", "1", spreadOverZones),
			before: func(f *fixture) {
				f.table.Promise(makePod("p", "1", spreadOverZones), "claim", "n", time.Time{}, epoch)
				f.table.Promise(makePod("q", "1", spreadOverZones), "claim", "m", time.Time{}, epoch)
			},
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.Unschedulable, "PodTopologySpread"),
			want:   fwk.Success, wantNoop: true,
		},
		"nor while they have to go first from where they run": {
			pod: makePod("p", "1", spreadOverZones),
			before: func(f *fixture) {
				f.table.Promise(makePod("p", "1", spreadOverZones), "claim", "n", time.Time{}, epoch)
				f.table.Promise(makePod("q", "1", spreadOverZones, onNode("old")), "claim", "m", time.Time{}, epoch)
			},
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.Unschedulable, "PodTopologySpread"),
			want:   fwk.UnschedulableAndUnresolvable, wantNode: "", wantAsked: true, wantMsg: messageBroken,
		},
		"unevenness passes when they have gone and their successors are due": {
			pod: makePod("p", "1", spreadOverZones),
			before: func(f *fixture) {
				f.table.Promise(makePod("p", "1", spreadOverZones), "claim", "n", time.Time{}, epoch)
				q := makePod("q", "1", spreadOverZones, onNode("old"))
				f.table.Promise(q, "claim", "m", time.Time{}, epoch)
				f.table.Vacate(q.UID)
			},
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.Unschedulable, "PodTopologySpread"),
			want:   fwk.Success, wantNoop: true,
		},
		"but not when none are": {
			pod: makePod("p", "1", spreadOverZones),
			before: func(f *fixture) {
				f.table.Promise(makePod("p", "1", spreadOverZones), "claim", "n", time.Time{}, epoch)
			},
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.Unschedulable, "PodTopologySpread"),
			want:   fwk.UnschedulableAndUnresolvable, wantNode: "", wantAsked: true, wantMsg: messageBroken,
		},
		"affinity may have to wait for the others, too": {
			before: func(f *fixture) {
				f.table.Promise(p, "claim", "n", time.Time{}, epoch)
				f.table.Promise(makePod("q", "1"), "claim", "m", time.Time{}, epoch)
			},
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.Unschedulable, "InterPodAffinity"),
			want:   fwk.Success, wantNode: "n",
		},
		"a usable node that refuses ends the promise": {
			before: func(f *fixture) { f.table.Promise(p, "claim", "n", time.Time{}, epoch) },
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.Unschedulable, "NodeResourcesFit"),
			want:   fwk.UnschedulableAndUnresolvable, wantNode: "", wantAsked: true, wantMsg: messageBroken,
		},
		"volumes wait for the EBS driver of a new node": {
			before: func(f *fixture) { f.table.Promise(p, "claim", "n", time.Time{}, epoch) },
			nodes:  []*corev1.Node{makeNode("n", "4", initialized)},
			status: statuses("n", fwk.UnschedulableAndUnresolvable, "VolumeBinding"),
			want:   fwk.Success, wantNode: "n",
		},
		"but not for one that is there": {
			before: func(f *fixture) { f.table.Promise(p, "claim", "n", time.Time{}, epoch) },
			nodes: []*corev1.Node{makeNode("n", "4", initialized, func(n *corev1.Node) {
				n.Labels["topology.ebs.csi.aws.com/zone"] = "a"
			})},
			status: statuses("n", fwk.UnschedulableAndUnresolvable, "VolumeBinding"),
			want:   fwk.UnschedulableAndUnresolvable, wantNode: "", wantAsked: true, wantMsg: messageBroken,
		},
		"a node that is not ours ends it at once": {
			before: func(f *fixture) { f.table.Promise(p, "", "n", time.Time{}, epoch) },
			nodes:  []*corev1.Node{makeNode("n", "4")},
			status: statuses("n", fwk.Unschedulable, "NodeResourcesFit"),
			want:   fwk.UnschedulableAndUnresolvable, wantNode: "", wantAsked: true, wantMsg: messageBroken,
		},
		"a refused pod may evict, and says why": {
			before: func(f *fixture) { f.table.Refuse(p, "nodepool a: too big", epoch) },
			want:   fwk.Unschedulable, wantNoop: true, wantMsg: "nodepool a: too big",
		},
		"a refused pod that changed asks again": {
			before: func(f *fixture) {
				old := p.DeepCopy()
				old.Generation = p.Generation - 1
				f.table.Refuse(old, "too big", epoch)
			},
			want: fwk.UnschedulableAndUnresolvable, wantNoop: true, wantAsked: true, wantMsg: messageAsked,
		},
		"Never ends the chain after a refusal too": {
			args:   `{"preemption":"Never"}`,
			before: func(f *fixture) { f.table.Refuse(p, "too big", epoch) },
			want:   fwk.UnschedulableAndUnresolvable, wantNoop: true, wantMsg: "too big",
		},
		"PreemptFirst leaves the first word to evictions": {
			args: `{"preemption":"PreemptFirst"}`,
			want: fwk.Unschedulable, wantNoop: true, wantMsg: messageEvicting,
		},
		"PreemptFirst asks when evictions had their turn": {
			args: `{"preemption":"PreemptFirst"}`, order: []string{"DynamicResources", "DefaultPreemption", Name},
			want: fwk.UnschedulableAndUnresolvable, wantNoop: true, wantAsked: true, wantMsg: messageAsked,
		},
		"critical pods evict first": {
			pod:  makePod("p", "1", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }),
			want: fwk.Unschedulable, wantNoop: true, wantMsg: messageEvicting,
		},
		"unless their class is listed": {
			args: `{"priorityClassPolicies":[{"priorityClassNames":["system-cluster-critical"],"preemption":"ProvisionFirst"}]}`,
			pod:  makePod("p", "1", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }),
			want: fwk.UnschedulableAndUnresolvable, wantNoop: true, wantAsked: true, wantMsg: messageAsked,
		},
		"the pod's annotation goes first": {
			pod:  makePod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationPreemption: "PreemptFirst"} }),
			want: fwk.Unschedulable, wantNoop: true, wantMsg: messageEvicting,
		},
		"a wrong annotation is ignored": {
			pod:  makePod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationPreemption: "Cheapest"} }),
			want: fwk.UnschedulableAndUnresolvable, wantNoop: true, wantAsked: true, wantMsg: messageAsked,
		},
		"a nomination by evictions is left to them": {
			pod:    makePod("p", "1", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }),
			nodes:  []*corev1.Node{makeNode("n", "4")},
			status: statuses("n", fwk.Unschedulable, "NodeResourcesFit"),
			want:   fwk.Unschedulable, wantNoop: true, wantMsg: messageWaits,
		},
		"a nomination to a node that is gone is not": {
			pod:  makePod("p", "1", func(p *corev1.Pod) { p.Status.NominatedNodeName = "gone" }),
			want: fwk.UnschedulableAndUnresolvable, wantNoop: true, wantAsked: true, wantMsg: messageAsked,
		},
		"daemon pods get no nodes": {
			pod:  makePod("p", "1", ownedBy("DaemonSet", "d")),
			want: fwk.Unschedulable, wantNoop: true, wantMsg: messageDaemon,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order := tc.order
			if order == nil {
				order = shippedOrder
			}
			f := newFixture(t, tc.args, order, nil, tc.nodes...)
			if tc.before != nil {
				tc.before(f)
			}
			pod := tc.pod
			if pod == nil {
				pod = p
			}
			reader := tc.status
			if reader == nil {
				reader = statuses("", 0, "")
			}
			result, status := f.PostFilter(t.Context(), framework.NewCycleState(), pod, reader)
			require.Equal(t, tc.want, status.Code(), status.Message())
			if tc.wantNoop {
				require.Nil(t, result)
			} else {
				require.Equal(t, fwk.ModeOverride, result.Mode())
				require.Equal(t, tc.wantNode, result.NominatedNodeName)
			}
			require.Equal(t, tc.wantAsked, len(f.asker.names()) == 1, f.asker.names())
			if tc.wantMsg != "" {
				require.Equal(t, tc.wantMsg, status.Message())
			}
		})
	}
}

func TestNobodyWaitsForAProvisionerThatIsPassive(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil)
	why := "nodes are bought by karpenter"
	f.deps.Passive = func() string { return why }
	_, status := f.PostFilter(t.Context(), framework.NewCycleState(), makePod("p", "1"), statuses("", 0, ""))
	require.Equal(t, fwk.Unschedulable, status.Code())
	require.Equal(t, why, status.Message())
	require.Equal(t, []string{"p"}, f.asker.names(), "the pod asks all the same, for when that changes")
	why = ""
	_, status = f.PostFilter(t.Context(), framework.NewCycleState(), makePod("p", "1"), statuses("", 0, ""))
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
}

func TestFilterHoldsRoom(t *testing.T) {
	t.Parallel()
	nominee := func(name, cpu string, n int32) *corev1.Pod { return makePod(name, cpu, withPriority(n)) }
	tests := map[string]struct {
		args    string
		node    *corev1.Node
		there   []*corev1.Pod
		claim   string
		promise []*corev1.Pod
		pod     *corev1.Pod
		want    fwk.Code
	}{
		"an equal pod does not take the room":            {promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("thief", "2", 0), want: fwk.Unschedulable},
		"nor does a lower one":                           {promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("thief", "2", -1), want: fwk.Unschedulable},
		"a higher one may":                               {promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("thief", "2", 1)},
		"unless room is held against all":                {args: `{"hold":"All"}`, promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("thief", "2", 1), want: fwk.Unschedulable},
		"what fits beside is welcome":                    {promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("guest", "1", 0)},
		"to the last millicore":                          {promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("guest", "1001m", 0), want: fwk.Unschedulable},
		"pods that are there already are counted once":   {there: []*corev1.Pod{makePod("a", "3", onNode("n"))}, promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("guest", "1", 0)},
		"the nominee itself is not held":                 {promise: []*corev1.Pod{nominee("a", "3", 0), nominee("b", "3", 0)}, pod: nominee("a", "3", 0)},
		"a nominee of an unfinished node waits":          {claim: "c", node: makeNode("n", "4", tainted(notReady)), promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("a", "3", 0), want: fwk.Pending},
		"so it does while resources are missing":         {claim: "c", node: makeNode("n", "1"), promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("a", "3", 0), want: fwk.Pending},
		"it may go as soon as nothing is in its way":     {claim: "c", node: makeNode("n", "4"), promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("a", "3", 0)},
		"on a finished node other filters have the word": {claim: "c", node: makeNode("n", "4", initialized, tainted("gpu")), promise: []*corev1.Pod{nominee("a", "3", 0)}, pod: nominee("a", "3", 0)},
		"many small nominees add up":                     {promise: []*corev1.Pod{nominee("a", "1", 0), nominee("b", "1", 0), nominee("c", "1", 0)}, pod: nominee("thief", "1500m", 0), want: fwk.Unschedulable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := tc.node
			if node == nil {
				node = makeNode("n", "4")
			}
			f := newFixture(t, tc.args, shippedOrder, tc.there, node)
			for _, p := range tc.promise {
				f.table.Promise(p, tc.claim, "n", time.Time{}, epoch)
			}
			require.Equal(t, tc.want, f.filter(t, tc.pod, "n").Code())
		})
	}
}

func TestPodsThatWereNeverNominatedAreTriedOnTheirOwnNode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		node string
		pod  *corev1.Pod
		want []string // nil for all nodes
	}{
		"its node can be used":               {node: "own", pod: makePod("p", "1"), want: []string{"own"}},
		"its node is not there":              {node: "later", pod: makePod("p", "1")},
		"its node has no name yet":           {pod: makePod("p", "1")},
		"its node is not initialized":        {node: "young", pod: makePod("p", "1")},
		"nominated, it is tried there first": {node: "own", pod: makePod("p", "1", func(p *corev1.Pod) { p.Status.NominatedNodeName = "own" })},
		"spread pods may change places":      {node: "own", pod: makePod("p", "1", spreadOverZones)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, ``, shippedOrder, nil, makeNode("own", "4", initialized), makeNode("young", "4"), makeNode("other", "4", initialized))
			f.table.Promise(tc.pod, "claim", tc.node, time.Time{}, epoch)
			result, status := f.PreFilter(t.Context(), framework.NewCycleState(), tc.pod, nil)
			require.True(t, status.IsSuccess())
			if tc.want == nil {
				require.Nil(t, result)
				return
			}
			require.ElementsMatch(t, tc.want, result.NodeNames.UnsortedList())
		})
	}
}

func TestPodsThatWereNeverNominatedStayOffNodesWhereOthersAreAwaited(t *testing.T) {
	t.Parallel()
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "later" }
	tests := map[string]struct {
		pod     *corev1.Pod
		arrived bool
		queue   bool // the queue knows the nomination, the pod does not show it
		want    string
	}{
		"never nominated":                {pod: makePod("p", "1"), want: reasonElsewhere},
		"nominated":                      {pod: makePod("p", "1", nominated)},
		"nominated a moment ago":         {pod: makePod("p", "1"), queue: true},
		"nobody is awaited there":        {pod: makePod("p", "1"), arrived: true},
		"spread pods may change places":  {pod: makePod("p", "1", spreadOverZones)},
		"higher priority does not count": {pod: makePod("p", "1", withPriority(10)), want: reasonElsewhere},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := makePod("other", "1", onNode("n"))
			var there []*corev1.Pod
			if tc.arrived {
				there = append(there, other)
			}
			f := newFixture(t, ``, shippedOrder, there, makeNode("n", "8", initialized), makeNode("full", "0"))
			f.table.Promise(other, "claim-n", "n", time.Time{}, epoch)
			f.table.Promise(tc.pod, "claim", "later", time.Time{}, epoch)
			if tc.queue {
				f.handle.nominated = map[string][]*corev1.Pod{"later": {tc.pod}}
			}
			state := framework.NewCycleState()
			_, status := f.PreFilter(t.Context(), state, tc.pod, nil)
			require.True(t, status.IsSuccess())
			// The first refusal of a cycle is taken by a node that is full, see standsBack.
			for _, node := range []string{"full", "n"} {
				info, err := f.handle.snapshot.NodeInfos().Get(node)
				require.NoError(t, err)
				status = f.Filter(t.Context(), state, tc.pod, info)
			}
			require.Equal(t, tc.want, status.Message())
		})
	}
}

func TestOneRefusalOfEachCycleIsOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil, makeNode("full", "1"), makeNode("tainted", "4", tainted("x")), makeNode("free", "4"))
	p := makePod("p", "2")
	f.table.Promise(p, "c", "", time.Time{}, epoch)
	state := framework.NewCycleState()
	_, status := f.PreFilter(t.Context(), state, p, nil)
	require.True(t, status.IsSuccess(), "promises without a node's name count too")
	try := func(node string) fwk.Code {
		info, err := f.handle.snapshot.NodeInfos().Get(node)
		require.NoError(t, err)
		return f.Filter(t.Context(), state, p, info).Code()
	}
	require.Equal(t, fwk.Success, try("free"), "a node with room is left to the other filters")
	require.Equal(t, fwk.Pending, try("tainted"))
	require.Equal(t, fwk.Success, try("full"), "so is every refusal but one")
}

func TestSpreadPodsOfOneKindChangePlaces(t *testing.T) {
	t.Parallel()
	web := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return makePod(name, "2", append([]func(*corev1.Pod){spreadOverZones}, change...)...)
	}
	tests := map[string]struct {
		pod, nominee *corev1.Pod
		there        []*corev1.Pod
		want         bool
	}{
		"one stands in for the other":  {pod: web("p"), nominee: web("q"), want: true},
		"not one of another kind":      {pod: web("p", ownedBy("ReplicaSet", "api")), nominee: web("q")},
		"not one without a controller": {pod: web("p", func(p *corev1.Pod) { p.OwnerReferences = nil }), nominee: web("q", func(p *corev1.Pod) { p.OwnerReferences = nil })},
		"not one of another size":      {pod: web("p"), nominee: makePod("q", "1500m", spreadOverZones)},
		"not one of another priority":  {pod: web("p"), nominee: web("q", withPriority(5))},
		"not one that is there":        {pod: web("p"), nominee: web("q"), there: []*corev1.Pod{web("q", onNode("b"))}},
		"not one that need not spread": {pod: makePod("p", "2", ownedBy("ReplicaSet", "web")), nominee: makePod("q", "2", ownedBy("ReplicaSet", "web"))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, ``, shippedOrder, tc.there, makeNode("a", "2"), makeNode("b", "3"))
			f.table.Promise(tc.pod, "claim-a", "a", time.Time{}, epoch)
			f.table.Promise(tc.nominee, "claim-b", "b", time.Time{}, epoch)
			require.Equal(t, tc.want, f.filter(t, tc.pod, "b").IsSuccess())
			require.True(t, f.Reserve(t.Context(), nil, tc.pod, "b").IsSuccess())
			mine, _ := f.table.Lookup(tc.pod.UID)
			other, _ := f.table.Lookup(tc.nominee.UID)
			if tc.want {
				require.Equal(t, []string{"claim-b", "b", "claim-a", "a"}, []string{mine.Claim, mine.Node, other.Claim, other.Node})
			} else {
				require.Equal(t, []string{"a", "b"}, []string{mine.Node, other.Node})
			}
		})
	}
}

func TestFilterForgetsReleasedPromises(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil, makeNode("n", "4"))
	a, other := makePod("a", "4"), makePod("b", "1")
	f.table.Promise(makePod("elsewhere", "1"), "", "m", time.Time{}, epoch)
	f.table.Promise(a, "", "n", time.Time{}, epoch)
	require.Equal(t, fwk.Unschedulable, f.filter(t, other, "n").Code())
	f.table.Release(a.UID)
	require.True(t, f.filter(t, other, "n").IsSuccess())
	f.table.Promise(a, "", "n", time.Time{}, epoch)
	require.Equal(t, fwk.Unschedulable, f.filter(t, other, "n").Code())
}

type expected map[string][]*corev1.Pod

func (e expected) Expected(n *corev1.Node) []*corev1.Pod { return e[n.Name] }

func TestFilterKeepsRoomForDaemonsOfFreshNodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil, makeNode("n", "4"))
	f.deps.Daemons = expected{"n": {makePod("daemon", "1", ownedBy("DaemonSet", "d"))}}
	require.Equal(t, fwk.Unschedulable, f.filter(t, makePod("p", "4"), "n").Code())
	require.True(t, f.filter(t, makePod("p", "3"), "n").IsSuccess())
	require.True(t, f.filter(t, makePod("daemon-x", "4", ownedBy("DaemonSet", "d")), "n").IsSuccess(), "room is not kept from the daemon itself")
}

func TestHiddenNodesTakeNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil, makeNode("n", "4"))
	p, q := makePod("p", "1"), makePod("q", "1")
	require.True(t, f.Reserve(t.Context(), nil, p, "n").IsSuccess())
	require.False(t, f.hidden.Hide("n"), "a pod is on its way to the node")
	f.Unreserve(t.Context(), nil, p, "n")
	require.True(t, f.hidden.Hide("n"))
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, p, "n").Code())
	require.Equal(t, fwk.Unschedulable, f.Reserve(t.Context(), nil, q, "n").Code(), "a pod that passed Filter before is refused here")
	f.hidden.Show("n")
	require.True(t, f.filter(t, p, "n").IsSuccess())
	require.True(t, f.Reserve(t.Context(), nil, q, "n").IsSuccess())
	f.PostBind(t.Context(), nil, q, "n")
	require.False(t, f.hidden.Hide("n"), "whoever hides may not have seen the binding yet")
	f.hidden.Forget(q.UID)
	require.True(t, f.hidden.Hide("n"))
}

func TestPostBindEndsPromisesElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil)
	p, q := makePod("p", "1"), makePod("q", "1")
	f.table.Promise(p, "c", "bought", time.Time{}, epoch)
	f.table.Promise(q, "c", "bought", time.Time{}, epoch)
	f.PostBind(t.Context(), nil, p, "another")
	f.PostBind(t.Context(), nil, q, "bought")
	_, known := f.table.Lookup(p.UID)
	require.False(t, known)
	_, known = f.table.Lookup(q.UID)
	require.True(t, known, "it stands for the pod until the binding is visible")
}

func TestSignPodTellsNomineesApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil)
	fragments, status := f.SignPod(t.Context(), makePod("p", "1", withPriority(7)))
	require.True(t, status.IsSuccess())
	require.Equal(t, []fwk.SignFragment{{Key: "berth.dev/priority", Value: int32(7)}}, fragments)
	f.table.Promise(makePod("p", "1"), "c", "", time.Time{}, epoch)
	_, status = f.SignPod(t.Context(), makePod("p", "1"))
	require.False(t, status.IsSuccess())
}

func TestHintsWakeExactlyTheNominees(t *testing.T) {
	t.Parallel()
	p := makePod("p", "2")
	starting, usableNode := makeNode("n", "4", tainted(notReady)), makeNode("n", "4")
	grown := makeNode("n", "8")
	tests := map[string]struct {
		before   func(*promise.Table)
		old, now any
		want     fwk.QueueingHint
	}{
		"its node is there but not usable": {func(tb *promise.Table) { tb.Promise(p, "c", "n", time.Time{}, epoch) }, nil, starting, fwk.QueueSkip},
		"its node becomes usable":          {func(tb *promise.Table) { tb.Promise(p, "c", "n", time.Time{}, epoch) }, starting, usableNode, fwk.Queue},
		"its node lacks resources still":   {func(tb *promise.Table) { tb.Promise(p, "c", "n", time.Time{}, epoch) }, nil, makeNode("n", "1"), fwk.QueueSkip},
		"a node in use is its own":         {func(tb *promise.Table) { tb.Promise(p, "", "n", time.Time{}, epoch) }, nil, starting, fwk.Queue},
		"somebody else's node":             {func(tb *promise.Table) { tb.Promise(p, "c", "m", time.Time{}, epoch) }, starting, usableNode, fwk.QueueSkip},
		"a pod without a promise":          {func(*promise.Table) {}, starting, usableNode, fwk.QueueSkip},
		"a node with promises grows":       {func(tb *promise.Table) { tb.Promise(makePod("q", "1"), "c", "n", time.Time{}, epoch) }, usableNode, grown, fwk.Queue},
		"a node without promises grows":    {func(*promise.Table) {}, usableNode, grown, fwk.QueueSkip},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, ``, shippedOrder, nil)
			tc.before(f.table)
			hint, err := f.onNode(klog.Background(), p, tc.old, tc.now)
			require.NoError(t, err)
			require.Equal(t, tc.want, hint)
		})
	}
}

func TestHintsWakeThoseKeptOutWhenRoomComesFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil)
	f.table.Promise(makePod("nominee", "1"), "c", "n", time.Time{}, epoch)
	out := makePod("out", "1")
	hint := func(h fwk.QueueingHint, err error) fwk.QueueingHint {
		require.NoError(t, err)
		return h
	}
	require.Equal(t, fwk.Queue, hint(f.onAssignedPodGone(klog.Background(), out, makePod("x", "1", onNode("n")), nil)))
	require.Equal(t, fwk.QueueSkip, hint(f.onAssignedPodGone(klog.Background(), out, makePod("x", "1", onNode("m")), nil)))
	require.Equal(t, fwk.Queue, hint(f.onWaitingPodGone(klog.Background(), out, makePod("nominee", "1"), nil)))
	require.Equal(t, fwk.QueueSkip, hint(f.onWaitingPodGone(klog.Background(), out, makePod("x", "1"), nil)))
	f.table.Promise(out, "c2", "o", time.Time{}, epoch)
	require.Equal(t, fwk.QueueSkip, hint(f.onAssignedPodGone(klog.Background(), out, makePod("x", "1", onNode("n")), nil)), "it has its own node to wait for")
}

func TestNeedsAsk(t *testing.T) {
	t.Parallel()
	unschedulable := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod that fits nowhere":       {makePod("p", "1", unschedulable), true},
		"one that nobody has tried":     {makePod("p", "1"), false},
		"one behind a gate":             {makePod("p", "1", unschedulable, func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }), false},
		"one that waits for evictions":  {makePod("p", "1", unschedulable, func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }), false},
		"a bound one":                   {makePod("p", "1", unschedulable, onNode("n")), false},
		"one that is being deleted":     {makePod("p", "1", unschedulable, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false},
		"a finished one":                {makePod("p", "1", unschedulable, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false},
		"one of another scheduler":      {makePod("p", "1", unschedulable, func(p *corev1.Pod) { p.Spec.SchedulerName = "x" }), false},
		"one of a DaemonSet":            {makePod("p", "1", unschedulable, ownedBy("DaemonSet", "d")), false},
		"one of a foreign one, by name": {makePod("p", "1", unschedulable, func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }), true},
		"one of a ReplicaSet":           {makePod("p", "1", unschedulable, ownedBy("ReplicaSet", "d")), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, NeedsAsk(tc.pod, []string{"berth", "default-scheduler"}))
		})
	}
}

type group struct {
	fwk.PodGroupInfo
	pods []*corev1.Pod
}

func (g group) GetUnscheduledPods() []*corev1.Pod { return g.pods }

func TestGroupsAskForEveryMember(t *testing.T) {
	t.Parallel()
	f := newFixture(t, ``, shippedOrder, nil)
	pods := []*corev1.Pod{makePod("a", "1"), makePod("b", "1"), makePod("c", "1")}
	ask := func() (*fwk.PodGroupPostFilterResult, *fwk.Status) {
		return f.PodGroupPostFilter(t.Context(), nil, group{pods: pods}, nil)
	}
	_, status := ask()
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
	require.Equal(t, []string{"a", "b", "c"}, f.asker.names())
	f.table.Promise(pods[0], "c1", "n1", time.Time{}, epoch)
	f.table.Promise(pods[1], "c1", "", time.Time{}, epoch)
	_, status = ask()
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "one member has no verdict")
	f.table.Refuse(pods[2], "too big", epoch)
	_, status = ask()
	require.Equal(t, fwk.Unschedulable, status.Code())
	require.Equal(t, "pod c: too big", status.Message())
	f.table.Promise(pods[2], "c2", "n2", time.Time{}, epoch)
	result, status := ask()
	require.True(t, status.IsSuccess())
	require.Len(t, result.NominatingInfos, 2, "b's node has no name yet")
	require.Equal(t, "n2", result.NominatingInfos[types.NamespacedName{Namespace: "default", Name: "c"}].NominatedNodeName)
}
