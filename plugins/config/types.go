package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName of the arguments.
const GroupName = "berth.dev"

// Kind of the arguments.
const Kind = "NodeProvisionArgs"

// SchemeGroupVersion of the internal form.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}

// AddToScheme registers the internal form.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &NodeProvisionArgs{})
	return nil
}

// PreemptionPolicy says what comes first for a pod that fits nowhere: a new node or evictions.
type PreemptionPolicy string

const (
	// ProvisionFirst buys a node; other pods are evicted only when no node can help.
	ProvisionFirst PreemptionPolicy = "ProvisionFirst"
	// PreemptFirst evicts pods of lower priority; a node is bought when that does not help.
	PreemptFirst PreemptionPolicy = "PreemptFirst"
	// Never buys a node and evicts nobody, even when no node can help.
	Never PreemptionPolicy = "Never"
	// Cheapest is reserved for weighing evictions against the price of a node.
	Cheapest PreemptionPolicy = "Cheapest"
)

// HoldPolicy says against whom room for promised pods is kept.
type HoldPolicy string

const (
	// HoldEqualOrLower keeps the room against pods of equal and lower priority.
	HoldEqualOrLower HoldPolicy = "EqualOrLower"
	// HoldAll keeps the room against every pod.
	HoldAll HoldPolicy = "All"
)

// PreferencePolicy says what preferred terms of pods count for when nodes are bought.
type PreferencePolicy string

const (
	// PreferenceGuide lets preferences choose among nodes; they never add one.
	PreferenceGuide PreferencePolicy = "Guide"
	// PreferenceRespect treats preferences as required until they stand in the way.
	PreferenceRespect PreferencePolicy = "Respect"
	// PreferenceIgnore leaves preferences to the scheduler's scores.
	PreferenceIgnore PreferencePolicy = "Ignore"
)

// MinValuesPolicy says what happens when minValues of a requirement cannot be met.
type MinValuesPolicy string

const (
	// MinValuesStrict refuses to open such a node.
	MinValuesStrict MinValuesPolicy = "Strict"
	// MinValuesBestEffort opens it with as many values as there are.
	MinValuesBestEffort MinValuesPolicy = "BestEffort"
)

// NodeProvisionArgs are the arguments of the NodeProvision plugin. Every field is set once defaults
// have been applied.
type NodeProvisionArgs struct {
	metav1.TypeMeta

	// Preemption for pods whose class has no policy of its own.
	Preemption PreemptionPolicy
	// PriorityClassPolicies override Preemption; a class is named at most once.
	PriorityClassPolicies []PriorityClassPolicy
	Hold                  HoldPolicy
	// BatchIdleDuration closes a batch after this silence, BatchMaxDuration at the latest after this
	// time. They hold for the whole process: the profiles must agree.
	BatchIdleDuration, BatchMaxDuration time.Duration
	PreferencePolicy                    PreferencePolicy
	MinValuesPolicy                     MinValuesPolicy
	// ProvisionFor names foreign schedulers whose unschedulable pods get nodes, planned with the
	// filters of this profile.
	ProvisionFor []string
}

// PriorityClassPolicy sets the preemption policy of the pods of some priority classes.
type PriorityClassPolicy struct {
	PriorityClassNames []string
	Preemption         PreemptionPolicy
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
	out.ProvisionFor = append([]string(nil), a.ProvisionFor...)
	return &out
}
