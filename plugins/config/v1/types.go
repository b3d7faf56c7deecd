package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/plugins/config"
)

// SchemeGroupVersion of the wire form.
var SchemeGroupVersion = schema.GroupVersion{Group: config.GroupName, Version: "v1"}

// NodeProvisionArgs are the arguments of the NodeProvision plugin.
type NodeProvisionArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Preemption says what comes first for a pod that fits nowhere: ProvisionFirst (default) buys a
	// node and evicts only when no node can help; PreemptFirst evicts first and buys when that does
	// not help; Never evicts nobody.
	Preemption string `json:"preemption,omitempty"`
	// PriorityClassPolicies override preemption for some classes. Unless listed here,
	// system-node-critical and system-cluster-critical are PreemptFirst.
	PriorityClassPolicies []PriorityClassPolicy `json:"priorityClassPolicies,omitempty"`
	// Hold says against whom room on a new node is kept for the pods it was bought for:
	// EqualOrLower (default) against pods of equal and lower priority, All against every pod.
	Hold string `json:"hold,omitempty"`
	// BatchIdleDuration closes a batch of pods after this silence. Default 100ms.
	BatchIdleDuration *metav1.Duration `json:"batchIdleDuration,omitempty"`
	// BatchMaxDuration closes a batch of pods at the latest after this time. Default 1s.
	BatchMaxDuration *metav1.Duration `json:"batchMaxDuration,omitempty"`
	// PreferencePolicy says what preferred terms count for when nodes are bought: Guide (default),
	// Respect or Ignore.
	PreferencePolicy string `json:"preferencePolicy,omitempty"`
	// MinValuesPolicy says what happens when minValues cannot be met: Strict (default) or BestEffort.
	MinValuesPolicy string `json:"minValuesPolicy,omitempty"`
	// ProvisionFor names other schedulers whose unschedulable pods get nodes too. Default none.
	ProvisionFor []string `json:"provisionFor,omitempty"`
}

// PriorityClassPolicy sets the preemption policy of the pods of some priority classes.
type PriorityClassPolicy struct {
	PriorityClassNames []string `json:"priorityClassNames"`
	Preemption         string   `json:"preemption"`
}

// DeepCopyObject implements runtime.Object.
func (a *NodeProvisionArgs) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopy returns a copy that shares nothing with the original, nil for nil.
func (a *NodeProvisionArgs) DeepCopy() *NodeProvisionArgs {
	if a == nil {
		return nil
	}
	out := *a
	out.PriorityClassPolicies = nil
	for _, p := range a.PriorityClassPolicies {
		p.PriorityClassNames = append([]string(nil), p.PriorityClassNames...)
		out.PriorityClassPolicies = append(out.PriorityClassPolicies, p)
	}
	if a.BatchIdleDuration != nil {
		out.BatchIdleDuration = &metav1.Duration{Duration: a.BatchIdleDuration.Duration}
	}
	if a.BatchMaxDuration != nil {
		out.BatchMaxDuration = &metav1.Duration{Duration: a.BatchMaxDuration.Duration}
	}
	out.ProvisionFor = append([]string(nil), a.ProvisionFor...)
	return &out
}
