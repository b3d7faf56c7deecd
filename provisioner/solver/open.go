package solver

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// option is a way to open a claim for the next pods of a class.
type option struct {
	shape *shape
	cand  *candidate
	count int // pods of the class that it takes
	score score
}

// score weighs a candidate: its price for each unit of work that it would take.
type score struct{ ratio, value float64 }

func (s score) better(o score) bool {
	const tie = 1e-9
	if math.Abs(s.ratio-o.ratio) > tie {
		return s.ratio < o.ratio
	}
	return s.value > o.value+tie
}

// NoPools is the reason of pods when there is no pool to buy from.
const NoPools = "no nodepools found"

// onNewClaim opens a claim for the class in the first pool that works, and fills it. It returns why
// there is none, one reason per pool.
func (s *solve) onNewClaim(c *class, w *walk, d domains) []PoolReason {
	if len(s.pools) == 0 {
		return []PoolReason{{Reason: NoPools}}
	}
	var reasons []PoolReason
	for _, p := range s.inOrder(c) {
		best, reason := s.bestOption(c, w, p, d)
		if best == nil {
			reasons = append(reasons, PoolReason{Pool: p.Name, Reason: reason})
			continue
		}
		s.open(c, w, best)
		return nil
	}
	return reasons
}

// inOrder puts pools that the pod would rather avoid (PreferNoSchedule) behind the others.
func (s *solve) inOrder(c *class) []*pool {
	if !slices.ContainsFunc(s.pools, func(p *pool) bool { return p.avoided(c.pod) }) {
		return s.pools
	}
	pools := slices.Clone(s.pools)
	slices.SortStableFunc(pools, func(a, b *pool) int {
		switch x, y := a.avoided(c.pod), b.avoided(c.pod); {
		case x == y:
			return 0
		case x:
			return 1
		default:
			return -1
		}
	})
	return pools
}

// bestOption weighs the types of the pool; when none works it says what stood in the way.
func (s *solve) bestOption(c *class, w *walk, p *pool, d domains) (*option, string) {
	shapes := s.shapesOf(c, p)
	if reason := s.poolFault(c, p, shapes); reason != "" {
		return nil, reason
	}
	var variants []*shape
	for _, sh := range shapes {
		variants = append(variants, s.inDomains(sh, d)...)
	}
	variants = slices.DeleteFunc(variants, func(v *shape) bool { return !s.lets(c, d, shapePlace{v, newHost}, true) && !s.undecided(c, v) })
	if s.ordered(c) && len(variants) > 1 {
		variants = s.cheapestFirst(c, variants)
	}
	memo := s.memoKey(c, p, variants)
	if known := w.memo[memo]; known != nil && len(p.over(known.cand.it.Capacity)) == 0 && s.lets(c, d, shapePlace{known.shape, newHost}, true) {
		return known, ""
	}
	options := s.weighAll(c, w, p, d, variants)
	if len(options) == 0 {
		return nil, s.diagnose(c, p, shapes, variants)
	}
	best, short := s.chooseFlexible(c, options)
	if best == nil {
		if !s.problem.RelaxMinValues {
			return nil, short
		}
		relaxed := *s.choose(c, options)
		claim := openClaim{allowed: p.alternatives(relaxed.cand), requests: c.requests.Scale(int64(relaxed.count)), ports: c.ports}
		relaxed.shape = relaxed.shape.relaxed(claim.able(relaxed.shape))
		best = &relaxed
	}
	w.memo[memo] = best
	return best, ""
}

// cheapestFirst orders the variants by the counts of the spreads, and by price where those are equal.
func (s *solve) cheapestFirst(c *class, variants []*shape) []*shape {
	type ranked struct {
		shape *shape
		count int
		price float64
	}
	list := make([]ranked, len(variants))
	for i, v := range variants {
		list[i] = ranked{shape: v, price: math.Inf(1)}
		for _, r := range c.rules {
			if domain, ok := v.domain(r.group.key); ok && r.kind == spreadRule {
				list[i].count += r.group.counts[domain]
			}
		}
		for _, p := range v.byPrice() {
			if c.requests.Fits(p.c.free) {
				list[i].price = p.offer.Price
				break
			}
		}
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.price, b.price)) })
	out := make([]*shape, len(list))
	for i := range list {
		out[i] = list[i].shape
	}
	return out
}

// undecided reports whether the shape leaves open a key that the candidate's cheapest offering decides.
func (s *solve) undecided(c *class, sh *shape) bool {
	return slices.ContainsFunc(c.keys, func(key string) bool { _, ok := sh.domain(key); return !ok && sh.pool.offered(key) })
}

// memoKey names the question that bestOption answers. Within one walk only the class's own count and the
// limits change, and where rules let the next pod go; the last two are looked at apart.
func (s *solve) memoKey(c *class, p *pool, variants []*shape) string {
	b := strconv.AppendInt(nil, int64(min(c.left(), c.mostPerNode)), 10)
	b = append(append(b, '|'), p.Name...)
	for _, v := range variants {
		b = strconv.AppendInt(append(b, '|'), int64(v.number), 10)
	}
	return string(b)
}

