package solver

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
)

// walk remembers, while one class is placed, which places have something left for it and what has been
// found out about the pools.
type walk struct {
	class  *class
	nodes  []*nodePlace
	claims []*openClaim
	// eligible is, by topology key, the domains where the class could land.
	eligible map[string][]string
	memo     map[string]*option
}

// newWalk finds the places that are worth a look: those with room for one pod, that admit it.
func (s *solve) newWalk(c *class) *walk {
	w := &walk{class: c, memo: map[string]*option{}}
	admitting := s.admits(c)
	for i, n := range s.nodes {
		if admitting.has(i) && c.requests.Fits(n.free) && !s.deniedNode(c, n) {
			w.nodes = append(w.nodes, n)
		}
	}
	tolerated := map[*pool]bool{}
	for _, p := range s.pools {
		tolerated[p] = untolerated(c.pod, p.Spec.Template.Spec.Taints) == nil
	}
	live := s.live[:0]
	for _, o := range s.live {
		if !s.smallest.Fits(o.free) {
			continue // full for every class
		}
		live = append(live, o)
		if c.requests.Fits(o.free) && tolerated[o.shape.pool] {
			w.claims = append(w.claims, o)
		}
	}
	s.live = live
	return w
}

// domains says, for each key with a rule, where the next pod of a class may go, in order of preference.
type domains struct {
	keys    []string
	allowed map[string][]string
}

