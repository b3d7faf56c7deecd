package nodeprovision

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/berth-dev/berth/plugins/config"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
)

// Messages end up in the pod's condition; they do not change while the state does not, because every
// change is a write to the API server.
const (
	messageAsked    = "waiting for the plan of a new node"
	messageDaemon   = "no node is bought for pods of one existing node"
	messageEvicting = "evictions come first for this pod"
	messageBroken   = "the promised node could not take the pod, asking for another"
	messageWaits    = "waiting for the evictions on the nominated node"
)

// PostFilter answers for a pod that fits nowhere, in constant time:
//
//   - unknown: asks, and ends the chain so that nobody is evicted before the verdict;
//   - promised: success, with the node's name once it is known, every time;
//   - refused: unschedulable with the reasons, so that evictions may help.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	e, known := p.deps.Promises.Lookup(pod.UID)
	switch {
	case !nodeCouldBeFor(pod):
		return nil, fwk.NewStatus(fwk.Unschedulable, messageDaemon)
	case !known, e.State == promise.Refused && changed(e.Pod, pod):
		return p.ask(pod, statuses)
	case e.State == promise.Promised:
		if p.broken(e, statuses) {
			p.deps.Promises.Release(pod.UID)
			p.deps.Asker.Ask(pod)
			return nominate(""), fwk.NewStatus(fwk.UnschedulableAndUnresolvable, messageBroken)
		}
		p.tryElsewhere(ctx, state, pod)
		return promised(e), fwk.NewStatus(fwk.Success, messagePromised(e))
	case e.State == promise.Refused:
		if p.policies.of(pod) == config.Never {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, e.Reason)
		}
		return nil, fwk.NewStatus(fwk.Unschedulable, e.Reason)
	default:
		return nil, p.waiting()
	}
}

// waiting is the answer for a pod without a verdict. While nobody buys, there is nothing to wait for.
func (p *Plugin) waiting() *fwk.Status {
	if why := p.deps.Passive(); why != "" {
		return fwk.NewStatus(fwk.Unschedulable, why)
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, messageAsked)
}

// ask wants a node for a pod that the table does not know, unless evictions come first. Those run after
// this plugin in the same cycle; if they do not help, the pod is left without a nomination, and the one
// who watches pods asks for it (NeedsAsk).
func (p *Plugin) ask(pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.preemptionFollows() {
		if p.policies.of(pod) == config.PreemptFirst {
			return nil, fwk.NewStatus(fwk.Unschedulable, messageEvicting)
		}
		if p.waitsForEvictions(pod, statuses) {
			return nil, fwk.NewStatus(fwk.Unschedulable, messageWaits)
		}
	}
	p.deps.Asker.Ask(pod)
	return nil, p.waiting()
}

// waitsForEvictions recognizes a nomination that is not of our making and still stands: the plugin that
// made it decides whether the pod goes on waiting.
func (p *Plugin) waitsForEvictions(pod *corev1.Pod, statuses fwk.NodeToStatusReader) bool {
	node := pod.Status.NominatedNodeName
	return node != "" && p.inSnapshot(node) != nil && statuses.Get(node).Code() == fwk.Unschedulable
}

// broken reports whether the promised node is there, is meant to be usable, and was refused all the
// same. The pod would wait for ever, and so would those who keep room for it.
func (p *Plugin) broken(e promise.Entry, statuses fwk.NodeToStatusReader) bool {
	if e.Node == "" {
		return false
	}
	node := p.inSnapshot(e.Node)
	if node == nil || initializing(e, node) {
		return false
	}
	status := statuses.Get(e.Node)
	return status.IsRejected() && !p.passes(e.Pod, status.Plugin()) && !awaitsDriver(node, status.Plugin())
}

// tryElsewhere has the pod tried again at once if its own node refused it and no other was looked at.
// No event would wake it for a node that is there already.
func (p *Plugin) tryElsewhere(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) {
	data, err := state.Read(stateKey)
	if err != nil {
		return // the plugin's PreFilter did not run
	}
	if c, ok := data.(*cycle); ok && c.own {
		p.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
	}
}

// passes reports whether the refusal depends on pods that are promised places too and are not there
// yet: with them, the promised place fits.
func (p *Plugin) passes(pod *corev1.Pod, plugin string) bool {
	switch plugin {
	case names.PodTopologySpread:
		owner := metav1.GetControllerOfNoCopy(pod)
		return owner != nil && p.deps.Promises.PromisedOf(owner.UID) > 1
	case names.InterPodAffinity:
		return p.deps.Promises.PromisedIn(pod.Namespace) > 1
	}
	return false
}

// awaitsDriver reports whether a node of ours was refused for the pod's volumes before the EBS driver has
// labelled it, which comes some time after the node can take other pods.
func awaitsDriver(node *corev1.Node, plugin string) bool {
	_, labelled := node.Labels[ec2v1.LabelEBSCSIZone]
	return plugin == names.VolumeBinding && node.Labels[karpv1.LabelNodePool] != "" && !labelled
}

// inSnapshot returns the node as this cycle sees it, nil when it is not there.
func (p *Plugin) inSnapshot(name string) *corev1.Node {
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(name)
	if err != nil {
		return nil
	}
	return info.Node()
}

// changed reports whether the pod is another one than the refusal was about, as far as placing goes.
func changed(before, now *corev1.Pod) bool {
	return before.Generation != now.Generation || !maps.Equal(before.Labels, now.Labels)
}

// promised shows the node's name on the pod, unless the pod has to be spread. The framework tries a pod
// with the others that are nominated to the same node, and with nobody who is nominated elsewhere: pods
// that are spread evenly over several new nodes would all be refused for being uneven.
func promised(e promise.Entry) *fwk.PostFilterResult {
	if e.Node == "" || mustSpread(e.Pod) {
		return nil
	}
	return nominate(e.Node)
}

// mustSpread reports whether the pod has a topology spread constraint that is not a mere wish.
func mustSpread(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	})
}

func messagePromised(e promise.Entry) string {
	if e.Claim != "" {
		return "node claim " + e.Claim + " will take the pod"
	}
	return "room is kept on node " + e.Node
}

func nominate(node string) *fwk.PostFilterResult {
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}}
}

// PodGroupPostFilter answers for the members of a group that could not be placed together. It asks for
// every member that is unknown. The group waits until no member is without a verdict; one refusal
// refuses the group, so that evictions may help.
func (p *Plugin) PodGroupPostFilter(_ context.Context, _ fwk.PodGroupCycleState, group fwk.PodGroupInfo, _ fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	result := &fwk.PodGroupPostFilterResult{NominatingInfos: map[types.NamespacedName]*fwk.NominatingInfo{}}
	waiting, refused := false, ""
	for _, pod := range group.GetUnscheduledPods() {
		e, known := p.deps.Promises.Lookup(pod.UID)
		switch {
		case !known, e.State == promise.Refused && changed(e.Pod, pod):
			p.deps.Asker.Ask(pod)
			waiting = true
		case e.State == promise.Asked:
			waiting = true
		case e.State == promise.Refused && refused == "":
			refused = "pod " + pod.Name + ": " + e.Reason
		case e.State == promise.Promised && promised(e) != nil:
			result.NominatingInfos[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = nominate(e.Node).NominatingInfo
		}
	}
	switch {
	case waiting:
		return nil, p.waiting()
	case refused != "":
		return nil, fwk.NewStatus(fwk.Unschedulable, refused)
	}
	return result, fwk.NewStatus(fwk.Success, "nodes for every pod of the group are on their way")
}
