package nodeprovision

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/berth-dev/berth/plugins/config"
	"github.com/berth-dev/berth/plugins/config/scheme"
	"github.com/berth-dev/berth/plugins/config/validation"
	"github.com/berth-dev/berth/provisioner/promise"
)

// Name of the plugin in a KubeSchedulerConfiguration.
const Name = "NodeProvision"

// Asker wants a node for a pod. Ask is called inside the scheduling cycle and must return at once; the
// verdict comes through the promise table, and the pod is woken for it.
type Asker interface {
	Ask(pod *corev1.Pod)
}

// Daemons tells which daemon pods a fresh node is still going to get, so that room is kept for them.
// It is called for every node that a pod is tried on: it must return at once, and nothing for nodes
// that have been usable for a while.
type Daemons interface {
	Expected(node *corev1.Node) []*corev1.Pod
}

// Deps are what every profile's plugin shares. Hidden, Daemons and Passive may be nil.
type Deps struct {
	Asker    Asker
	Promises *promise.Table
	Hidden   *Hidden
	Daemons  Daemons
	// Passive returns why nobody buys nodes at the moment, or "". Pods then do not wait for a verdict:
	// evictions may help them at once.
	Passive func() string
}

// Factory ties every profile to one provisioner. The framework calls the result once per profile and
// before leadership, so it checks and stores; it starts nothing.
func Factory(deps Deps) frameworkruntime.PluginFactory {
	return func(_ context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if deps.Asker == nil || deps.Promises == nil {
			return nil, errors.New(Name + ": deps.Asker and deps.Promises are required")
		}
		args, err := scheme.Decode(obj)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		if err := validation.NodeProvision(field.NewPath("args"), args).ToAggregate(); err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		if deps.Passive == nil {
			deps.Passive = func() string { return "" }
		}
		p := &Plugin{deps: deps, policies: newPolicies(args), holdAll: args.Hold == config.HoldAll, handle: handle}
		p.preemptionFollows = sync.OnceValue(p.findPreemption)
		return p, nil
	}
}

// Plugin is NodeProvision in one profile.
type Plugin struct {
	deps     Deps
	policies policies
	holdAll  bool
	handle   fwk.Handle
	// preemptionFollows tells whether a plugin that evicts pods comes after this one in PostFilter.
	preemptionFollows func() bool
	// held caches the requests of the promised pods of each node, see hold.go.
	held sync.Map
}

var (
	_ fwk.PreFilterPlugin          = (*Plugin)(nil)
	_ fwk.FilterPlugin             = (*Plugin)(nil)
	_ fwk.PostFilterPlugin         = (*Plugin)(nil)
	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
	_ fwk.ReservePlugin            = (*Plugin)(nil)
	_ fwk.PostBindPlugin           = (*Plugin)(nil)
	_ fwk.SignPlugin               = (*Plugin)(nil)
	_ fwk.EnqueueExtensions        = (*Plugin)(nil)
)

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// Reserve refuses a node that was hidden after the pod passed Filter, and counts the pod as one that a
// later Hide has to respect. A pod that got in by standing in for another takes over its promise.
func (p *Plugin) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if p.deps.Hidden != nil && !p.deps.Hidden.reserve(node, pod.UID) {
		return fwk.NewStatus(fwk.Unschedulable, reasonHidden)
	}
	p.changePlaces(pod, node)
	return nil
}

// changePlaces gives the pod the place on the node that was promised to one of its kind, and that one
// the pod's own. It holds even if the pod is not bound in the end: both places are good for both pods.
func (p *Plugin) changePlaces(pod *corev1.Pod, node string) {
	e, ok := p.deps.Promises.Lookup(pod.UID)
	if !ok || e.State != promise.Promised || e.Node == node || spreadOwner(pod) == "" {
		return
	}
	h := p.holdings(node)
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if h == nil || err != nil {
		return
	}
	c := newCycle(pod)
	c.place = e
	if other := h.standIn(c, info); other != "" {
		p.deps.Promises.Swap(pod.UID, other)
	}
}

// Unreserve takes the pod back from the node.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	if p.deps.Hidden != nil {
		p.deps.Hidden.Forget(pod.UID)
	}
}

// PostBind ends the promise of a pod that went somewhere else, so that its node's room is free at once.
// A pod that landed as promised is released by the one who watches pods, when the binding is visible:
// until then the entry stands for it in every snapshot.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) {
	if e, ok := p.deps.Promises.Lookup(pod.UID); ok && e.Node != node {
		p.deps.Promises.Release(pod.UID)
	}
}

// SignPod implements fwk.SignPlugin. Equal pods fare equally with this plugin when their priority is
// equal; pods that a place is promised to fare like no other.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if e, ok := p.deps.Promises.Lookup(pod.UID); ok && e.State == promise.Promised {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a place is promised to this pod alone")
	}
	return []fwk.SignFragment{{Key: "berth.dev/priority", Value: priority(pod)}}, nil
}
