package nodeprovision

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	schedulerconfig "github.com/berth-dev/berth/manifests/scheduler-config"
	"github.com/berth-dev/berth/plugins/schedulertest"
	"github.com/berth-dev/berth/provisioner/promise"
)

// The tests in this file run the upstream scheduler with the shipped configuration against a fake API
// server. Each pins one trap of the framework.

type world struct {
	*schedulertest.Scheduler
	t      *testing.T
	ctx    context.Context
	asker  *asker
	table  *promise.Table
	hidden *Hidden
}

func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, ctx: ctx, table: promise.NewTable(), hidden: NewHidden()}
	w.asker = &asker{table: w.table}
	var err error
	w.Scheduler, err = schedulertest.New(ctx, schedulertest.NewClient(objects...), schedulerconfig.Default, frameworkruntime.Registry{
		Name: Factory(Deps{Asker: w.asker, Promises: w.table, Hidden: w.hidden}),
	})
	require.NoError(t, err)
	done, err := w.Start(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *world) create(pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	created, err := w.Client.CoreV1().Pods(pod.Namespace).Create(w.ctx, pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return created
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.Client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pod
}

func (w *world) addNode(node *corev1.Node) {
	w.t.Helper()
	_, err := w.Client.CoreV1().Nodes().Create(w.ctx, node, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) updateNode(node *corev1.Node) {
	w.t.Helper()
	_, err := w.Client.CoreV1().Nodes().Update(w.ctx, node, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, 10*time.Second, 2*time.Millisecond, what)
}

func condition(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c
		}
	}
	return corev1.PodCondition{}
}

// tried waits until the scheduler has given the pod up with this text in its condition.
func (w *world) tried(name, text string) {
	w.t.Helper()
	w.eventually("condition of "+name+" with "+text, func() bool {
		c := condition(w.pod(name))
		return c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, text)
	})
}

func (w *world) bound(name, node string) {
	w.t.Helper()
	w.eventually(name+" bound to "+node, func() bool { return w.pod(name).Spec.NodeName == node })
}

func (w *world) activate(pod *corev1.Pod) {
	w.SchedulingQueue.Activate(klog.FromContext(w.ctx), map[string]*corev1.Pod{"default/" + pod.Name: pod})
}

// again wakes the pod and waits until it was tried once more.
func (w *world) again(pod *corev1.Pod) {
	w.t.Helper()
	cycles := w.SchedulingQueue.SchedulingCycle()
	w.activate(pod)
	w.eventually("another attempt for "+pod.Name, func() bool {
		return w.SchedulingQueue.SchedulingCycle() > cycles && len(w.SchedulingQueue.InFlightPods()) == 0
	})
}

func systemNode() *corev1.Node { return makeNode("system", "4", tainted("system")) }

func TestShippedOrderPutsThePluginFirst(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode())
	plugins := w.Scheduler.Scheduler.Profiles["berth"].ListPlugins()
	require.Equal(t, Name, plugins.PreFilter.Enabled[0].Name)
	require.Equal(t, Name, plugins.Filter.Enabled[0].Name)
	require.Equal(t, Name, plugins.Reserve.Enabled[0].Name)
	require.Equal(t, Name, plugins.PodGroupPostFilter.Enabled[0].Name)
	var order []string
	for _, p := range plugins.PostFilter.Enabled {
		order = append(order, p.Name)
	}
	require.Equal(t, shippedOrder, order)
}

func TestBatchingOfEqualPodsStaysPossible(t *testing.T) {
	t.Parallel()
	// Upstream signs no pods while its own default spread constraints are on.
	config := append(slices.Clone(schedulerconfig.Default), "      - name: PodTopologySpread\n        args: {defaultingType: List}\n"...)
	table := promise.NewTable()
	s, err := schedulertest.New(t.Context(), schedulertest.NewClient(), config, frameworkruntime.Registry{
		Name: Factory(Deps{Asker: &asker{table: table}, Promises: table}),
	})
	require.NoError(t, err)
	profile := s.Scheduler.Profiles["berth"]
	require.NotNil(t, profile.SignPod(t.Context(), makePod("p", "1")))
	table.Promise(makePod("p", "1"), "claim", "", time.Time{}, epoch)
	require.Nil(t, profile.SignPod(t.Context(), makePod("p", "1")))
}

// DynamicResources fails in PostFilter when an earlier PreFilter refused the pod, and ends the chain.
func TestPodsRefusedInPreFilterAskAllTheSame(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode())
	w.create(makePod("p", "1", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "missing"},
		}}}
	}))
	w.tried("p", "missing")
	require.Equal(t, []string{"p"}, w.asker.names())
}

