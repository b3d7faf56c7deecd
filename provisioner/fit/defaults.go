package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// defaultSpread is what a profile says about pods that declare no topology spread.
type defaultSpread struct {
	constraints  []corev1.TopologySpreadConstraint
	services     corelisters.ServiceLister
	controllers  corelisters.ReplicationControllerLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
}

// newDefaultSpread returns nil when the profile has no default constraints of its own. The soft ones that
// are built into the plugin do not count: they only score.
func newDefaultSpread(p Profile, informers informers.SharedInformerFactory) *defaultSpread {
	if !slices.ContainsFunc(p.Running.ListPlugins().Filter.Enabled, func(pl schedulerconfig.Plugin) bool { return pl.Name == names.PodTopologySpread }) {
		return nil
	}
	for _, c := range p.Config.PluginConfig {
		args, ok := c.Args.(*schedulerconfig.PodTopologySpreadArgs)
		if !ok || c.Name != names.PodTopologySpread || args.DefaultingType != schedulerconfig.ListDefaulting || len(args.DefaultConstraints) == 0 {
			continue
		}
		return &defaultSpread{
			constraints: args.DefaultConstraints,
			services:    informers.Core().V1().Services().Lister(), controllers: informers.Core().V1().ReplicationControllers().Lister(),
			replicaSets: informers.Apps().V1().ReplicaSets().Lister(), statefulSets: informers.Apps().V1().StatefulSets().Lister(),
		}
	}
	return nil
}

// DefaultSpread returns the constraints that the pod's profile adds because the pod declares none, with
// the selector that the scheduler deduces from services and the pod's controller; nil when there are
// none. Unlike trials it reads the informers of the profile.
func (f *Fit) DefaultSpread(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	d := f.shadowOf(pod).defaults
	if d == nil || len(pod.Spec.TopologySpreadConstraints) > 0 {
		return nil
	}
	deduced := helper.DefaultSelector(pod, d.services, d.controllers, d.replicaSets, d.statefulSets)
	if deduced.Empty() {
		return nil
	}
	selector, ok := labelSelector(deduced)
	if !ok {
		return nil
	}
	constraints := slices.Clone(d.constraints)
	for i := range constraints {
		constraints[i].LabelSelector = selector
	}
	return constraints
}

var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
	selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// labelSelector renders a selector as the API has it; false when the API cannot say it.
func labelSelector(s labels.Selector) (*metav1.LabelSelector, bool) {
	requirements, selectable := s.Requirements()
	out := &metav1.LabelSelector{}
	for _, r := range requirements {
		operator, ok := operators[r.Operator()]
		if !ok {
			return nil, false
		}
		item := metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator}
		if r.Values().Len() > 0 {
			item.Values = r.Values().List()
		}
		out.MatchExpressions = append(out.MatchExpressions, item)
	}
	return out, selectable
}
