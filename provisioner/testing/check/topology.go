package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// at returns the domain of a pod's node; ok is false when it is open or missing.
func (s *site) at(key string) (string, bool) {
	list := s.domains(key)
	_, everywhere := s.labels[0][key]
	if len(list) != 1 || !everywhere {
		return "", false
	}
	return list[0], true
}

// mayShare reports whether two nodes may end up in the same domain.
func mayShare(a, b *site, key string) bool {
	if a == b {
		return len(a.domains(key)) > 0
	}
	if key == corev1.LabelHostname {
		return a.labels[0][key] == b.labels[0][key] // one host name for all that a claim may become
	}
	theirs := b.domains(key)
	return slices.ContainsFunc(a.domains(key), func(value string) bool { return slices.Contains(theirs, value) })
}

// domains are all that the node may end up in.
func (s *site) domains(key string) []string {
	if list, ok := s.known[key]; ok {
		return list
	}
	var list []string
	for _, l := range s.labels {
		if value, ok := l[key]; ok && !slices.Contains(list, value) {
			list = append(list, value)
		}
	}
	if s.known == nil {
		s.known = map[string][]string{}
	}
	s.known[key] = list
	return list
}

// matcher is a selector with its namespaces.
type matcher struct {
	key        string
	namespaces []string // nil: all
	selector   labels.Selector
}

func (m matcher) matches(pod *corev1.Pod) bool {
	return (m.namespaces == nil || slices.Contains(m.namespaces, pod.Namespace)) && m.selector.Matches(labels.Set(pod.Labels))
}

func selectorOf(s *metav1.LabelSelector, in, notIn []string, pod *corev1.Pod) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if s == nil || err != nil {
		return labels.Nothing()
	}
	for _, key := range in {
		if v, ok := pod.Labels[key]; ok {
			selector = selector.Add(*must(labels.NewRequirement(key, "in", []string{v})))
		}
	}
	for _, key := range notIn {
		if v, ok := pod.Labels[key]; ok {
			selector = selector.Add(*must(labels.NewRequirement(key, "notin", []string{v})))
		}
	}
	return selector
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // a test's own input
	}
	return v
}

func (c *checker) termOf(t corev1.PodAffinityTerm, pod *corev1.Pod) matcher {
	m := matcher{key: t.TopologyKey, namespaces: t.Namespaces, selector: selectorOf(t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys, pod)}
	if t.NamespaceSelector != nil {
		selector := must(metav1.LabelSelectorAsSelector(t.NamespaceSelector))
		if selector.Empty() {
			m.namespaces = nil
			return m
		}
		for name, set := range c.problem.Snapshot.NamespaceLabels {
			if selector.Matches(labels.Set(set)) {
				m.namespaces = append(slices.Clone(m.namespaces), name)
			}
		}
		if m.namespaces == nil {
			m.namespaces = []string{}
		}
	} else if len(m.namespaces) == 0 {
		m.namespaces = []string{pod.Namespace}
	}
	return m
}

// topology checks what must hold at the end, whatever the order of binding: anti-affinity both ways,
// affinity, and the skew of selectors that match nothing but pods with the constraint.
func (c *checker) topology() {
	seen := map[string]bool{}
	for i := range c.sites {
		for _, pod := range c.sites[i].added {
			c.podAffinity(&c.sites[i], pod)
			for _, constraint := range pod.Spec.TopologySpreadConstraints {
				id := pod.Namespace + constraint.String()
				if constraint.WhenUnsatisfiable == corev1.DoNotSchedule && !seen[id] && constraint.NodeAffinityPolicy == nil && constraint.NodeTaintsPolicy == nil &&
					pod.Spec.Affinity == nil && pod.Spec.NodeSelector == nil {
					seen[id] = true
					c.skew(pod, constraint)
				}
			}
		}
		for _, pod := range c.sites[i].pods {
			c.repels(&c.sites[i], pod, true)
		}
	}
}

