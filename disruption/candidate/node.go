package candidate

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// Blocked returns why the node may not be disrupted, and "" when it may. pool is the node's NodePool,
// nil when there is none. The answer for pods is for methods that wait for their nodes to drain; a
// node without a claim is nobody's to disrupt.
func Blocked(node *cluster.Node, pool *karpv1.NodePool, pdbs *Limits, now time.Time) string {
	if node.Deleting {
		return "Node is deleting or marked for deletion"
	}
	if why := BlockedChosen(node, pool); why != "" {
		return why
	}
	return BlockedByPods(node.Pods, pdbs, now)
}

// BlockedChosen is Blocked for a node that a command has chosen, and so hidden and tainted: it looks at
// the objects themselves, and not at the pods, whose newest state the caller has to fetch.
func BlockedChosen(node *cluster.Node, pool *karpv1.NodePool) string {
	switch {
	case node.Claim == nil:
		return "Node has no NodeClaim"
	case node.Node == nil:
		return "NodeClaim does not have an associated node"
	case !node.Initialized:
		return "Node isn't initialized"
	case node.Node.DeletionTimestamp != nil || node.Claim.DeletionTimestamp != nil:
		return "Node is deleting or marked for deletion"
	case len(node.Promised) > 0:
		return "Node is nominated for a pending pod"
	case node.Node.Annotations[karpv1.AnnotationDoNotDisrupt] == karpv1.ValueTrue:
		return fmt.Sprintf("Disruption is blocked through the %q annotation", karpv1.AnnotationDoNotDisrupt)
	case node.Node.Labels[karpv1.LabelNodePool] == "":
		return fmt.Sprintf("Node doesn't have the required label %q", karpv1.LabelNodePool)
	case pool == nil:
		return fmt.Sprintf("NodePool not found (NodePool=%s)", node.Pool)
	}
	return ""
}

// BlockedByPods returns which pod of a node keeps it from being disrupted, and "" when none does.
func BlockedByPods(pods []*corev1.Pod, pdbs *Limits, now time.Time) string {
	for _, pod := range pods {
		if Protect(pod, now).Active {
			return fmt.Sprintf("Pod has %q annotation (Pod=%s/%s)", karpv1.AnnotationDoNotDisrupt, pod.Namespace, pod.Name)
		}
	}
	for _, pod := range pods {
		if !isActive(pod) || isMirror(pod) || toleratesDisruption(pod) {
			continue // never evicted
		}
		if why := pdbs.blocks(pod); why != "" {
			return why
		}
	}
	return ""
}

// Limits answers which PodDisruptionBudget keeps a pod. The nil Limits keep none.
type Limits struct {
	byNamespace map[string][]limit
}

type limit struct {
	budget   *policyv1.PodDisruptionBudget
	selector labels.Selector
}

// NewLimits prepares the budgets. One with a selector that cannot be read matches every pod of its
// namespace: what it was meant to protect is not known.
func NewLimits(budgets []*policyv1.PodDisruptionBudget) *Limits {
	l := &Limits{byNamespace: map[string][]limit{}}
	for _, budget := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			selector = labels.Everything()
		}
		l.byNamespace[budget.Namespace] = append(l.byNamespace[budget.Namespace], limit{budget, selector})
	}
	return l
}

func (l *Limits) blocks(pod *corev1.Pod) string {
	if l == nil {
		return ""
	}
	var matching []*policyv1.PodDisruptionBudget
	for _, limit := range l.byNamespace[pod.Namespace] {
		if limit.selector.Matches(labels.Set(pod.Labels)) {
			matching = append(matching, limit.budget)
		}
	}
	switch {
	case len(matching) == 0:
		return ""
	case len(matching) > 1:
		names := make([]string, len(matching))
		for i, budget := range matching {
			names[i] = budget.Namespace + "/" + budget.Name
		}
		return fmt.Sprintf("Eviction does not support multiple PDBs (PDBs=%s, Pod=%s/%s)", strings.Join(names, ","), pod.Namespace, pod.Name)
	case matching[0].Status.DisruptionsAllowed > 0 || (evictsUnready(matching[0]) && isUnready(pod)):
		return ""
	}
	return fmt.Sprintf("Pdb prevents pod evictions (PodDisruptionBudget=%s/%s)", matching[0].Namespace, matching[0].Name)
}

func evictsUnready(budget *policyv1.PodDisruptionBudget) bool {
	policy := budget.Spec.UnhealthyPodEvictionPolicy
	return policy != nil && *policy == policyv1.AlwaysAllow
}

func isUnready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// IsConsolidatable reports whether the claim's node has been quiet for the pool's consolidateAfter.
// When it has not, but will be if nothing happens, recheck is when.
func IsConsolidatable(claim *karpv1.NodeClaim, pool *karpv1.NodePool, now time.Time) (ok bool, recheck time.Time) {
	after := pool.Spec.Disruption.ConsolidateAfter.Duration
	initialized := meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionInitialized)
	if pool.Spec.Replicas != nil || after == nil || initialized == nil || initialized.Status != metav1.ConditionTrue {
		return false, time.Time{}
	}
	quietSince := claim.Status.LastPodEventTime.Time
	if quietSince.IsZero() {
		quietSince = initialized.LastTransitionTime.Time
	}
	if due := quietSince.Add(*after); now.Before(due) {
		return false, due
	}
	return true, time.Time{}
}

// NeverEvictable reports whether budgets keep the pod from being evicted at all times, not only now: one
// of them allows no disruption by its spec, or several cover the pod, which eviction does not support.
func (l *Limits) NeverEvictable(pod *corev1.Pod) bool {
	if l == nil {
		return false
	}
	matching := 0
	for _, limit := range l.byNamespace[pod.Namespace] {
		if !limit.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if matching++; matching > 1 || allowsNone(limit.budget) {
			return true
		}
	}
	return false
}

// allowsNone reports whether the budget blocks whatever the state of its pods.
func allowsNone(budget *policyv1.PodDisruptionBudget) bool {
	spec := budget.Spec
	if spec.MaxUnavailable != nil {
		return spec.MaxUnavailable.String() == "0" || spec.MaxUnavailable.String() == "0%"
	}
	return spec.MinAvailable != nil && spec.MinAvailable.String() == "100%"
}
