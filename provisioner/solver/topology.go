package solver

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// ruleKind says what a rule demands of a domain.
type ruleKind int

const (
	spreadRule   ruleKind = iota // counts may differ by maxSkew
	affinityRule                 // the domain must hold a matching pod
	antiRule                     // the domain must hold none
)

// rule is one required topology constraint of a class.
type rule struct {
	kind       ruleKind
	group      *group
	maxSkew    int
	minDomains int
	self       bool // the pods of the class match the rule's own selector
	honorNodes bool // nodeAffinityPolicy: Honor
	honorTaint bool // nodeTaintsPolicy: Honor
}

// group counts the pods that a selector matches, by domain of a topology key.
type group struct {
	key        string
	namespaces map[string]bool // nil means all
	selector   labels.Selector
	counts     map[string]int
}

func (g *group) matches(pod *corev1.Pod) bool {
	return (g.namespaces == nil || g.namespaces[pod.Namespace]) && g.selector.Matches(labels.Set(pod.Labels))
}

// repulsion is a required anti-affinity term of pods that are placed: it keeps matching pods away from
// their domains.
type repulsion struct {
	group   *group         // whom it repels; its counts are not used
	domains map[string]int // where pods that carry the term are
}

// topology keeps every count that placements depend on.
type topology struct {
	namespaces map[string]map[string]string
	groups     map[string]*group
	repels     map[string]*repulsion
	// placed are the pods that are bound or promised, with the labels of their nodes; groups that are
	// asked for later count over them.
	placed []located
}

type located struct {
	pod    *corev1.Pod
	domain func(key string) (string, bool)
}

func newTopology(snapshot *cluster.Snapshot) *topology {
	t := &topology{namespaces: snapshot.NamespaceLabels, groups: map[string]*group{}, repels: map[string]*repulsion{}}
	for _, node := range snapshot.Nodes {
		domain := domainOf(node)
		for _, pods := range [][]*corev1.Pod{node.Pods, node.Promised} {
			for _, pod := range pods {
				if pod.DeletionTimestamp != nil {
					continue
				}
				t.placed = append(t.placed, located{pod, domain})
			}
		}
	}
	for _, l := range t.placed {
		t.addRepulsions(l)
	}
	return t
}

// domainOf tells the domain of a node for any key; the host name falls back to the node's name.
func domainOf(node *cluster.Node) func(key string) (string, bool) {
	return func(key string) (string, bool) {
		if value, ok := node.Labels[key]; ok {
			return value, true
		}
		if key == corev1.LabelHostname {
			return node.Key(), true
		}
		return node.Requirements.Get(key).Single()
	}
}

// groupFor returns the shared counts for key, namespaces and selector.
func (t *topology) groupFor(key string, namespaces map[string]bool, selector labels.Selector) *group {
	id := groupID(key, namespaces, selector)
	if g, ok := t.groups[id]; ok {
		return g
	}
	g := &group{key: key, namespaces: namespaces, selector: selector, counts: map[string]int{}}
	for _, l := range t.placed {
		if g.matches(l.pod) {
			if domain, ok := l.domain(key); ok {
				g.counts[domain]++
			}
		}
	}
	t.groups[id] = g
	return g
}

func groupID(key string, namespaces map[string]bool, selector labels.Selector) string {
	id := key + "|" + selector.String() + "|"
	if namespaces == nil {
		return id + "*"
	}
	names := make([]string, 0, len(namespaces))
	for n := range namespaces {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		id += n + ","
	}
	return id
}

// rulesOf reads the required constraints of the class.
func (t *topology) rulesOf(pod *corev1.Pod) []*rule {
	var rules []*rule
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		g := t.groupFor(requirement.NormalizeKey(c.TopologyKey), map[string]bool{pod.Namespace: true}, selectorOf(c.LabelSelector, c.MatchLabelKeys, nil, pod))
		r := &rule{
			kind: spreadRule, group: g, maxSkew: int(c.MaxSkew), self: g.matches(pod),
			honorNodes: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
			honorTaint: c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
		}
		if c.MinDomains != nil {
			r.minDomains = int(*c.MinDomains)
		}
		rules = append(rules, r)
	}
	for _, term := range affinityTerms(pod) {
		g := t.termGroup(term, pod)
		rules = append(rules, &rule{kind: affinityRule, group: g, self: g.matches(pod)})
	}
	for _, term := range antiAffinityTerms(pod) {
		g := t.termGroup(term, pod)
		rules = append(rules, &rule{kind: antiRule, group: g, self: g.matches(pod)})
	}
	return rules
}

func affinityTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func antiAffinityTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func (t *topology) termGroup(term corev1.PodAffinityTerm, pod *corev1.Pod) *group {
	selector := selectorOf(term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys, pod)
	return t.groupFor(requirement.NormalizeKey(term.TopologyKey), t.termNamespaces(term, pod), selector)
}

