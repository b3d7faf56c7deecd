package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// buildNode makes the entry for a key, nil when there is nothing (any more) under it.
func (s *State) buildNode(key string) *cluster.Node {
	kind, name, _ := strings.Cut(key, "/")
	if kind == "n" {
		node := s.nodes[name]
		if node == nil {
			return nil
		}
		return s.fromNode(node, s.claims[s.byProvider[node.Spec.ProviderID]])
	}
	claim := s.claims[name]
	if claim == nil || s.hasNode(claim) {
		return nil
	}
	return s.fromClaim(claim)
}

// hasNode reports whether some Node carries the claim's provider ID. An empty ID never matches.
func (s *State) hasNode(claim *karpv1.NodeClaim) bool {
	return len(s.nodesWith[claim.Status.ProviderID]) > 0
}

func (s *State) fromNode(node *corev1.Node, claim *karpv1.NodeClaim) *cluster.Node {
	if node.Spec.ProviderID == "" {
		claim = nil
	}
	out := &cluster.Node{
		Name: node.Name, Pool: node.Labels[karpv1.LabelNodePool], Node: node, Claim: claim,
		Labels: node.Labels, Allocatable: resources.FromList(node.Status.Allocatable), Capacity: resources.FromList(node.Status.Capacity),
		Pods:       s.podsOn(node.Name),
		Registered: node.Labels[karpv1.LabelRegistered] == karpv1.ValueTrue, Initialized: node.Labels[karpv1.LabelInitialized] == karpv1.ValueTrue,
		Ready:    isReady(node),
		Deleting: node.DeletionTimestamp != nil || s.isHidden(node.Name) || hasTaint(node.Spec.Taints, karpv1.TaintKeyDisrupted),
		Taints:   node.Spec.Taints,
	}
	if claim == nil {
		out.Initialized = out.Pool == "" && out.Ready // nodes that are not ours have no such label
		out.Requirements = requirement.FromLabels(out.Labels)
		return out
	}
	out.ClaimName = claim.Name
	out.Pool = cmp.Or(out.Pool, claim.Labels[karpv1.LabelNodePool])
	out.Deleting = out.Deleting || claim.DeletionTimestamp != nil
	if !out.Registered {
		// The claim's labels and taints reach the node at registration; plan as if they were there.
		out.Labels = maps.Clone(claim.Labels)
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		maps.Copy(out.Labels, node.Labels)
		out.Taints = claim.Spec.Taints
	} else if !out.Initialized {
		out.Taints = lasting(node.Spec.Taints, claim.Spec.StartupTaints)
	}
	if !out.Initialized {
		out.Allocatable = filled(out.Allocatable, resources.FromList(claim.Status.Allocatable))
		out.Capacity = filled(out.Capacity, resources.FromList(claim.Status.Capacity))
	}
	out.Requirements = requirement.FromLabels(out.Labels)
	return out
}

// fromClaim describes a node that is on its way.
func (s *State) fromClaim(claim *karpv1.NodeClaim) *cluster.Node {
	out := &cluster.Node{
		ClaimName: claim.Name, Pool: claim.Labels[karpv1.LabelNodePool], Claim: claim, Labels: maps.Clone(claim.Labels),
		Taints: claim.Spec.Taints, Deleting: claim.DeletionTimestamp != nil,
		Allocatable: resources.FromList(claim.Status.Allocatable), Capacity: resources.FromList(claim.Status.Capacity),
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	demands := requirement.FromClaim(claim.Spec.Requirements)
	maps.Copy(out.Labels, demands.Labels())
	maps.Copy(out.Labels, claim.Labels)
	out.Requirements = requirement.FromLabels(out.Labels)
	for key, demand := range demands {
		if _, decided := out.Requirements[key]; !decided {
			out.Requirements[key] = demand
		}
	}
	if claim.Status.ProviderID == "" && s.deps.TypesOf != nil {
		for i, it := range s.deps.TypesOf(claim) {
			if i == 0 {
				out.Allocatable, out.Capacity = it.Allocatable(), it.Capacity
				continue
			}
			out.Allocatable, out.Capacity = out.Allocatable.Min(it.Allocatable()), out.Capacity.Max(it.Capacity)
		}
	}
	return out
}

func (s *State) isHidden(node string) bool {
	_, ok := s.hidden[node]
	return ok
}

func (s *State) podsOn(node string) []*corev1.Pod {
	pods := slices.Collect(maps.Values(s.onNode[node]))
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func hasTaint(taints []corev1.Taint, key string) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
}

// filled takes amounts that the kubelet has not reported yet from the estimate.
func filled(reported, estimate resources.Vector) resources.Vector {
	out := reported
	for _, name := range estimate.Names() {
		if reported.Get(name) == 0 {
			out = out.With(name, estimate.Get(name))
		}
	}
	return out
}

// IsEphemeralTaint reports whether a taint vanishes by itself while a node starts.
func IsEphemeralTaint(taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeNotReady:
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	case corev1.TaintNodeUnreachable:
		return taint.Effect == corev1.TaintEffectNoSchedule
	case "node.cloudprovider.kubernetes.io/uninitialized":
		return taint.Effect == corev1.TaintEffectNoSchedule && taint.Value == "true"
	case karpv1.TaintKeyUnregistered:
		return taint.Effect == corev1.TaintEffectNoExecute
	}
	return strings.HasPrefix(taint.Key, "readiness.k8s.io/")
}

// lasting returns the taints that will still be there when the node is initialized.
func lasting(taints, startup []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return IsEphemeralTaint(t) || slices.ContainsFunc(startup, func(s corev1.Taint) bool { return t.MatchTaint(&s) })
	})
}

// poolUsage sums what counts against each pool's limits.
func (s *State) poolUsage() map[string]resources.Vector {
	usage := map[string]resources.Vector{}
	for _, node := range s.built {
		gone := (node.Node != nil && node.Node.DeletionTimestamp != nil) || (node.Claim != nil && node.Claim.DeletionTimestamp != nil)
		if node.Pool == "" || gone {
			continue
		}
		usage[node.Pool] = usage[node.Pool].Add(node.Capacity).Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
	}
	return usage
}

// daemons returns one pod per DaemonSet, in the shape that a new node will get.
func (s *State) daemons() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(s.daemonSets))
	for uid, set := range s.daemonSets {
		pods = append(pods, daemonPod(set, s.daemonPods[uid]))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return pods
}

// daemonTolerations are those that the DaemonSet controller adds to every pod.
func daemonTolerations() []corev1.Toleration {
	tolerate := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	return []corev1.Toleration{
		tolerate(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute),
		tolerate(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		tolerate(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule),
	}
}

// daemonPod takes the shape of the live pod when there is one, since admission may have changed it,
// but the node affinity of the template: the controller pins live pods to their node.
func daemonPod(set *appsv1.DaemonSet, live *corev1.Pod) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name, Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	if live != nil {
		affinity := pod.Spec.Affinity
		pod.Spec, pod.Labels = *live.Spec.DeepCopy(), live.Labels
		pod.Spec.NodeName, pod.Spec.Affinity = "", affinity
		return pod
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, daemonTolerations()...)
	if pod.Spec.HostNetwork {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return pod
}
