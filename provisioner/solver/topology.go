package solver

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// group counts the pods that match, by domain of a topology key, as the filter plugins count them.
type group struct {
	key string
	// who matches: all of them must.
	who []matcher
	// filter says on which nodes pods count and domains exist; nil means on all that have the key.
	filter *nodeFilter
	counts map[string]int // of spreads: 0 where a domain exists
	total  int
}

func (g *group) matches(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(g.who, func(m matcher) bool { return !m.matches(pod) })
}

// repulsion is a required anti-affinity term of pods that are placed: it keeps matching pods away from
// their domains.
type repulsion struct {
	key     string
	who     matcher
	domains map[string]int // where pods that carry the term are
}

// topology keeps every count that placements depend on.
type topology struct {
	namespaces map[string]map[string]string
	sites      []*nodeSite
	kinds      []podKind // different labels among the pods on the sites
	groups     map[string]*group
	repels     map[string]*repulsion
	filters    map[string]*nodeFilter
	// spreads are the groups with a filter, in the order in which they were made.
	spreads []*group
	// custom are the custom labels among the keys.
	custom        []string
	ordered       []*group
	orderedRepels []*repulsion
}

// nodeSite is a node of the snapshot as topology sees it.
type nodeSite struct {
	node *cluster.Node
	reqs requirement.Set
}

// domain tells the node's value of a key, as far as it is decided; the host name falls back to the
// node's name.
func (n *nodeSite) domain(key string) (string, bool) {
	if value, ok := n.node.Labels[key]; ok {
		return value, true
	}
	if key == corev1.LabelHostname {
		return n.node.Key(), true
	}
	return n.reqs.Get(key).Single()
}

// podKind is the pods on the snapshot's nodes with the same namespace and labels.
type podKind struct {
	pod   *corev1.Pod // one of them
	going bool        // being deleted
	at    []presence
}

type presence struct {
	site  *nodeSite
	count int
}

func newTopology(snapshot *cluster.Snapshot) *topology {
	t := &topology{
		namespaces: snapshot.NamespaceLabels, groups: map[string]*group{}, repels: map[string]*repulsion{}, filters: map[string]*nodeFilter{},
	}
	index := map[string]int{}
	for _, node := range snapshot.Nodes {
		site := &nodeSite{node: node, reqs: node.Requirements}
		t.sites = append(t.sites, site)
		for _, pods := range [][]*corev1.Pod{node.Pods, node.Promised} {
			for _, pod := range pods {
				t.note(pod, site, index)
			}
		}
	}
	return t
}

// note counts a pod that is on a node of the snapshot.
func (t *topology) note(pod *corev1.Pod, site *nodeSite, index map[string]int) {
	id := kindID(pod)
	i, ok := index[id]
	if !ok {
		i = len(t.kinds)
		index[id] = i
		t.kinds = append(t.kinds, podKind{pod: pod, going: pod.DeletionTimestamp != nil})
	}
	kind := &t.kinds[i]
	if last := len(kind.at) - 1; last >= 0 && kind.at[last].site == site {
		kind.at[last].count++
	} else {
		kind.at = append(kind.at, presence{site, 1})
	}
	for _, term := range antiAffinityTerms(pod) {
		if domain, ok := site.domain(requirement.NormalizeKey(term.TopologyKey)); ok {
			t.repulsionOf(term, pod).domains[domain]++
		}
	}
}

func kindID(pod *corev1.Pod) string {
	var b strings.Builder
	b.WriteString(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		b.WriteByte('!')
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		b.WriteByte(0)
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(pod.Labels[key])
	}
	return b.String()
}

// groupOf returns the shared counts of a key, matchers and filter.
func (t *topology) groupOf(key string, who []matcher, filter *nodeFilter) *group {
	var b strings.Builder
	b.WriteString(key)
	for _, m := range who {
		b.WriteString("\x00" + m.id)
	}
	if filter != nil {
		b.WriteString("\x01" + filter.id)
	}
	id := b.String()
	if g, ok := t.groups[id]; ok {
		return g
	}
	g := &group{key: key, who: who, filter: filter, counts: map[string]int{}}
	for i := range t.kinds {
		kind := &t.kinds[i]
		if !g.matches(kind.pod) || (filter != nil && kind.going) {
			continue
		}
		for _, p := range kind.at {
			if domain, ok := p.site.domain(key); ok && (filter == nil || filter.passesNode(p.site.node)) {
				g.counts[domain] += p.count
				g.total += p.count
			}
		}
	}
	if filter != nil {
		for _, site := range t.sites {
			if domain, ok := site.domain(key); ok && filter.passesNode(site.node) {
				g.counts[domain] += 0
			}
		}
		t.spreads = append(t.spreads, g)
	}
	t.groups[id] = g
	return g
}

func (t *topology) repulsionOf(term corev1.PodAffinityTerm, pod *corev1.Pod) *repulsion {
	key, who := requirement.NormalizeKey(term.TopologyKey), t.matcherOf(term, pod)
	id := key + "\x00" + who.id
	r := t.repels[id]
	if r == nil {
		r = &repulsion{key: key, who: who, domains: map[string]int{}}
		t.repels[id] = r
	}
	return r
}

