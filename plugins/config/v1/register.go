package v1

import (
	"cmp"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/plugins/config"
)

// Defaults of the batch windows.
const (
	DefaultBatchIdleDuration = 100 * time.Millisecond
	DefaultBatchMaxDuration  = time.Second
)

// AddToScheme registers the wire form, its defaults and its conversions.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &NodeProvisionArgs{})
	scheme.AddTypeDefaultingFunc(&NodeProvisionArgs{}, func(obj any) { SetDefaults(obj.(*NodeProvisionArgs)) })
	return errors.Join(
		scheme.AddConversionFunc((*NodeProvisionArgs)(nil), (*config.NodeProvisionArgs)(nil), func(in, out any, _ conversion.Scope) error {
			toInternal(in.(*NodeProvisionArgs), out.(*config.NodeProvisionArgs))
			return nil
		}),
		scheme.AddConversionFunc((*config.NodeProvisionArgs)(nil), (*NodeProvisionArgs)(nil), func(in, out any, _ conversion.Scope) error {
			fromInternal(in.(*config.NodeProvisionArgs), out.(*NodeProvisionArgs))
			return nil
		}))
}

// SetDefaults fills what is not set.
func SetDefaults(a *NodeProvisionArgs) {
	a.Preemption = cmp.Or(a.Preemption, string(config.ProvisionFirst))
	a.Hold = cmp.Or(a.Hold, string(config.HoldEqualOrLower))
	a.PreferencePolicy = cmp.Or(a.PreferencePolicy, string(config.PreferenceGuide))
	a.MinValuesPolicy = cmp.Or(a.MinValuesPolicy, string(config.MinValuesStrict))
	if a.BatchIdleDuration == nil {
		a.BatchIdleDuration = &metav1.Duration{Duration: DefaultBatchIdleDuration}
	}
	if a.BatchMaxDuration == nil {
		a.BatchMaxDuration = &metav1.Duration{Duration: max(DefaultBatchMaxDuration, a.BatchIdleDuration.Duration)}
	}
}

// toInternal converts; durations that are not set become zero.
func toInternal(in *NodeProvisionArgs, out *config.NodeProvisionArgs) {
	in = in.DeepCopy()
	out.Preemption = config.PreemptionPolicy(in.Preemption)
	out.PriorityClassPolicies = nil
	for _, p := range in.PriorityClassPolicies {
		out.PriorityClassPolicies = append(out.PriorityClassPolicies, config.PriorityClassPolicy{
			PriorityClassNames: p.PriorityClassNames, Preemption: config.PreemptionPolicy(p.Preemption),
		})
	}
	out.Hold = config.HoldPolicy(in.Hold)
	out.BatchIdleDuration, out.BatchMaxDuration = 0, 0
	if in.BatchIdleDuration != nil {
		out.BatchIdleDuration = in.BatchIdleDuration.Duration
	}
	if in.BatchMaxDuration != nil {
		out.BatchMaxDuration = in.BatchMaxDuration.Duration
	}
	out.PreferencePolicy = config.PreferencePolicy(in.PreferencePolicy)
	out.MinValuesPolicy = config.MinValuesPolicy(in.MinValuesPolicy)
	out.ProvisionFor = in.ProvisionFor
}

func fromInternal(in *config.NodeProvisionArgs, out *NodeProvisionArgs) {
	in = in.DeepCopy()
	out.Preemption = string(in.Preemption)
	out.PriorityClassPolicies = nil
	for _, p := range in.PriorityClassPolicies {
		out.PriorityClassPolicies = append(out.PriorityClassPolicies, PriorityClassPolicy{
			PriorityClassNames: p.PriorityClassNames, Preemption: string(p.Preemption),
		})
	}
	out.Hold = string(in.Hold)
	out.BatchIdleDuration = &metav1.Duration{Duration: in.BatchIdleDuration}
	out.BatchMaxDuration = &metav1.Duration{Duration: in.BatchMaxDuration}
	out.PreferencePolicy = string(in.PreferencePolicy)
	out.MinValuesPolicy = string(in.MinValuesPolicy)
	out.ProvisionFor = in.ProvisionFor
}
