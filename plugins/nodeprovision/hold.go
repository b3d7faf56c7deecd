package nodeprovision

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/resources"
)

// holding is the part of a promise that keeps room.
type holding struct {
	priority int32
	requests resources.Vector
	// owner is the pod's controller if the pod has to be spread: such pods stand in for each other.
	owner types.UID
}

// holdings is what is kept on one node. It stands for the very slice that the table handed out, which
// never changes, so comparing the slice's address tells whether it is current.
type holdings struct {
	of    *promise.Entry
	byPod map[types.UID]holding
	total resources.Vector
	// lowest is the least priority among them.
	lowest int32
}

// holdings returns what is kept on the node, nil for nothing, computing only after the promises changed.
func (p *Plugin) holdings(node string) *holdings {
	entries := p.deps.Promises.ForNode(node)
	if len(entries) == 0 {
		p.held.Delete(node)
		return nil
	}
	if cached, ok := p.held.Load(node); ok && cached.(*holdings).of == &entries[0] {
		return cached.(*holdings)
	}
	h := &holdings{of: &entries[0], byPod: make(map[types.UID]holding, len(entries)), lowest: priority(entries[0].Pod)}
	for _, e := range entries {
		one := holding{priority: priority(e.Pod), requests: resources.PodRequests(e.Pod), owner: spreadOwner(e.Pod)}
		h.byPod[e.Pod.UID] = one
		h.total = h.total.Add(one.requests)
		h.lowest = min(h.lowest, one.priority)
	}
	p.held.Store(node, h)
	return h
}

// against returns the room that is kept from the pod, without the promised pods that are there already
// (bound, assumed, or added by the framework as nominated pods for this try) and without one that the
// pod may change places with.
func (h *holdings) against(c *cycle, all bool, info fwk.NodeInfo) resources.Vector {
	counts := func(one holding) bool { return all || c.priority <= one.priority }
	kept := h.total
	if !all && c.priority > h.lowest {
		kept = resources.Vector{}
		for _, one := range h.byPod {
			if counts(one) {
				kept = kept.Add(one.requests)
			}
		}
	}
	if h.standIn(c, info) != "" {
		kept = kept.Sub(c.requests)
	}
	for _, pod := range info.GetPods() {
		if one, ok := h.byPod[pod.GetPod().UID]; ok && counts(one) {
			kept = kept.Sub(one.requests)
		}
	}
	return kept
}

// standIn returns a promised pod of the node that the pod may change places with, or "": one of the same
// controller with the same requests and priority that is not there yet. Both must be spread, and the
// order in which they arrive decides which node each of them is allowed on.
func (h *holdings) standIn(c *cycle, info fwk.NodeInfo) types.UID {
	if c.swaps == "" || c.place.State != promise.Promised {
		return ""
	}
	var found types.UID
	for uid, one := range h.byPod {
		if one.owner == c.swaps && one.priority == c.priority && same(one.requests, c.requests) &&
			(found == "" || uid < found) && !isThere(uid, info) {
			found = uid
		}
	}
	return found
}

// awaits reports whether a promised pod of the node is not there yet.
func (h *holdings) awaits(info fwk.NodeInfo) bool {
	if h == nil {
		return false
	}
	for uid := range h.byPod {
		if !isThere(uid, info) {
			return true
		}
	}
	return false
}

func same(a, b resources.Vector) bool {
	return a.MilliCPU == b.MilliCPU && a.Memory == b.Memory && a.EphemeralStorage == b.EphemeralStorage &&
		a.Pods == b.Pods && slices.Equal(a.Extended, b.Extended)
}

func isThere(uid types.UID, info fwk.NodeInfo) bool {
	return slices.ContainsFunc(info.GetPods(), func(pi fwk.PodInfo) bool { return pi.GetPod().UID == uid })
}

// spreadOwner returns the pod's controller if the pod has to be spread, else "".
func spreadOwner(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && mustSpread(pod) {
		return owner.UID
	}
	return ""
}

// fitsBeside reports whether the pod leaves room for the promised pods of the node that are not there
// yet, and for its daemons. Promised pods do not stand back for each other. Only resources count here:
// ports, volumes and affinity of nominated pods are the framework's business, which runs all filters
// with them.
func (p *Plugin) fitsBeside(c *cycle, node *corev1.Node, info fwk.NodeInfo) bool {
	var kept resources.Vector
	if c.place.State != promise.Promised || c.place.Node != node.Name {
		if h := p.holdings(node.Name); h != nil {
			kept = h.against(c, p.holdAll, info)
		}
	}
	if p.deps.Daemons != nil {
		for _, pod := range p.deps.Daemons.Expected(node) {
			if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || owner.UID != c.owner {
				kept = kept.Add(resources.PodRequests(pod))
			}
		}
	}
	return kept.IsZero() || fitsFree(c.requests, kept, info)
}

// fitsFree reports whether requests fit beside what is used and kept, looking only at resources that
// are requested, as the scheduler does.
func fitsFree(requests, kept resources.Vector, info fwk.NodeInfo) bool {
	used, all := info.GetRequested(), info.GetAllocatable()
	fits := func(want, used, kept, all int64) bool { return want == 0 || want+used+kept <= all }
	if !fits(requests.Pods, int64(len(info.GetPods())), kept.Pods, int64(all.GetAllowedPodNumber())) ||
		!fits(requests.MilliCPU, used.GetMilliCPU(), kept.MilliCPU, all.GetMilliCPU()) ||
		!fits(requests.Memory, used.GetMemory(), kept.Memory, all.GetMemory()) ||
		!fits(requests.EphemeralStorage, used.GetEphemeralStorage(), kept.EphemeralStorage, all.GetEphemeralStorage()) {
		return false
	}
	for _, a := range requests.Extended {
		if _, published := all.GetScalarResources()[a.Name]; !published {
			continue // the resource filter knows whether something else provides it
		}
		if !fits(a.Value, used.GetScalarResources()[a.Name], kept.Get(a.Name), all.GetScalarResources()[a.Name]) {
			return false
		}
	}
	return true
}