// groupsInOrder returns the groups sorted by their names.
func (t *topology) groupsInOrder() []*group {
	if len(t.ordered) != len(t.groups) {
		t.ordered = t.ordered[:0]
		for _, id := range slices.Sorted(maps.Keys(t.groups)) {
			t.ordered = append(t.ordered, t.groups[id])
		}
	}
	return t.ordered
}

// repelsInOrder does the same for repulsions.
func (t *topology) repelsInOrder() []*repulsion {
	if len(t.orderedRepels) != len(t.repels) {
		t.orderedRepels = t.orderedRepels[:0]
		for _, id := range slices.Sorted(maps.Keys(t.repels)) {
			t.orderedRepels = append(t.orderedRepels, t.repels[id])
		}
	}
	return t.orderedRepels
}

// link finds, once all groups are known, which of them the pods of a class change.
func (t *topology) link(c *class) {
	for _, g := range t.groupsInOrder() {
		if g.matches(c.pod) {
			c.counted = append(c.counted, g)
		}
	}
	for _, term := range antiAffinityTerms(c.pod) {
		if r := t.repulsionOf(term, c.pod); !slices.Contains(c.repels, r) {
			c.repels = append(c.repels, r)
		}
	}
}

// linkRepulsions finds, once all repulsions are known, which of them keep the class away, and which keys
// must be decided where its pods go.
func (t *topology) linkRepulsions(c *class) {
	for _, r := range t.repelsInOrder() {
		if r.who.matches(c.pod) {
			c.repelledBy = append(c.repelledBy, r)
			c.selfRepelled = c.selfRepelled || slices.Contains(c.repels, r)
		}
	}
	note := func(key string) {
		if key != corev1.LabelHostname && !slices.Contains(c.keys, key) {
			c.keys = append(c.keys, key)
		}
		if key != hostKey && !requirement.IsWellKnown(key) && !slices.Contains(t.custom, key) {
			t.custom = append(t.custom, key)
		}
	}
	for _, g := range c.counted {
		note(g.key)
	}
	for _, r := range c.rules {
		note(r.group.key)
	}
	for _, r := range slices.Concat(c.repels, c.repelledBy) {
		note(r.key)
	}
	slices.Sort(c.keys)
}

// place counts n pods of the class that were put on a place.
func (t *topology) place(c *class, n int, p place) {
	for _, g := range c.counted {
		if g.filter != nil && !p.passes(g.filter) {
			continue
		}
		if domain, ok := p.domain(g.key); ok {
			g.counts[domain] += n
			g.total += n
		}
	}
	for _, r := range c.repels {
		if domain, ok := p.domain(r.key); ok {
			r.domains[domain] += n
		}
	}
}

// open makes the domains of a claim known to the spreads that count it. Where the claim leaves the domain
// open, it is the one of the cheapest offering.
func (t *topology) open(o *openClaim) {
	for _, g := range t.spreads {
		verdict := g.filter.ofShape(o.shape)
		if verdict == unsure { // then it is as the cheapest offering has it
			verdict = g.filter.ofShape(o.shape.decided(o.chosen, g.filter.terms))
		}
		if verdict == never {
			continue
		}
		domain, ok := o.domain(g.key)
		if best := o.chosen.best(o.shape.kinds); !ok && best != nil {
			domain, ok = best.Requirements.Get(g.key).Single()
		}
		if r, defined := o.shape.reqs[g.key]; !ok && defined && !requirement.IsWellKnown(g.key) {
			domain, ok = r.Any(0) // the launch makes up a value
		}
		if ok {
			g.counts[domain] += 0
		}
	}
}

// copyWith copies the counts, and the classes that look at them, for one attempt.
func (t *topology) copyWith(classes []*class) (*topology, []*class) {
	out := &topology{namespaces: t.namespaces, sites: t.sites, kinds: t.kinds, filters: t.filters, custom: t.custom,
		groups: make(map[string]*group, len(t.groups)), repels: make(map[string]*repulsion, len(t.repels))}
	groups, repels := make(map[*group]*group, len(t.groups)), make(map[*repulsion]*repulsion, len(t.repels))
	for id, g := range t.groups {
		c := *g
		c.counts = maps.Clone(g.counts)
		groups[g], out.groups[id] = &c, &c
	}
	for id, r := range t.repels {
		c := *r
		c.domains = maps.Clone(r.domains)
		repels[r], out.repels[id] = &c, &c
	}
	out.spreads = translated(t.spreads, groups)
	copies := make([]*class, len(classes))
	for i, c := range classes {
		mine := *c
		mine.counted = translated(c.counted, groups)
		mine.wishes = slices.Clone(c.wishes)
		for j := range mine.wishes {
			mine.wishes[j].group = groups[c.wishes[j].group]
		}
		mine.repels, mine.repelledBy = translated(c.repels, repels), translated(c.repelledBy, repels)
		mine.rules = make([]*rule, len(c.rules))
		for j, r := range c.rules {
			rule := *r
			rule.group, rule.peers = groups[r.group], translated(r.peers, groups)
			mine.rules[j] = &rule
		}
		copies[i] = &mine
	}
	return out, copies
}