func (c *checker) podAffinity(s *site, pod *corev1.Pod) {
	c.repels(s, pod, false)
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.PodAffinity == nil {
		return
	}
	terms := affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	who := make([]matcher, len(terms))
	for i, t := range terms {
		who[i] = c.termOf(t, pod)
	}
	// The scheduler counts the pods that match all terms, for each term's key.
	matches := func(p *corev1.Pod) bool {
		return !slices.ContainsFunc(who, func(m matcher) bool { return !m.matches(p) })
	}
	for _, m := range who {
		if _, ok := s.at(m.key); !ok {
			c.fault("%s: %s is open, and %s has affinity by it", s.name, m.key, pod.Name)
			continue
		}
		found, before := false, false
		for i := range c.sites {
			other := &c.sites[i]
			counted := slices.ContainsFunc(who, func(m matcher) bool { return len(other.domains(m.key)) > 0 })
			before = before || counted && slices.ContainsFunc(other.pods, matches)
			for _, p := range slices.Concat(other.pods, other.added) {
				if p != pod && matches(p) {
					found = found || mayShare(s, other, m.key)
				}
			}
		}
		if !found && (before || !matches(pod)) { // the first pod of its kind may go anywhere
			c.fault("%s: no pod near %s for its affinity by %s", s.name, pod.Name, m.key)
		}
	}
}

// repels checks the pod's required anti-affinity against all others; addedOnly leaves out those that
// were there before.
func (c *checker) repels(s *site, pod *corev1.Pod, addedOnly bool) {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return
	}
	for _, t := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		m := c.termOf(t, pod)
		for i := range c.sites {
			other := &c.sites[i]
			if !mayShare(s, other, m.key) {
				continue
			}
			pods := other.added
			if !addedOnly {
				pods = slices.Concat(other.pods, other.added)
			}
			for _, p := range pods {
				if p != pod && m.matches(p) {
					c.fault("%s: %s may not share a %s with %s", s.name, pod.Name, m.key, p.Name)
					return
				}
			}
		}
	}
}

// hasAll reports whether the node has the keys of all required constraints; else none of them counts it.
func (s *site) hasAll(constraints []corev1.TopologySpreadConstraint) bool {
	return !slices.ContainsFunc(constraints, func(x corev1.TopologySpreadConstraint) bool {
		return x.WhenUnsatisfiable == corev1.DoNotSchedule && slices.ContainsFunc(s.labels, func(l map[string]string) bool { _, ok := l[x.TopologyKey]; return !ok })
	})
}

func (c *checker) skew(pod *corev1.Pod, constraint corev1.TopologySpreadConstraint) {
	m := matcher{constraint.TopologyKey, []string{pod.Namespace}, selectorOf(constraint.LabelSelector, constraint.MatchLabelKeys, nil, pod)}
	if !m.matches(pod) || m.selector.Empty() { // the scheduler counts nothing for a selector of all pods
		return
	}
	counts, touched := map[string]int{}, map[string]bool{}
	for i := range c.sites {
		s := &c.sites[i]
		if !s.hasAll(pod.Spec.TopologySpreadConstraints) {
			continue
		}
		for _, p := range s.added {
			if m.matches(p) && (p.Spec.Affinity != nil || p.Spec.NodeSelector != nil) {
				return // tied to some of the domains
			}
			if m.matches(p) && !slices.ContainsFunc(p.Spec.TopologySpreadConstraints, func(x corev1.TopologySpreadConstraint) bool {
				return x.String() == constraint.String()
			}) {
				return // pods without the constraint may come later and tilt it
			}
		}
		domain, ok := s.at(m.key)
		if !ok {
			if slices.ContainsFunc(s.added, m.matches) {
				c.fault("%s: %s is open, and pods are spread by it", s.name, m.key)
			}
			continue
		}
		if !s.fresh { // a domain that the plan opens for others may have been opened later
			counts[domain] += 0
		}
		for _, p := range slices.Concat(s.pods, s.added) {
			if m.matches(p) && p.DeletionTimestamp == nil {
				counts[domain]++
			}
		}
		touched[domain] = touched[domain] || slices.ContainsFunc(s.added, m.matches)
	}
	least := -1
	for _, n := range counts {
		if least < 0 || n < least {
			least = n
		}
	}
	if m.key == corev1.LabelHostname || constraint.MinDomains != nil && len(counts) < int(*constraint.MinDomains) {
		least = 0
	}
	for domain := range touched {
		if touched[domain] && counts[domain]-least > int(constraint.MaxSkew) {
			c.fault("%d pods in %s %s, %d in the emptiest, maxSkew is %d", counts[domain], m.key, domain, least, constraint.MaxSkew)
		}
	}
}
