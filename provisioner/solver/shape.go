package solver

import (
	"cmp"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// shape is what a new node of a pool may still become: requirements, the kinds of offerings and the
// instance types that are left. Shapes are interned, so that equal questions are answered once.
type shape struct {
	pool  *pool
	reqs  requirement.Set
	kinds kindSet
	types bitset // by candidate.index
	// narrower are the shapes that terms made of this one; nil when a term leaves nothing.
	narrower map[string]*shape
	demands  bool // some requirement has minValues
	lowered  bool // to less than the pool asks for
	number   int  // unique within the pool
	// What follows is worked out when it is asked for first.
	frontier []*candidate
	priced   []priced
}

// term is one alternative of what a class demands of nodes, with its signature.
type term struct {
	set requirement.Set
	key string
}

func newTerm(set requirement.Set) term { return term{set, set.Signature()} }

// with narrows the shape by a term; nil when nothing is left.
func (sh *shape) with(t term) *shape {
	if len(t.set) == 0 {
		return sh
	}
	next, known := sh.narrower[t.key]
	if !known {
		next = sh.derive(t.set)
		sh.narrower[t.key] = next
	}
	return next
}

func (sh *shape) derive(demand requirement.Set) *shape {
	if !sh.reqs.Overlaps(demand) {
		return nil
	}
	for key, r := range demand {
		// A custom label that the pool does not define is on none of its nodes.
		if _, defined := sh.reqs[key]; !defined && !requirement.IsWellKnown(key) && !r.AllowsAbsence() {
			return nil
		}
	}
	next := &shape{pool: sh.pool, reqs: sh.reqs.Clone(), kinds: sh.kinds, types: sh.types.clone(), narrower: map[string]*shape{}, demands: sh.demands, lowered: sh.lowered}
	next.reqs.Merge(demand)
	for key := range demand {
		r := next.reqs[key]
		if requirement.IsWellKnown(key) {
			next.types.and(sh.pool.typesWith(r))
		}
		for i, kind := range sh.pool.kinds {
			if have, ok := kind[key]; ok && !have.Meets(r) {
				next.kinds.remove(i)
			}
		}
	}
	for i := range next.types.all() {
		if sh.pool.candidates[i].best(next.kinds) != nil {
			return sh.pool.intern(next)
		}
	}
	return nil
}

// at narrows the shape to one value of a key.
func (sh *shape) at(key, value string) *shape {
	if have, ok := sh.reqs.Get(key).Single(); ok && have == value {
		return sh
	}
	id := "=" + key + "=" + value
	next, known := sh.narrower[id]
	if !known {
		next = sh.derive(requirement.NewSet(requirement.New(key, corev1.NodeSelectorOpIn, value)))
		sh.narrower[id] = next
	}
	return next
}

// can reports whether the candidate is among what is left, with an offering.
func (sh *shape) can(c *candidate) bool { return sh.types.has(c.index) && c.best(sh.kinds) != nil }

// byPrice returns the candidates that can be had with their cheapest offerings, cheapest first.
func (sh *shape) byPrice() []priced {
	if sh.priced == nil {
		sh.priced = []priced{}
		for i := range sh.types.all() {
			c := sh.pool.candidates[i]
			if o := c.best(sh.kinds); o != nil {
				sh.priced = append(sh.priced, priced{c, o})
			}
		}
		slices.SortFunc(sh.priced, func(a, b priced) int {
			return cmp.Or(cmp.Compare(a.offer.Price, b.offer.Price), cmp.Compare(a.c.index, b.c.index))
		})
	}
	return sh.priced
}

// best returns the candidates that are worth buying: for each of the others there is one of the same
// architecture that has at least as much of everything and costs no more. Sorted by index.
func (sh *shape) best() []*candidate {
	if sh.frontier != nil {
		return sh.frontier
	}
	var kept []*candidate
	arch := func(c *candidate) string { value, _ := c.reqs.Get(corev1.LabelArchStable).Any(0); return value }
	for _, p := range sh.byPrice() {
		c, price := p.c, p.offer.Price
		beaten := slices.ContainsFunc(kept, func(k *candidate) bool {
			return c.free.Within(k.free) && arch(c) == arch(k) && (len(k.ports) == 0 || slices.Equal(k.ports, c.ports))
		})
		if beaten {
			continue
		}
		// One of the same price that came earlier may be the smaller one.
		kept = slices.DeleteFunc(kept, func(k *candidate) bool {
			return k.best(sh.kinds).Price == price && k.free.Within(c.free) && arch(c) == arch(k) && slices.Equal(k.ports, c.ports)
		})
		kept = append(kept, c)
	}
	slices.SortFunc(kept, func(a, b *candidate) int { return cmp.Compare(a.index, b.index) })
	sh.frontier = append([]*candidate{}, kept...)
	return sh.frontier
}

// domain tells the value of a key when it is decided.
func (sh *shape) domain(key string) (string, bool) {
	r, ok := sh.reqs[key]
	if !ok {
		return "", false
	}
	return r.Single()
}

// pinned decides the given keys by the candidate's cheapest offering, so that topology counts are exact.
func (sh *shape) pinned(c *candidate, keys []string) *shape {
	for _, key := range keys {
		if _, decided := sh.domain(key); decided {
			continue
		}
		offer := c.best(sh.kinds)
		if offer == nil {
			return sh
		}
		value, ok := offer.Requirements.Get(key).Single()
		if !ok {
			value, ok = c.reqs.Get(key).Single()
		}
		if r, defined := sh.reqs[key]; !ok && defined && r.IsConcrete() && !requirement.IsWellKnown(key) {
			value, ok = r.Any(0) // which the launch would choose
		}
		if !ok {
			continue
		}
		if next := sh.at(key, value); next != nil {
			sh = next
		}
	}
	return sh
}

// evened decides the keys that the pods have wishes about: the domain that suits best among those that
// cost about as much as the cheapest.
func (sh *shape) evened(c *candidate, wishes []wish) *shape {
	for _, w := range wishes {
		g := w.group
		best := c.best(sh.kinds)
		if _, decided := sh.domain(g.key); decided || best == nil || w.fullest && g.total == 0 {
			continue
		}
		choice, found := "", false
		for _, o := range c.offers {
			value, ok := o.Requirements.Get(g.key).Single()
			if !ok || !sh.kinds.has(o.kind) || o.Price > best.Price*narrowingSlack {
				continue
			}
			if !found || !w.fullest && g.counts[value] < g.counts[choice] || w.fullest && g.counts[value] > g.counts[choice] {
				choice, found = value, true
			}
		}
		if next := sh.at(g.key, choice); found && next != nil {
			sh = next
		}
	}
	return sh
}

// maxKinds bounds the kinds of offerings (zone, capacity type, reservation) of one pool; further ones
// are not bought. Six zones with two capacity types are twelve.
const maxKinds = 256

// kindSet is a set of kinds of offerings.
type kindSet [maxKinds / 64]uint64

func (k *kindSet) add(i int)     { k[i/64] |= 1 << (i % 64) }
func (k *kindSet) remove(i int)  { k[i/64] &^= 1 << (i % 64) }
func (k kindSet) has(i int) bool { return k[i/64]&(1<<(i%64)) != 0 }

// covers reports whether every member of the other set is in this one.
func (k kindSet) covers(o kindSet) bool {
	for i := range k {
		if o[i]&^k[i] != 0 {
			return false
		}
	}
	return true
}

// offer is an available offering of a candidate.
type offer struct {
	*catalog.Offering
	kind int
}

// bitset is a set of small integers of a fixed range.
type bitset []uint64

func newBitset(n int) bitset    { return make(bitset, (n+63)/64) }
func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) clone() bitset  { return append(bitset(nil), b...) }
func (b bitset) and(o bitset) {
	for i := range b {
		b[i] &= o[i]
	}
}

// all yields the members in ascending order.
func (b bitset) all() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for w, word := range b {
			for ; word != 0; word &= word - 1 {
				if !yield(w*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