func translated[T comparable](list []T, to map[T]T) []T {
	if list == nil {
		return nil
	}
	out := make([]T, len(list))
	for i, x := range list {
		out[i] = to[x]
	}
	return out
}

// place is where pods can be: a node of the snapshot or an open claim.
type place interface {
	domain(key string) (string, bool)
	passes(f *nodeFilter) bool
}

// matcher is a label selector with its namespaces.
type matcher struct {
	id         string
	namespaces map[string]bool // nil means all
	selector   labels.Selector
}

func (m matcher) matches(pod *corev1.Pod) bool {
	return (m.namespaces == nil || m.namespaces[pod.Namespace]) && m.selector.Matches(labels.Set(pod.Labels))
}

func newMatcher(namespaces map[string]bool, selector labels.Selector) matcher {
	id := "*"
	if namespaces != nil {
		id = strings.Join(slices.Sorted(maps.Keys(namespaces)), ",")
	}
	text := selector.String()
	if text == "" && !selector.Empty() {
		text = "!" // matches nothing; one that matches everything has no text either
	}
	return matcher{id: id + "|" + text, namespaces: namespaces, selector: selector}
}

// nodeFilter is what the inclusion policies of a spread and the keys of all spreads of the pod say about
// nodes: where they fail, neither the node's pods nor its domain count.
type nodeFilter struct {
	id     string
	keys   []string
	terms  []term      // nodeAffinityPolicy Honor
	honors *corev1.Pod // nodeTaintsPolicy Honor: whose tolerations count
	nodes  map[*cluster.Node]bool
	shapes map[*shape]verdict
}

func (f *nodeFilter) passesNode(node *cluster.Node) bool {
	passes, known := f.nodes[node]
	if !known {
		passes = f.judge(func(key string) bool {
			_, ok := (&nodeSite{node: node, reqs: node.Requirements}).domain(key)
			return ok
		}, node.Requirements, node.Taints)
		f.nodes[node] = passes
	}
	return passes
}

// verdict says whether a filter lets pods on a new node count.
type verdict int8

const (
	unsure verdict = iota // it depends on which type is launched
	never
	always
)

func (f *nodeFilter) passesShape(sh *shape) bool { return f.ofShape(sh) != never }

// ofShape judges what a new node may still become.
func (f *nodeFilter) ofShape(sh *shape) verdict {
	v, known := f.shapes[sh]
	if !known {
		v = f.judgeShape(sh)
		f.shapes[sh] = v
	}
	return v
}

func (f *nodeFilter) judgeShape(sh *shape) verdict {
	if f.honors != nil && untolerated(f.honors, sh.pool.Spec.Template.Spec.Taints) != nil {
		return never
	}
	for _, key := range f.keys {
		if r, defined := sh.reqs[key]; key != hostKey && (defined && r.IsEmpty() || !defined && !sh.pool.offered(key)) {
			return never
		}
	}
	if f.terms == nil {
		return always
	}
	out := never
	for _, t := range f.terms {
		next := sh.with(t)
		switch {
		case next == nil:
			continue
		case next.kinds == sh.kinds && slices.Equal(next.types, sh.types) && sh.settles(t):
			return always
		}
		out = unsure
	}
	return out
}

// settles reports whether the term says nothing about custom labels that the shape leaves open.
func (sh *shape) settles(t term) bool {
	for key, r := range t.set {
		have, defined := sh.reqs[key]
		if !requirement.IsWellKnown(key) && defined && have.Intersection(r).Signature() != have.Signature() {
			return false
		}
	}
	return true
}

// settled narrows the shape so that every group that counts the class knows whether pods there count.
func (sh *shape) settled(c *candidate, counted []*group) *shape {
	for _, g := range counted {
		if g.filter == nil || g.filter.ofShape(sh) != unsure {
			continue
		}
		sh = sh.decided(c, g.filter.terms)
	}
	return sh
}

// decided narrows the shape to a term that the candidate's cheapest offering satisfies, else to that
// offering's and the candidate's own labels.
func (sh *shape) decided(c *candidate, terms []term) *shape {
	best := c.best(sh.kinds)
	if best == nil {
		return sh
	}
	for _, t := range terms {
		if next := sh.with(t); next != nil && next.can(c) && next.kinds.has(best.kind) {
			return next
		}
	}
	for _, t := range terms {
		for _, key := range t.set.Keys() {
			value, ok := best.Requirements.Get(key).Single()
			if !ok {
				value, ok = c.reqs.Get(key).Single()
			}
			if !ok {
				continue
			}
			if next := sh.at(key, value); next != nil {
				sh = next
			}
		}
	}
	return sh
}

func (f *nodeFilter) judge(has func(key string) bool, labels requirement.Set, taints []corev1.Taint) bool {
	for _, key := range f.keys {
		if key != corev1.LabelHostname && !has(key) {
			return false
		}
	}
	if f.honors != nil && untolerated(f.honors, taints) != nil {
		return false
	}
	return f.terms == nil || compatibleWithAny(labels, f.terms, nil)
}
