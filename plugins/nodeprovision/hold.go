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
	uid      types.UID
	priority int32
	requests resources.Vector
}

// holdings is the cache entry of one node. It stands for the very slice that the table handed out, which
// never changes, so comparing the slice's address tells whether it is current.
type holdings struct {
	of   *promise.Entry
	list []holding
}

// holdings returns what is kept on the node, computing requests only after the promises have changed.
func (p *Plugin) holdings(node string) []holding {
	entries := p.deps.Promises.ForNode(node)
	if len(entries) == 0 {
		p.held.Delete(node)
		return nil
	}
	if cached, ok := p.held.Load(node); ok && cached.(*holdings).of == &entries[0] {
		return cached.(*holdings).list
	}
	h := &holdings{of: &entries[0], list: make([]holding, 0, len(entries))}
	for _, e := range entries {
		h.list = append(h.list, holding{uid: e.Pod.UID, priority: priority(e.Pod), requests: resources.PodRequests(e.Pod)})
	}
	p.held.Store(node, h)
	return h.list
}

// fitsBeside reports whether the pod leaves room for the promised pods of the node that are not there
// yet, and for its daemons. Promised pods do not stand back for each other. Only resources count here:
// ports, volumes and affinity of nominated pods are the framework's business, which runs all filters
// with them.
func (p *Plugin) fitsBeside(c *cycle, node *corev1.Node, info fwk.NodeInfo) bool {
	var list []holding
	if c.place.State != promise.Promised || c.place.Node != node.Name {
		list = p.holdings(node.Name)
	}
	var daemons []*corev1.Pod
	if p.deps.Daemons != nil {
		daemons = p.deps.Daemons.Expected(node)
	}
	if len(list) == 0 && len(daemons) == 0 {
		return true
	}
	var kept resources.Vector
	there := present(info, len(list))
	for _, h := range list {
		if (p.holdAll || c.priority <= h.priority) && !there(h.uid) {
			kept = kept.Add(h.requests)
		}
	}
	for _, pod := range daemons {
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != c.owner {
			kept = kept.Add(resources.PodRequests(pod))
		}
	}
	return kept.IsZero() || fitsFree(c.requests, kept, info)
}

// present answers whether a pod is on the node already: bound, assumed, or added by the framework as a
// nominated pod for this try.
func present(info fwk.NodeInfo, questions int) func(types.UID) bool {
	pods := info.GetPods()
	if questions*len(pods) <= 64 {
		return func(uid types.UID) bool {
			return slices.ContainsFunc(pods, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == uid })
		}
	}
	uids := make(map[types.UID]struct{}, len(pods))
	for _, pi := range pods {
		uids[pi.GetPod().UID] = struct{}{}
	}
	return func(uid types.UID) bool {
		_, ok := uids[uid]
		return ok
	}
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