// DefaultPreemption clears the nomination when it finds nothing to evict, and evicts for a pod whose
// nominated node it does not see.
func TestNominationOutlivesRetriesAndNobodyIsEvicted(t *testing.T) {
	t.Parallel()
	w := start(t, makeNode("old", "4"), makePod("victim", "3", withPriority(-10), onNode("old")))
	p := w.create(makePod("p", "3"))
	w.tried("p", messageAsked)
	w.table.Promise(p, "claim", "bought", time.Time{}, epoch)
	w.activate(p)
	w.eventually("nomination", func() bool { return w.pod("p").Status.NominatedNodeName == "bought" })
	for range 3 {
		w.again(p)
		require.Equal(t, "bought", w.pod("p").Status.NominatedNodeName)
	}
	require.Nil(t, w.pod("victim").DeletionTimestamp)
	require.Equal(t, []string{"p"}, w.asker.names())
}

func TestEvictionsComeAfterTheRefusal(t *testing.T) {
	t.Parallel()
	w := start(t, makeNode("old", "4"), makePod("victim", "3", withPriority(-10), onNode("old")))
	p := w.create(makePod("p", "3"))
	w.tried("p", messageAsked)
	require.Nil(t, w.pod("victim").DeletionTimestamp)
	w.table.Refuse(p, "nodepool a: too big", epoch)
	w.activate(p)
	w.eventually("eviction", func() bool {
		_, err := w.Client.CoreV1().Pods("default").Get(w.ctx, "victim", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	w.bound("p", "old")
}

func TestPreemptFirstEvictsWithoutAsking(t *testing.T) {
	t.Parallel()
	first := func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationPreemption: "PreemptFirst"} }
	w := start(t, makeNode("old", "4"), makePod("victim", "3", withPriority(-10), onNode("old")))
	w.create(makePod("p", "3", first))
	w.bound("p", "old")
	require.Empty(t, w.asker.names())
	w.create(makePod("q", "3", first))
	w.tried("q", messageEvicting)
	require.Empty(t, w.asker.names())
	require.True(t, NeedsAsk(w.pod("q"), []string{"berth"}), "whoever watches pods asks for it now")
}

// A changed nomination lets every pod of at most this priority try again, the pod itself included; if
// the table were behind, the old name would come back.
func TestRenamedNodeKeepsItsNewName(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode())
	p := w.create(makePod("p", "3"))
	w.tried("p", messageAsked)
	w.table.Promise(p, "claim", "planned", time.Time{}, epoch)
	w.activate(p)
	w.eventually("first name", func() bool { return w.pod("p").Status.NominatedNodeName == "planned" })
	w.table.SetNode("claim", "real")
	w.activate(p)
	w.eventually("second name", func() bool { return w.pod("p").Status.NominatedNodeName == "real" })
	w.again(p)
	require.Equal(t, "real", w.pod("p").Status.NominatedNodeName)
	w.addNode(makeNode("real", "4", tainted(notReady)))
	w.updateNode(makeNode("real", "4"))
	w.bound("p", "real")
}

// Attempts before the node is usable must not make the pod wait out a back-off when it is.
func TestNomineeBindsAtOnceWhenItsNodeIsUsable(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode())
	p := w.create(makePod("p", "3"))
	w.tried("p", messageAsked)
	w.table.Promise(p, "claim", "n", time.Time{}, epoch)
	for range 6 { // a back-off of 10 s by now
		w.again(p)
	}
	w.tried("p", reasonElsewhere)
	attempts := w.SchedulingQueue.SchedulingCycle()
	w.addNode(makeNode("n", "4", tainted(notReady, "karpenter.sh/unregistered")))
	began := time.Now()
	w.updateNode(makeNode("n", "4"))
	w.bound("p", "n")
	require.Less(t, time.Since(began), 2*time.Second)
	require.Equal(t, attempts+1, w.SchedulingQueue.SchedulingCycle(), "no attempt is wasted on a node that is not usable")
}

func TestPodTriedWhileItsNodeStartsSaysSo(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode(), makeNode("n", "4", tainted(notReady)))
	p := makePod("p", "3")
	w.table.Promise(p, "claim", "n", time.Time{}, epoch)
	w.create(p)
	w.tried("p", reasonInitializing)
	w.updateNode(makeNode("n", "4"))
	w.bound("p", "n")
	require.Empty(t, w.asker.names())
}

func TestThiefGetsNoRoomBesideTheNominee(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode())
	p := w.create(makePod("p", "3"))
	w.tried("p", messageAsked)
	w.table.Promise(p, "claim", "n", time.Time{}, epoch)
	w.addNode(makeNode("n", "4", tainted(notReady)))
	thief := w.create(makePod("thief", "2", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Key: notReady}}
	}))
	w.tried("thief", reasonKept)
	require.Contains(t, w.asker.names(), "thief", "it gets a node of its own")
	w.updateNode(makeNode("n", "4"))
	w.bound("p", "n")
	w.again(thief)
	require.Empty(t, w.pod("thief").Spec.NodeName)
}

// Without nodes the scheduler gives up before PostFilter.
func TestZeroNodesAreTheInformersCase(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.create(makePod("p", "1"))
	w.tried("p", "no nodes available")
	require.Empty(t, w.asker.names())
	require.True(t, NeedsAsk(w.pod("p"), []string{"berth"}))
}

