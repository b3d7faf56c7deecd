package nodeprovision

import (
	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/berth-dev/berth/plugins/config"
)

// AnnotationPreemption on a pod overrides the preemption policy of its class and profile:
// ProvisionFirst, PreemptFirst or Never. Other values are ignored.
const AnnotationPreemption = "berth.dev/preemption"

// policies answers which preemption policy holds for a pod.
type policies struct {
	byClass map[string]config.PreemptionPolicy
	rest    config.PreemptionPolicy
}

// newPolicies gives the system's critical classes PreemptFirst: the cluster's own agents should not
// wait for a machine.
func newPolicies(args *config.NodeProvisionArgs) policies {
	p := policies{rest: args.Preemption, byClass: map[string]config.PreemptionPolicy{
		"system-node-critical":    config.PreemptFirst,
		"system-cluster-critical": config.PreemptFirst,
	}}
	for _, policy := range args.PriorityClassPolicies {
		for _, class := range policy.PriorityClassNames {
			p.byClass[class] = policy.Preemption
		}
	}
	return p
}

func (p policies) of(pod *corev1.Pod) config.PreemptionPolicy {
	switch own := config.PreemptionPolicy(pod.Annotations[AnnotationPreemption]); own {
	case config.ProvisionFirst, config.PreemptFirst, config.Never:
		return own
	default:
	}
	if policy, ok := p.byClass[pod.Spec.PriorityClassName]; ok {
		return policy
	}
	return p.rest
}

// findPreemption looks at the order of the profile's PostFilter plugins, which is known only after
// every plugin was made. Without knowing, it assumes the shipped order, in which preemption follows.
func (p *Plugin) findPreemption() bool {
	lister, ok := p.handle.(interface {
		ListPlugins() *schedulerconfig.Plugins
	})
	if !ok {
		return true
	}
	seen := false
	for _, plugin := range lister.ListPlugins().PostFilter.Enabled {
		if seen && plugin.Name == names.DefaultPreemption {
			return true
		}
		seen = seen || plugin.Name == Name
	}
	return false
}

func priority(pod *corev1.Pod) int32 { return schedulingcorev1.PodPriority(pod) }