// domains works out where the topology rules let the next pod go. Host names are looked at per place.
func (s *solve) domains(c *class, w *walk) domains {
	var d domains
	restrict := func(key string, keep func(domain string, eligible []string) bool) {
		eligible := s.eligible(c, w, key)
		list, seen := d.allowed[key]
		if !seen {
			if d.allowed == nil {
				d.allowed = map[string][]string{}
			}
			list = eligible
			d.keys = append(d.keys, key)
		}
		kept := make([]string, 0, len(list))
		for _, domain := range list {
			if keep(domain, eligible) {
				kept = append(kept, domain)
			}
		}
		d.allowed[key] = kept
	}
	for _, r := range c.rules {
		if r.group.key == corev1.LabelHostname {
			continue
		}
		restrict(r.group.key, r.allows)
		if r.kind == spreadRule {
			counts := r.group.counts
			slices.SortStableFunc(d.allowed[r.group.key], func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
		}
	}
	for _, r := range c.repelledBy {
		if r.key != corev1.LabelHostname {
			restrict(r.key, func(domain string, _ []string) bool { return r.domains[domain] == 0 })
		}
	}
	slices.Sort(d.keys)
	return d
}

// eligible returns the domains of the key in which the class could land: of nodes that admit it, and of
// what its pools can buy. Sorted.
func (s *solve) eligible(c *class, w *walk, key string) []string {
	if list, ok := w.eligible[key]; ok {
		return list
	}
	set := map[string]bool{}
	for _, domain := range s.nodeDomains(c, key) {
		set[domain] = true
	}
	keys := c.spreadKeys()
	for _, p := range s.pools {
		for _, sh := range s.shapesOf(c, p) {
			if slices.ContainsFunc(keys, func(k string) bool { return keyless(shapePlace{sh, newHost}, k) }) {
				continue
			}
			addDomains(set, c, sh, key)
		}
	}
	if w.eligible == nil {
		w.eligible = map[string][]string{}
	}
	w.eligible[key] = slices.Sorted(maps.Keys(set))
	return w.eligible[key]
}

// addDomains adds the values of the key that machines of the shape can have when they hold the class.
func addDomains(set map[string]bool, c *class, sh *shape, key string) {
	var kinds kindSet
	any, byOffers := false, sh.pool.offersDecide(key)
	for i := range sh.types.all() {
		cand := sh.pool.candidates[i]
		if !cand.fits(c.requests, c.ports) || cand.best(sh.kinds) == nil {
			continue
		}
		any = true
		for _, o := range cand.offers {
			kinds.add(o.kind)
		}
		if byOffers && kinds.covers(sh.kinds) {
			break // no further machine can add one
		}
		if r, ok := cand.reqs[key]; ok {
			if _, byOffer := cand.offers[0].Requirements[key]; !byOffer {
				for _, v := range r.Values() {
					if r.IsConcrete() && sh.reqs.Get(key).Has(v) {
						set[v] = true
					}
				}
			}
		}
	}
	for i, kind := range sh.pool.kinds {
		if r, ok := kind[key]; ok && kinds.has(i) && sh.kinds.has(i) {
			for _, v := range r.Values() {
				set[v] = true
			}
		}
	}
	if r, ok := sh.reqs[key]; ok && any && r.IsConcrete() && !sh.pool.offered(key) {
		for _, v := range r.Values() {
			set[v] = true
		}
	}
}

// offersDecide reports whether every offering has a value of the key.
func (p *pool) offersDecide(key string) bool {
	return !slices.ContainsFunc(p.kinds, func(k requirement.Set) bool { r, ok := k[key]; return !ok || !r.IsConcrete() })
}

// offered reports whether the key is decided by types or offerings.
func (p *pool) offered(key string) bool {
	known, ok := p.offers[key]
	if !ok {
		known = slices.ContainsFunc(p.candidates, func(c *candidate) bool { _, ok := c.it.Requirements[key]; return ok }) ||
			slices.ContainsFunc(p.kinds, func(k requirement.Set) bool { _, ok := k[key]; return ok })
		p.offers[key] = known
	}
	return known
}

// shapesOf returns what the pool offers to the class: one shape for each of its terms that leaves
// something. Nothing when the pool's taints keep the class off.
func (s *solve) shapesOf(c *class, p *pool) []*shape {
	if untolerated(c.pod, p.Spec.Template.Spec.Taints) != nil || s.deniedPool(c, p) {
		return nil
	}
	var out []*shape
	for _, t := range c.terms {
		sh := p.base.with(t)
		if sh == nil {
			continue
		}
		if sh = s.withoutDenied(c, sh); sh != nil && !slices.Contains(out, sh) {
			out = append(out, sh)
		}
	}
	return out
}

// inDomains expands the shape by the allowed domains of every key. A key that the shape's nodes do not
// have at all is a fault only for rules that need it, which lets finds out.
func (s *solve) inDomains(sh *shape, d domains) []*shape {
	variants := []*shape{sh}
	for _, key := range d.keys {
		var next []*shape
		for _, v := range variants {
			if value, decided := v.domain(key); decided {
				if slices.Contains(d.allowed[key], value) {
					next = append(next, v)
				}
				continue
			}
			if _, defined := v.reqs[key]; !defined && !v.pool.offered(key) {
				next = append(next, v)
				continue
			}
			for _, domain := range d.allowed[key] {
				if pinned := v.at(key, domain); pinned != nil {
					next = append(next, pinned)
				}
			}
		}
		variants = next
	}
	return variants
}

// lets reports whether the rules let a pod of the class onto the place. open says that keys may still be
// decided later, as on nodes that do not exist yet: then a rule that an undecided key could break refuses.
func (s *solve) lets(c *class, d domains, p place, open bool) bool {
	for _, key := range d.keys {
		value, ok := p.domain(key)
		if !ok {
			if s.demandsKey(c, key) || open && !keyless(p, key) {
				return false
			}
			continue
		}
		if !slices.Contains(d.allowed[key], value) {
			return false
		}
	}
	return !s.hostClosed(c, p)
}

// spreadKeys are the keys that a node must have for the pods of the class to go there and to count there.
func (c *class) spreadKeys() []string {
	var keys []string
	for _, r := range c.rules {
		if r.kind == spreadRule && r.group.key != hostKey {
			keys = append(keys, r.group.key)
		}
	}
	return keys
}

// keyless reports whether nodes of this place will never have the key.
func keyless(p place, key string) bool {
	switch at := p.(type) {
	case shapePlace:
		_, defined := at.reqs[key]
		return !defined && !at.pool.offered(key)
	case *nodePlace:
		_, defined := at.reqs[key]
		return !defined && !undecided(at.node)
	}
	return false
}

// hostClosed reports whether the rules about hosts keep the class off the place. What they close stays
// closed while the class is placed, except for affinity, whose hosts open.
func (s *solve) hostClosed(c *class, p place) bool {
	var host string
	known := false
	name := func() string {
		if !known {
			host, _ = p.domain(corev1.LabelHostname)
			known = true
		}
		return host
	}
	for _, r := range c.rules {
		if r.group.key == corev1.LabelHostname && !r.allows(name(), nil) {
			return true
		}
	}
	for _, r := range c.repelledBy {
		if r.key == corev1.LabelHostname && r.domains[name()] > 0 {
			return true
		}
	}
	return false
}

// demandsKey reports whether a node without the key is no place for the class: spread and affinity
// need it, anti-affinity does not.
func (s *solve) demandsKey(c *class, key string) bool {
	return slices.ContainsFunc(c.rules, func(r *rule) bool { return r.group.key == key && r.kind != antiRule })
}

// batchOf is how many pods of the class may be put on the place in one step: as many as no count keeps
// the next one from. At least one.
func (s *solve) batchOf(c *class, p place) int {
	if len(c.ports) > 0 || c.selfRepelled {
		return 1
	}
	n := c.left()
	for _, r := range c.rules {
		switch {
		case r.kind == affinityRule || !r.self:
			// The counts only grow, or the class does not change them.
		case r.kind == antiRule:
			return 1
		default:
			domain, _ := p.domain(r.group.key)
			var eligible []string
			if r.group.key != corev1.LabelHostname {
				return 1 // the least counts may move with every pod
			}
			n = min(n, r.maxSkew-r.group.counts[domain]+r.least(eligible))
		}
	}
	return max(n, 1)
}

// take removes the next n pods from the class.
func (c *class) take(n int) []*corev1.Pod {
	n = min(n, c.left())
	pods := c.pods[c.next : c.next+n : c.next+n]
	c.next += n
	return pods
}

// mustShareHost reports whether the pods left must all go to one place, because their first one decides
// the host for the others.
func (c *class) mustShareHost() bool {
	return c.left() > 1 && slices.ContainsFunc(c.rules, func(r *rule) bool { return r.group.key == corev1.LabelHostname && r.starts() })
}
