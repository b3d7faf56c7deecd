package brute

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// admits reports whether the scheduler would let the next pod of the kind onto the node now.
func (w *world) admits(k *kind, n *node) bool {
	if n.closed || !n.selects[k.index] || !n.bears[k.index] || !n.holds(k) {
		return false
	}
	return w.apart(k.pod, n) && w.near(k.pod, n) && w.even(k, n)
}

func tolerates(pod *corev1.Pod, taints []corev1.Taint) bool {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), &taints[i], false)
		}) {
			return false
		}
	}
	return true
}

// holds looks at amounts and host ports. What the pod does not ask for may be overdrawn.
func (n *node) holds(k *kind) bool {
	for resource, amount := range k.needs {
		if amount > 0 && amount > n.free[resource] {
			return false
		}
	}
	for _, other := range slices.Concat(n.pods, n.daemons) {
		for _, a := range ports(k.pod) {
			for _, b := range ports(other) {
				if a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || a.HostIP == "0.0.0.0" || b.HostIP == "0.0.0.0") {
					return false
				}
			}
		}
	}
	return true
}

func ports(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			if p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
			if p.HostIP == "" {
				p.HostIP = "0.0.0.0"
			}
			out = append(out, p)
		}
	}
	return out
}

// domain is the node's value of a topology key.
func (n *node) domain(key string) (string, bool) {
	value, ok := n.labels[key]
	if !ok && key == corev1.LabelHostname {
		return n.name, true
	}
	return value, ok
}

func share(a, b *node, key string) bool {
	x, ok := a.domain(key)
	y, also := b.domain(key)
	return ok && also && x == y
}

// matches reports whether the other pod is one that the owner's term means.
func (w *world) matches(t corev1.PodAffinityTerm, owner, other *corev1.Pod) bool {
	if t.LabelSelector == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	if slices.Contains(t.Namespaces, other.Namespace) || len(t.Namespaces) == 0 && t.NamespaceSelector == nil && owner.Namespace == other.Namespace {
		return true
	}
	if t.NamespaceSelector == nil {
		return false
	}
	namespaces, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil {
		return false
	}
	known, ok := w.problem.Snapshot.NamespaceLabels[other.Namespace]
	return namespaces.Empty() || ok && namespaces.Matches(labels.Set(known))
}

func repelling(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// apart looks at anti-affinity, of the pod and of those that are there.
func (w *world) apart(pod *corev1.Pod, n *node) bool {
	for _, other := range w.nodes {
		for _, there := range other.pods {
			for _, t := range repelling(pod) {
				if share(n, other, t.TopologyKey) && w.matches(t, pod, there) {
					return false
				}
			}
			for _, t := range repelling(there) {
				if share(n, other, t.TopologyKey) && w.matches(t, there, pod) {
					return false
				}
			}
		}
	}
	return true
}

// near looks at affinity: in each term's domain there must be a pod that all terms mean. The first of its
// kind needs none.
func (w *world) near(pod *corev1.Pod, n *node) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return true
	}
	terms := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	all := func(other *corev1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !w.matches(t, pod, other) })
	}
	anywhere, everywhere := false, true
	for _, t := range terms {
		if _, ok := n.domain(t.TopologyKey); !ok {
			return false
		}
		here := false
		for _, other := range w.nodes {
			if _, ok := other.domain(t.TopologyKey); ok && slices.ContainsFunc(other.pods, all) {
				anywhere = true
				here = here || share(n, other, t.TopologyKey)
			}
		}
		everywhere = everywhere && here
	}
	return everywhere || !anywhere && all(pod)
}

// even looks at required spreads. Domains that could be bought for the pod count as empty ones.
func (w *world) even(k *kind, n *node) bool {
	var constraints []corev1.TopologySpreadConstraint
	for _, c := range k.pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			constraints = append(constraints, c)
		}
	}
	for _, c := range constraints {
		if !w.evenBy(c, constraints, k, n) {
			return false
		}
	}
	return true
}

func (w *world) evenBy(c corev1.TopologySpreadConstraint, all []corev1.TopologySpreadConstraint, k *kind, n *node) bool {
	domain, ok := n.domain(c.TopologyKey)
	if !ok {
		return false
	}
	selector := labels.Nothing()
	if s, err := metav1.LabelSelectorAsSelector(withKeys(c, k.pod)); err == nil && c.LabelSelector != nil && !s.Empty() {
		selector = s
	}
	counts := map[string]int{}
	for _, other := range w.nodes {
		if !counted(c, all, k, other) {
			continue
		}
		at, _ := other.domain(c.TopologyKey)
		counts[at] += 0
		for _, pod := range other.pods {
			if pod.DeletionTimestamp == nil && pod.Namespace == k.pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
				counts[at]++
			}
		}
	}
	least := 0
	if c.TopologyKey != corev1.LabelHostname { // of hosts there is always another one
		for _, at := range k.eligible[c.TopologyKey] {
			counts[at] += 0
		}
		first := true
		for _, count := range counts {
			if first || count < least {
				least, first = count, false
			}
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
			least = 0
		}
	}
	self := 0
	if selector.Matches(labels.Set(k.pod.Labels)) {
		self = 1
	}
	return counts[domain]+self-least <= int(c.MaxSkew)
}

// withKeys adds matchLabelKeys to the selector.
func withKeys(c corev1.TopologySpreadConstraint, pod *corev1.Pod) *metav1.LabelSelector {
	s := c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok && s != nil {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	return s
}

// counted reports whether the node's pods and domain count for the constraint.
func counted(c corev1.TopologySpreadConstraint, all []corev1.TopologySpreadConstraint, k *kind, n *node) bool {
	for _, x := range all {
		if _, ok := n.domain(x.TopologyKey); !ok {
			return false
		}
	}
	if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor) && !n.selects[k.index] {
		return false
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore || n.bears[k.index]
}