// weighAll returns the candidates that can take the class, for the first variant that has any when the
// order of variants binds, else for all.
func (s *solve) weighAll(c *class, w *walk, p *pool, d domains, variants []*shape) []*option {
	var options []*option
	rest := s.companions(c, p)
	for _, v := range variants {
		count := s.cap(c, w)
		for _, cand := range s.shortlist(c, v) {
			if option := s.weigh(c, d, v, cand, count, rest); option != nil {
				options = append(options, option)
			}
		}
		if len(options) > 0 && s.ordered(c) {
			break // the first domain is the one that the counts want
		}
	}
	if len(options) > 0 && c.mustShareHost() { // those that take most: what does not fit beside the first pod fits nowhere
		most := slices.MaxFunc(options, func(a, b *option) int { return cmp.Compare(a.count, b.count) })
		options = slices.DeleteFunc(options, func(o *option) bool { return o.count < most.count })
	}
	return options
}

// weigh tries one type: how many pods it takes, and what else would go on the same machine.
func (s *solve) weigh(c *class, d domains, sh *shape, cand *candidate, count int, rest []*class) *option {
	if s.denied(c, cand, sh) {
		return nil
	}
	if len(c.keys)+len(c.wishes) > 0 {
		if sh = sh.evened(cand, c.wishes).pinned(cand, c.keys).settled(cand, c.counted); !s.lets(c, d, shapePlace{sh, newHost}, true) {
			return nil
		}
	}
	count = max(min(count, int(c.requests.Times(cand.free))), 1)
	value := float64(count)*c.unitPrice + s.fillValue(cand, sh, c, count, rest)
	price := cand.best(sh.kinds).Price + s.problem.NodeCost
	return &option{shape: sh, cand: cand, count: count, score: score{ratio: price / max(value, math.SmallestNonzeroFloat64), value: value}}
}

// choose takes the best score. A preference of the pods wins over price among machines that take at
// least as many of them, so that it guides what is bought and never adds a node.
func (s *solve) choose(c *class, options []*option) *option {
	best := bestOf(options)
	for _, t := range c.preferred {
		var liked []*option
		for _, o := range options {
			if sh := o.shape.with(t); o.count >= best.count && sh != nil && sh.can(o.cand) && !s.topology.labels(o.shape, sh) {
				price := o.cand.best(sh.kinds).Price + s.problem.NodeCost
				liked = append(liked, &option{sh, o.cand, o.count, score{price / max(o.score.value, math.SmallestNonzeroFloat64), o.score.value}})
			}
		}
		if len(liked) > 0 {
			options = liked
			best = bestOf(liked)
		}
	}
	return best
}

func bestOf(options []*option) *option {
	best := options[0]
	for _, o := range options[1:] {
		if o.score.better(best.score) {
			best = o
		}
	}
	return best
}

// newHost is a host name that no node has: a new node is empty.
const newHost = "\x00new"

// ordered reports whether the first allowed domain must be taken before price counts: a spread wants
// its counts level.
func (s *solve) ordered(c *class) bool {
	return slices.ContainsFunc(c.rules, func(r *rule) bool { return r.kind == spreadRule && r.group.key != hostKey })
}

// cap is how many pods of the class may end up on one new machine: rules limit what one host may take,
// and a spread leaves only its part to each domain.
func (s *solve) cap(c *class, w *walk) int {
	count := min(c.left(), c.mostPerNode)
	for _, r := range c.rules {
		if r.kind == spreadRule && r.self && r.group.key != hostKey {
			n := max(len(s.eligible(c, w, r.group.key)), 1)
			count = min(count, max((c.left()+n-1)/n, 1))
		}
	}
	return max(count, 1)
}

// perNode is how many pods of the class one host may have at most.
func perNode(c *class) int {
	if len(c.ports) > 0 {
		return 1
	}
	n := math.MaxInt32
	for _, r := range c.rules {
		switch {
		case r.group.key != hostKey || !r.self:
		case r.kind == antiRule:
			n = 1
		case r.kind == spreadRule:
			n = min(n, r.maxSkew)
		}
	}
	for _, r := range c.repels {
		if r.key == hostKey && slices.Contains(c.repelledBy, r) {
			n = 1
		}
	}
	return n
}

// companions are the classes that may fill up a machine of the pool after the class: those still to be
// placed that have no rules of their own and would open a claim in the same pool.
func (s *solve) companions(c *class, p *pool) []*class {
	if s.how.look == 0 {
		return nil
	}
	var out []*class
	for _, other := range s.plain {
		if other.order <= c.order || other.left() == 0 || len(s.shapesOf(other, p)) == 0 {
			continue
		}
		if out = append(out, other); len(out) == s.how.look {
			break
		}
	}
	return out
}