// termNamespaces is nil for all namespaces.
func (t *topology) termNamespaces(term corev1.PodAffinityTerm, pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, n := range term.Namespaces {
		out[n] = true
	}
	if term.NamespaceSelector != nil {
		if len(term.NamespaceSelector.MatchLabels) == 0 && len(term.NamespaceSelector.MatchExpressions) == 0 {
			return nil
		}
		selector, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
		if err == nil {
			for name, set := range t.namespaces {
				if selector.Matches(labels.Set(set)) {
					out[name] = true
				}
			}
		}
		return out
	}
	if len(out) == 0 {
		out[pod.Namespace] = true
	}
	return out
}

// selectorOf builds the selector; nil and invalid ones match nothing.
func selectorOf(s *metav1.LabelSelector, matchKeys, mismatchKeys []string, pod *corev1.Pod) labels.Selector {
	if s == nil {
		return labels.Nothing()
	}
	merged := s.DeepCopy()
	for op, keys := range map[metav1.LabelSelectorOperator][]string{metav1.LabelSelectorOpIn: matchKeys, metav1.LabelSelectorOpNotIn: mismatchKeys} {
		for _, key := range keys {
			if value, ok := pod.Labels[key]; ok {
				merged.MatchExpressions = append(merged.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
			}
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(merged)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// addRepulsions notes the anti-affinity terms of a pod that is placed.
func (t *topology) addRepulsions(l located) {
	for _, term := range antiAffinityTerms(l.pod) {
		key := requirement.NormalizeKey(term.TopologyKey)
		domain, ok := l.domain(key)
		if !ok {
			continue
		}
		selector := selectorOf(term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys, l.pod)
		namespaces := t.termNamespaces(term, l.pod)
		id := groupID(key, namespaces, selector)
		r := t.repels[id]
		if r == nil {
			r = &repulsion{group: &group{key: key, namespaces: namespaces, selector: selector}, domains: map[string]int{}}
			t.repels[id] = r
		}
		r.domains[domain]++
	}
}

// place counts a pod that was put somewhere in this solve.
func (t *topology) place(pod *corev1.Pod, domain func(key string) (string, bool)) {
	l := located{pod, domain}
	t.placed = append(t.placed, l)
	for _, g := range t.groups {
		if g.matches(pod) {
			if d, ok := domain(g.key); ok {
				g.counts[d]++
			}
		}
	}
	t.addRepulsions(l)
}

// repelledFrom returns the domains by key that existing anti-affinity keeps the pod out of.
func (t *topology) repelledFrom(pod *corev1.Pod) map[string]map[string]bool {
	var out map[string]map[string]bool
	for _, r := range t.repels {
		if !r.group.matches(pod) {
			continue
		}
		if out == nil {
			out = map[string]map[string]bool{}
		}
		if out[r.group.key] == nil {
			out[r.group.key] = map[string]bool{}
		}
		for d := range r.domains {
			out[r.group.key][d] = true
		}
	}
	return out
}

// counted lists the keys, other than the host name, for which some group counts the class's pods: the
// domain of their node must be decided when they are placed.
func (t *topology) counted(c *class) []string {
	var keys []string
	note := func(key string) {
		if key != corev1.LabelHostname && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, g := range t.groups {
		if g.matches(c.pod) {
			note(g.key)
		}
	}
	for _, r := range c.rules {
		note(r.group.key)
	}
	for _, term := range antiAffinityTerms(c.pod) {
		note(requirement.NormalizeKey(term.TopologyKey))
	}
	slices.Sort(keys)
	return keys
}

// allows reports whether one more pod of the class may go into the domain. eligible are the domains in
// which the class could land at all, for the minimum of a spread.
func (r *rule) allows(domain string, eligible []string) bool {
	n := r.group.counts[domain]
	switch r.kind {
	case antiRule:
		return n == 0
	case affinityRule:
		return n > 0 || (r.self && r.group.total() == 0)
	}
	extra := 0
	if r.self {
		extra = 1
	}
	return n+extra-r.least(eligible) <= r.maxSkew
}

// least is the global minimum of a spread: 0 for hosts, since a new one can always be made, and while
// there are fewer domains than minDomains.
func (r *rule) least(eligible []string) int {
	if r.group.key == corev1.LabelHostname || len(eligible) < r.minDomains {
		return 0
	}
	least := math.MaxInt
	for _, d := range eligible {
		least = min(least, r.group.counts[d])
	}
	if least == math.MaxInt {
		return 0
	}
	return least
}

func (g *group) total() int {
	n := 0
	for _, c := range g.counts {
		n += c
	}
	return n
}
