package nodeprovision

import (
	"context"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/resources"
)

// Reasons as they appear after the number of nodes in the pod's events.
const (
	reasonHidden       = "node(s) were chosen for removal"
	reasonInitializing = "node(s) bought for the pod were not ready for it yet"
	reasonKept         = "node(s) were kept for the pods they were bought for"
	reasonElsewhere    = "node(s) had no room, and the pod's own node is on its way"
)

const stateKey fwk.StateKey = Name

// cycle is what Filter needs to know about the pod; written once by PreFilter, then only read.
type cycle struct {
	// place is the pod's promise; its State is 0 when there is none.
	place    promise.Entry
	requests resources.Vector
	priority int32
	// owner is the UID of the pod's controller, empty when it has none.
	owner types.UID
	// swaps is the same if the pod has to be spread, see holdings.standIn.
	swaps types.UID
	// nominated is whether the framework knows the pod's own node, and so keeps it for the pod.
	nominated bool
	// own is whether this cycle looks at the pod's own node alone.
	own bool
	// recorded is set once one refusal of this cycle has been made ours, see standsBack.
	recorded atomic.Bool
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData { return c }

func newCycle(pod *corev1.Pod) *cycle {
	c := &cycle{requests: resources.PodRequests(pod), priority: priority(pod), swaps: spreadOwner(pod)}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		c.owner = owner.UID
	}
	return c
}

// PreFilter gathers what Filter needs, or skips Filter when the pod has no promise, no room is kept and
// no node is hidden. A promised pod that was never nominated is tried on its own node alone.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	place, ok := p.deps.Promises.Lookup(pod.UID)
	promised := ok && place.State == promise.Promised
	if !promised && p.deps.Promises.Kept() == 0 && p.deps.Hidden.none() && p.deps.Daemons == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c := newCycle(pod)
	if promised {
		c.place = place
		c.nominated = mustSpread(pod) || p.nominated(pod, place)
		c.own = !c.nominated && p.isUsable(place)
	}
	state.Write(stateKey, c)
	if c.own {
		return &fwk.PreFilterResult{NodeNames: sets.New(place.Node)}, nil
	}
	return nil, nil
}

// nominated reports whether the framework knows that the pod is to go to its node. In a cluster without
// nodes no pod gets as far as PostFilter, which nominates; when several nodes come at once, such pods
// would take each other's. So they are first tried on their own node alone, and before it is there,
// nowhere where others are awaited. After that PostFilter nominates them, and they are tried everywhere.
// The queue knows of a nomination before the pod shows it.
func (p *Plugin) nominated(pod *corev1.Pod, place promise.Entry) bool {
	return pod.Status.NominatedNodeName != "" || place.Node != "" &&
		slices.ContainsFunc(p.handle.NominatedPodsForNode(place.Node), func(other fwk.PodInfo) bool { return other.GetPod().UID == pod.UID })
}

// isUsable reports whether the promised node is there and nothing that goes away by itself is expected
// to keep the pod from it.
func (p *Plugin) isUsable(place promise.Entry) bool {
	if place.Node == "" {
		return false
	}
	node := p.inSnapshot(place.Node)
	return node != nil && !initializing(place, node)
}

// PreFilterExtensions implements fwk.PreFilterPlugin. Filter counts what stands in the NodeInfo that it
// is given, so there is nothing to adjust.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses hidden nodes, lets a pod wait for its own node while that becomes usable, and keeps
// the room of other pods that a place on the node is promised to.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	node := info.Node()
	if p.deps.Hidden.has(node.Name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonHidden)
	}
	data, err := state.Read(stateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	c, ok := data.(*cycle)
	if !ok {
		return nil
	}
	if c.place.State == promise.Promised {
		switch {
		case c.place.Node != node.Name:
			if p.standsBack(c, node, info) || !c.nominated && p.holdings(node.Name).awaits(info) {
				return fwk.NewStatus(fwk.Pending, reasonElsewhere)
			}
		case initializing(c.place, node) && !usable(c.place.Pod, c.requests, node):
			return fwk.NewStatus(fwk.Pending, reasonInitializing)
		}
	}
	if !p.fitsBeside(c, node, info) {
		return fwk.NewStatus(fwk.Unschedulable, reasonKept)
	}
	return nil
}

// standsBack reports whether this plugin is to be the one that refuses a node which plainly cannot take
// a promised pod. It is for one node of each cycle: with that, the queue wakes the pod for the events of
// its own node at once, even before that node exists, and without back-off. All other refusals are left
// to those who make them, so that the pod is woken for room elsewhere too.
func (p *Plugin) standsBack(c *cycle, node *corev1.Node, info fwk.NodeInfo) bool {
	if c.recorded.Load() || usable(c.place.Pod, c.requests, node) && fitsFree(c.requests, resources.Vector{}, info) {
		return false
	}
	return c.recorded.CompareAndSwap(false, true)
}

// initializing reports whether the promised node is one of ours that is not declared usable yet.
func initializing(place promise.Entry, node *corev1.Node) bool {
	return place.Claim != "" && node.Labels[karpv1.LabelInitialized] != karpv1.ValueTrue
}

// usable reports whether nothing that goes away by itself stands between the pod and its new node:
// taints that the pod does not tolerate, and resources that are not published yet.
func usable(pod *corev1.Pod, requests resources.Vector, node *corev1.Node) bool {
	_, blocked := schedulingcorev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		}, false)
	return !blocked && requests.Fits(resources.FromList(node.Status.Allocatable))
}