// fillValue is the worth of what would fill the machine up after count pods of the class.
func (s *solve) fillValue(cand *candidate, sh *shape, c *class, count int, rest []*class) float64 {
	if len(rest) == 0 {
		return 0
	}
	room := cand.free.Sub(c.requests.Scale(int64(count)))
	value := 0.0
	for _, other := range rest {
		n := min(other.requests.Times(room), int64(other.left()))
		if n < 1 || !s.joins(other, sh, cand) {
			continue
		}
		room = room.Sub(other.requests.Scale(n))
		value += float64(n) * other.unitPrice
	}
	return value
}

// joins reports whether pods of the class could go on such a machine.
func (s *solve) joins(c *class, sh *shape, cand *candidate) bool {
	return slices.ContainsFunc(c.terms, func(t term) bool {
		next := sh.with(t)
		return next != nil && next.can(cand)
	})
}

// shortlist are the candidates of the shape that can hold the class within limits, without those that
// another one beats in room and price. When there are many and the class will share its machine, only
// those that sell their room cheapest are weighed.
func (s *solve) shortlist(c *class, sh *shape) []*candidate {
	var all []*candidate
	whole := true // nothing but room kept a candidate out, so that what it beats needs no look
	for _, cand := range sh.best() {
		switch {
		case !c.requests.Fits(cand.free):
		case !freeOf(cand.ports, c) || len(sh.pool.over(cand.it.Capacity)) > 0 || s.denied(c, cand, sh):
			whole = false
		default:
			all = append(all, cand)
		}
	}
	if !whole {
		all = all[:0]
		for i := range sh.types.all() {
			cand := sh.pool.candidates[i]
			if c.requests.Fits(cand.free) && freeOf(cand.ports, c) && cand.best(sh.kinds) != nil && len(sh.pool.over(cand.it.Capacity)) == 0 {
				all = append(all, cand)
			}
		}
	}
	if len(all) <= shortlisted {
		return all
	}
	// Two orders: what the class alone would pay, and what the average of all pods would pay.
	alone, shared := make([]float64, len(sh.pool.candidates)), make([]float64, len(sh.pool.candidates))
	count := int64(min(c.left(), c.mostPerNode))
	for _, cand := range all {
		price := cand.best(sh.kinds).Price + s.problem.NodeCost
		alone[cand.index] = price / float64(max(min(count, c.requests.Times(cand.free)), 1))
		shared[cand.index] = price * s.average.Share(cand.free)
	}
	by := func(worth []float64) func(a, b *candidate) int {
		return func(a, b *candidate) int {
			return cmp.Or(cmp.Compare(worth[a.index], worth[b.index]), cmp.Compare(a.index, b.index))
		}
	}
	slices.SortFunc(all, by(alone))
	short := slices.Clone(all[:shortlisted/3])
	slices.SortFunc(all, by(shared))
	for _, cand := range all {
		if len(short) == shortlisted {
			break
		}
		if !slices.Contains(short[:shortlisted/3], cand) {
			short = append(short, cand)
		}
	}
	slices.SortFunc(short, func(a, b *candidate) int { return cmp.Compare(a.index, b.index) })
	return short
}

// shortlisted is how many types are weighed with look-ahead.
const shortlisted = 300

// open opens the claim and puts the first pods of the class on it; the walk goes on filling it.
func (s *solve) open(c *class, w *walk, o *option) {
	p := o.shape.pool
	claim := &openClaim{
		id: fmt.Sprintf("%s-%d", p.Name, len(s.opened)+1), shape: o.shape, chosen: o.cand, free: o.cand.free,
		allowed: p.alternatives(o.cand),
	}
	s.opened, s.live = append(s.opened, claim), append(s.live, claim)
	s.topology.open(claim)
	pods := c.take(min(o.count, s.batchOf(c, claim)))
	claim.add(c, o.shape, pods)
	s.put(c, pods, nil, claim)
	w.claims = append(w.claims, claim)
	for _, name := range p.limits {
		p.remaining = p.remaining.With(name, p.remaining.Get(name)-charge(o.cand.most, name))
	}
}

// alternatives are the types that may be launched instead of the chosen one. With limits they are no
// larger in what is limited, so that the limit is charged for what is planned and never overrun.
func (p *pool) alternatives(chosen *candidate) bitset {
	if chosen.allowed != nil {
		return chosen.allowed
	}
	chosen.allowed = newBitset(len(p.candidates))
	for i, cand := range p.candidates {
		if !slices.ContainsFunc(p.limits, func(name resourceName) bool {
			return charge(cand.it.Capacity, name) > charge(chosen.it.Capacity, name)
		}) {
			chosen.allowed.add(i)
			chosen.most = chosen.most.Max(cand.it.Capacity)
		}
	}
	return chosen.allowed
}

// ableFor are the types of the shape that could take the class.
func (s *solve) ableFor(c *class, sh *shape) []*candidate {
	var out []*candidate
	for i := range sh.types.all() {
		if cand := sh.pool.candidates[i]; cand.fits(c.requests, c.ports) && cand.best(sh.kinds) != nil {
			out = append(out, cand)
		}
	}
	return out
}