// Pods of an empty cluster are first tried on their own node alone. No event wakes a pod for a node that
// was there before it was refused.
func TestPodWhoseOwnNodeWasTakenGoesElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	w := start(t)
	alone := func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web"}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}},
		}}}
	}
	for name, cpu := range map[string]string{"a": "1", "b": "6"} {
		p := w.create(makePod(name, cpu, alone))
		w.tried(name, "no nodes available")
		w.table.Promise(p, "claim-"+name, "n-"+name, time.Time{}, epoch)
	}
	w.create(makePod("taker", "1", alone, onNode("n-a")))
	w.addNode(makeNode("n-a", "4", initialized))
	w.addNode(makeNode("free", "4", initialized))
	w.bound("a", "free")
	require.Empty(t, w.pod("b").Spec.NodeName)
	w.addNode(makeNode("n-b", "8", initialized))
	w.bound("b", "n-b")
}

// The framework adds the other nominees of a node to every try. When the node is smaller than planned,
// none of them would ever fit.
func TestNomineesOfANodeThatIsTooSmallDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	w := start(t, systemNode())
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"a", "b", "c"} {
		pods[name] = w.create(makePod(name, "2"))
		w.tried(name, messageAsked)
	}
	for _, p := range pods {
		w.table.Promise(p, "claim", "n", time.Time{}, epoch)
		w.again(p)
	}
	w.addNode(makeNode("n", "5", initialized))
	onNode := func() int {
		count := 0
		for name := range pods {
			if w.pod(name).Spec.NodeName == "n" {
				count++
			}
		}
		return count
	}
	w.eventually("two of three", func() bool { return onNode() == 2 })
	w.eventually("the third asks again", func() bool { return len(w.asker.names()) == 4 })
	for name, p := range pods {
		if w.pod(name).Spec.NodeName == "" {
			require.Empty(t, w.pod(name).Status.NominatedNodeName)
			e, _ := w.table.Lookup(p.UID)
			require.Equal(t, promise.Asked, e.State)
		}
	}
}

func TestHiddenNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := start(t, makeNode("n", "4"))
	require.True(t, w.hidden.Hide("n"))
	p := w.create(makePod("p", "1"))
	w.tried("p", reasonHidden)
	w.hidden.Show("n")
	w.activate(p)
	w.bound("p", "n")
	require.False(t, w.hidden.Hide("n"))
	w.hidden.Forget(types.UID("uid-p"))
	require.True(t, w.hidden.Hide("n"))
}

func inZone(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

func spreadOverZones(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "web"}
	ownedBy("ReplicaSet", "web")(p)
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
	}}
}

// Nominees of one node count against each other, those of other nodes are not seen: evenly planned pods
// look uneven. And whatever the order in which they are tried, some are ahead of the others.
func TestSpreadPodsBindToTheirNewNodesWithoutAskingAgain(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"all nodes at once": {},
		"one node is late":  {"n-c"},
		"two nodes are":     {"n-b", "n-c"},
	}
	for name, late := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, systemNode())
			var pods []*corev1.Pod
			for i := range 9 {
				pods = append(pods, w.create(makePod(fmt.Sprint("web-", i), "1", spreadOverZones)))
			}
			for i, p := range pods {
				w.tried(p.Name, messageAsked)
				zone := string(rune('a' + i/3)) // the worst order: one zone after the other
				w.table.Promise(p, "claim-"+zone, "n-"+zone, time.Time{}, epoch)
				w.activate(p)
				w.tried(p.Name, "node claim claim-"+zone)
				require.Empty(t, w.pod(p.Name).Status.NominatedNodeName, "a nomination would stand in its way")
			}
			for _, zone := range []string{"a", "b", "c"} {
				change := []func(*corev1.Node){inZone(zone), initialized}
				if slices.Contains(late, "n-"+zone) {
					change = []func(*corev1.Node){inZone(zone), tainted(notReady)}
				}
				w.addNode(makeNode("n-"+zone, "3", change...))
			}
			for _, p := range pods {
				w.activate(p)
			}
			if len(late) > 0 {
				w.eventually("those that may go first have gone", func() bool { return w.SchedulingQueue.SchedulingCycle() > 21 })
			}
			for _, node := range late {
				w.updateNode(makeNode(node, "3", inZone(node[2:]), initialized))
			}
			perNode := map[string]int{}
			for _, p := range pods {
				w.eventually(p.Name+" bound", func() bool { return w.pod(p.Name).Spec.NodeName != "" })
				perNode[w.pod(p.Name).Spec.NodeName]++
			}
			require.Equal(t, map[string]int{"n-a": 3, "n-b": 3, "n-c": 3}, perNode)
			require.Len(t, w.asker.names(), len(pods), "nobody asked twice")
			for _, e := range w.table.Promises() {
				require.Equal(t, e.Node, w.pod(e.Pod.Name).Spec.NodeName, "who changed places kept the promises straight")
			}
		})
	}
}
