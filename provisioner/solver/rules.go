package solver

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
	self       bool // the pods of the class match the rule's own selectors
	// peers are the groups of all affinity rules of the class, itself included: while none counts a pod,
	// the first one may go anywhere.
	peers []*group
}

// rulesOf reads the required constraints of a class.
func (t *topology) rulesOf(c *class) []*rule {
	rules := t.spreadRules(c)
	if terms := affinityTerms(c.pod); len(terms) > 0 {
		// The filter counts only pods that match all terms of the pod, for each term's key.
		who := make([]matcher, len(terms))
		for i, term := range terms {
			who[i] = t.matcherOf(term, c.pod)
		}
		slices.SortFunc(who, func(a, b matcher) int { return strings.Compare(a.id, b.id) })
		var peers []*group
		for _, term := range terms {
			if g := t.groupOf(requirement.NormalizeKey(term.TopologyKey), who, nil); !slices.Contains(peers, g) {
				peers = append(peers, g)
			}
		}
		for _, g := range peers {
			rules = append(rules, &rule{kind: affinityRule, group: g, self: g.matches(c.pod), peers: peers})
		}
	}
	for _, term := range antiAffinityTerms(c.pod) {
		g := t.groupOf(requirement.NormalizeKey(term.TopologyKey), []matcher{t.matcherOf(term, c.pod)}, nil)
		rules = append(rules, &rule{kind: antiRule, group: g, self: g.matches(c.pod)})
	}
	return rules
}

func (t *topology) spreadRules(c *class) []*rule {
	var rules []*rule
	var keys []string
	for _, s := range c.pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.DoNotSchedule {
			keys = append(keys, requirement.NormalizeKey(s.TopologyKey))
		}
	}
	slices.Sort(keys)
	for _, s := range c.pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		selector := selectorOf(s.LabelSelector, s.MatchLabelKeys, nil, c.pod)
		if selector.Empty() {
			selector = labels.Nothing() // the filter counts no pod for a selector that would match all
		}
		who := newMatcher(map[string]bool{c.pod.Namespace: true}, selector)
		g := t.groupOf(requirement.NormalizeKey(s.TopologyKey), []matcher{who}, t.filterOf(c, s, slices.Compact(keys)))
		r := &rule{kind: spreadRule, group: g, maxSkew: int(s.MaxSkew), self: g.matches(c.pod)}
		if s.MinDomains != nil {
			r.minDomains = int(*s.MinDomains)
		}
		rules = append(rules, r)
	}
	return rules
}

// filterOf returns the shared filter of a spread constraint.
func (t *topology) filterOf(c *class, s corev1.TopologySpreadConstraint, keys []string) *nodeFilter {
	f := &nodeFilter{keys: keys, nodes: map[*cluster.Node]bool{}, shapes: map[*shape]verdict{}, id: strings.Join(keys, ",")}
	honors := s.NodeAffinityPolicy == nil || *s.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	if demands := len(c.own) != 1 || len(c.own[0].set) > 0; honors && demands {
		f.terms = append([]term{}, c.own...)
		f.id += "\x03" // no term at all is a demand, too: nothing meets it
		for _, term := range c.own {
			f.id += "\x00" + term.key
		}
	}
	if s.NodeTaintsPolicy != nil && *s.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor {
		f.honors = c.pod
		f.id += fmt.Sprintf("\x02%v", c.pod.Spec.Tolerations)
	}
	if known, ok := t.filters[f.id]; ok {
		return known
	}
	t.filters[f.id] = f
	return f
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

func (t *topology) matcherOf(term corev1.PodAffinityTerm, pod *corev1.Pod) matcher {
	return newMatcher(t.termNamespaces(term, pod), selectorOf(term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys, pod))
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
	add := func(op metav1.LabelSelectorOperator, keys []string) {
		for _, key := range keys {
			if value, ok := pod.Labels[key]; ok {
				merged.MatchExpressions = append(merged.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
			}
		}
	}
	add(metav1.LabelSelectorOpIn, matchKeys)
	add(metav1.LabelSelectorOpNotIn, mismatchKeys)
	selector, err := metav1.LabelSelectorAsSelector(merged)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// allows reports whether one more pod of the class may go into the domain. eligible are the domains in
// which the class could land at all, for the minimum of a spread.
func (r *rule) allows(domain string, eligible []string) bool {
	n := r.group.counts[domain]
	switch r.kind {
	case antiRule:
		return n == 0
	case affinityRule:
		return n > 0 || r.starts()
	default:
		extra := 0
		if r.self {
			extra = 1
		}
		return n+extra-r.least(eligible) <= r.maxSkew
	}
}

// starts reports whether the next pod is the first of its affinity and may go anywhere.
func (r *rule) starts() bool {
	return r.kind == affinityRule && r.self && !slices.ContainsFunc(r.peers, func(g *group) bool { return g.total > 0 })
}

// least is the global minimum of a spread: 0 for hosts, since a new one can always be made, and while
// there are fewer domains than minDomains. Domains are those that exist and those that could be bought.
func (r *rule) least(eligible []string) int {
	if r.group.key == corev1.LabelHostname {
		return 0
	}
	least, domains := math.MaxInt, len(r.group.counts)
	for _, n := range r.group.counts {
		least = min(least, n)
	}
	for _, d := range eligible {
		if n, exists := r.group.counts[d]; !exists {
			domains++
			least = min(least, n)
		}
	}
	if least == math.MaxInt || domains < r.minDomains {
		return 0
	}
	return least
}
