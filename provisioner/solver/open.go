package solver

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// option is a way to open a claim for the next pods of a class.
type option struct {
	pool  *pool
	cand  *candidate
	reqs  requirement.Set
	count int // pods of the class that it takes
	score score
}

// onNewClaim opens a claim for the class in the first pool that works, and fills it. It returns why
// there is none, one reason per pool.
func (s *solve) onNewClaim(c *class, w *walk, d domains) []PoolReason {
	if len(s.pools) == 0 {
		return []PoolReason{{Reason: "no nodepools found"}}
	}
	var reasons []PoolReason
	for _, p := range s.inOrder(c) {
		best, reason := s.bestOption(c, w, p, d)
		if best == nil {
			reasons = append(reasons, PoolReason{Pool: p.Name, Reason: reason})
			continue
		}
		s.open(c, best)
		return nil
	}
	return reasons
}

// inOrder puts pools that the pod would rather avoid (PreferNoSchedule) behind the others.
func (s *solve) inOrder(c *class) []*pool {
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

// bestOption weighs every type of the pool; when none works it says what stood in the way.
func (s *solve) bestOption(c *class, w *walk, p *pool, d domains) (*option, string) {
	if t := untolerated(c.pod, p.Spec.Template.Spec.Taints); t != nil {
		return nil, fmt.Sprintf("taint %s is not tolerated", t.ToString())
	}
	if err := s.poolAgrees(c, p); err != nil {
		return nil, err.Error()
	}
	if slices.Contains(p.limits, "nodes") && p.remaining.Get("nodes") < 1 {
		return nil, "node limits have been exhausted for nodepool"
	}
	var options []*option
	diag := newDiagnosis(c, p)
	rest := s.companions(c, p)
	for _, cand := range p.candidates {
		option, fault := s.weigh(c, w, p, cand, d, rest)
		if option == nil {
			diag.note(cand, fault)
			continue
		}
		options = append(options, option)
	}
	if len(options) == 0 {
		return nil, diag.String()
	}
	best := choose(c, options)
	if short := s.shortOfFlexibility(c, p, best); short != "" {
		return nil, short
	}
	return best, ""
}

// choose takes the best score. A preference of the pods wins over price among machines that take at
// least as many of them, so that it guides what is bought and never adds a node.
func choose(c *class, options []*option) *option {
	bestOf := func(options []*option) *option {
		best := options[0]
		for _, o := range options[1:] {
			if o.score.better(best.score) {
				best = o
			}
		}
		return best
	}
	best := bestOf(options)
	for _, term := range c.preferred {
		liked := slices.DeleteFunc(slices.Clone(options), func(o *option) bool {
			return o.count < best.count || narrow(o.cand, o.reqs, term) == nil
		})
		if len(liked) > 0 {
			options = liked
			best = bestOf(liked)
		}
	}
	return best
}

// poolAgrees reports labels that no type can make up for: custom keys that the pool does not define.
func (s *solve) poolAgrees(c *class, p *pool) error {
	var first error
	for _, term := range c.terms {
		err := p.base.Compatible(term, requirement.IsWellKnown)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		return fmt.Errorf("the pod's node affinity matches no node")
	}
	return first
}

// fault is the first thing that keeps a class off a candidate.
type fault int

const (
	noFault fault = iota
	wrongLabels
	noRoom
	noOffer
	portTaken
	overLimits
	wrongDomain
	refused
)

// weigh tries one type: the domains that the rules allow, the pods that fit, and what else would go on
// the same machine.
func (s *solve) weigh(c *class, w *walk, p *pool, cand *candidate, d domains, rest []*class) (*option, fault) {
	switch {
	case len(p.over(cand.it.Capacity)) > 0:
		return nil, overLimits
	case portsConflict(cand.ports, c.ports):
		return nil, portTaken
	case !slices.ContainsFunc(c.terms, func(term requirement.Set) bool {
		return p.base.Intersects(term) == nil && cand.reqs.Compatible(term, nil) == nil
	}):
		return nil, wrongLabels
	}
	times := c.requests.Times(cand.free)
	if times < 1 {
		return nil, noRoom
	}
	variants := s.placements(c, cand, p.base, d)
	if len(variants) == 0 {
		if len(d.keys) > 0 && len(s.placements(c, cand, p.base, domains{})) > 0 {
			return nil, wrongDomain
		}
		return nil, noOffer
	}
	var best *option
	for _, reqs := range s.preferred(c, cand, variants) {
		probe := &openClaim{id: newHost, pool: p, reqs: reqs, chosen: cand}
		if s.denied(c, probe) {
			continue
		}
		if !s.passes(c, d, probe.domain) {
			continue
		}
		count := s.countFor(c, w, d, int(min(times, math.MaxInt32)))
		_, price := cheapest(cand.it, reqs)
		value := float64(count)*c.unitPrice + s.fillValue(cand, reqs, c, count, rest)
		sc := score{ratio: (price + s.problem.NodeCost) / max(value, math.SmallestNonzeroFloat64), value: value}
		if best == nil || sc.better(best.score) {
			best = &option{pool: p, cand: cand, reqs: reqs, count: count, score: sc}
		}
		if s.ordered(c) {
			break // the first domain is the one that the counts want
		}
	}
	if best == nil {
		if len(variants) > 0 && len(s.forbidden) > 0 {
			return nil, refused
		}
		return nil, wrongDomain
	}
	return best, noFault
}

// newHost is a host name that no node has: a new node is empty.
const newHost = "\x00new"

// ordered reports whether the first allowed domain must be taken before price counts: a spread wants
// its counts level.
func (s *solve) ordered(c *class) bool {
	return slices.ContainsFunc(c.rules, func(r *rule) bool { return r.kind == spreadRule && r.group.key != corev1.LabelHostname })
}

// preferred narrows the variants by the pod's preferred node affinity as far as any are left.
func (s *solve) preferred(c *class, cand *candidate, variants []requirement.Set) []requirement.Set {
	for _, term := range c.preferred {
		var better []requirement.Set
		for _, v := range variants {
			if merged := narrow(cand, v, term); merged != nil {
				better = append(better, merged)
			}
		}
		if len(better) > 0 {
			variants = better
		}
	}
	return variants
}

// countFor is how many pods of the class will end up on a new machine that can hold this many: rules
// cap what one host may take, and a spread leaves only its part to each domain.
func (s *solve) countFor(c *class, w *walk, d domains, times int) int {
	count := min(times, c.left())
	for _, r := range c.rules {
		switch {
		case r.kind == antiRule && r.self:
			count = 1
		case r.kind == spreadRule && r.self && r.group.key == corev1.LabelHostname:
			count = min(count, r.maxSkew)
		case r.kind == spreadRule && r.self:
			n := max(len(s.eligible(c, w, r.group.key)), 1)
			count = min(count, max((c.left()+n-1)/n, 1))
		}
	}
	if len(c.ports) > 0 {
		count = 1
	}
	return max(count, 1)
}

// maxCompanions bounds the look-ahead when a type is chosen.
const maxCompanions = 48

// companions are the classes that may fill up a machine of the pool after the class: those still to be
// placed that have no rules of their own and would open a claim in the same pool.
func (s *solve) companions(c *class, p *pool) []*class {
	var out []*class
	seen := false
	for _, other := range s.classes {
		if other == c {
			seen = true
			continue
		}
		if !seen || other.left() == 0 || len(other.rules) > 0 || len(other.ports) > 0 || other.unitPrice == 0 ||
			untolerated(other.pod, p.Spec.Template.Spec.Taints) != nil || s.poolAgrees(other, p) != nil {
			continue
		}
		if out = append(out, other); len(out) == maxCompanions {
			break
		}
	}
	return out
}

// fillValue is the worth of what would fill the machine up after count pods of the class.
func (s *solve) fillValue(cand *candidate, reqs requirement.Set, c *class, count int, rest []*class) float64 {
	room := cand.free.Sub(c.requests.Scale(int64(count)))
	value := 0.0
	for _, other := range rest {
		n := min(other.requests.Times(room), int64(other.left()))
		if n < 1 || !slices.ContainsFunc(other.terms, func(t requirement.Set) bool {
			return len(t) == 0 || (reqs.Intersects(t) == nil && cand.reqs.Compatible(t, nil) == nil)
		}) {
			continue
		}
		room = room.Sub(other.requests.Scale(n))
		value += float64(n) * other.unitPrice
	}
	return value
}

// open opens the claim and puts the first pods of the class on it; the walk goes on filling it.
func (s *solve) open(c *class, o *option) {
	claim := &openClaim{
		id: fmt.Sprintf("%s-%d", o.pool.Name, len(s.opened)+1), pool: o.pool, reqs: o.reqs, chosen: o.cand,
		candidates: s.alternatives(o),
	}
	count := min(o.count, c.left())
	if len(c.rules) > 0 || len(c.ports) > 0 {
		count = 1 // each pod is counted before the next is placed
	}
	pods := c.take(count)
	claim.add(c, o.reqs, pods)
	for _, pod := range pods {
		s.topology.place(pod, claim.domain)
	}
	s.opened = append(s.opened, claim)
	most := resources.Vector{}
	for _, cand := range claim.candidates {
		most = most.Max(cand.it.Capacity)
	}
	o.pool.remaining = o.pool.remaining.Sub(chargeOf(most))
}

// alternatives are the types that may be launched instead of the chosen one. With limits they are no
// larger in what is limited, so that the limit is charged for what is planned and never overrun.
func (s *solve) alternatives(o *option) []*candidate {
	return slices.DeleteFunc(slices.Clone(o.pool.candidates), func(cand *candidate) bool {
		for _, name := range o.pool.limits {
			if chargeOf(cand.it.Capacity).Get(name) > chargeOf(o.cand.it.Capacity).Get(name) {
				return true
			}
		}
		return false
	})
}

// shortOfFlexibility checks minValues over the types that could take the pods.
func (s *solve) shortOfFlexibility(c *class, p *pool, best *option) string {
	var able []*candidate
	for _, cand := range p.candidates {
		if cand.fits(c.requests, c.ports) && hasOffering(cand.it, best.reqs) && cand.reqs.Compatible(demanded(best.reqs), nil) == nil {
			able = append(able, cand)
		}
	}
	return shortOfValues(best.reqs, able, func(x *candidate) *candidate { return x })
}

// diagnosis collects why no type of a pool can take a class.
type diagnosis struct {
	class  *class
	pool   *pool
	counts map[fault]int
	most   resources.Vector // the greatest free amounts among types with the right labels
	limits map[corev1.ResourceName]bool
}

func newDiagnosis(c *class, p *pool) *diagnosis {
	return &diagnosis{class: c, pool: p, counts: map[fault]int{}, limits: map[corev1.ResourceName]bool{}}
}

func (d *diagnosis) note(cand *candidate, f fault) {
	d.counts[f]++
	if f == noRoom {
		d.most = d.most.Max(cand.free)
	}
	for _, name := range d.pool.over(cand.it.Capacity) {
		d.limits[name] = true
	}
}

// String names the nearest obstacle: what the types that came furthest lack.
func (d *diagnosis) String() string {
	switch {
	case len(d.pool.candidates) == 0:
		return "nodepool requirements filtered out all available instance types"
	case d.counts[refused] > 0:
		return "the scheduler's filters refuse the pod on every node that could be bought"
	case d.counts[wrongDomain] > 0:
		return "topology spread or pod affinity allows no zone or node that could be bought"
	case d.counts[noOffer] > 0:
		return "no instance type that fits has an available offering in the required zone and capacity type"
	case d.counts[portTaken] > 0 && d.counts[noRoom] == 0:
		return "a DaemonSet uses the pod's host port on every instance type"
	case d.counts[noRoom] > 0:
		return d.lacking()
	case d.counts[overLimits] > 0:
		var names []string
		for name := range d.limits {
			names = append(names, string(name))
		}
		slices.Sort(names)
		return fmt.Sprintf("all available instance types exceed limits for nodepool (%s)", strings.Join(names, ", "))
	default:
		return "no instance type has the required labels: " + d.class.termText()
	}
}

// lacking says which resources no type has enough of.
func (d *diagnosis) lacking() string {
	requests := d.class.requests
	names := requests.Exceeds(d.most)
	if len(names) == 0 {
		return "no single instance type has enough of everything: " + requests.String()
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s (the largest allows %s)", requests.Format(name), strings.TrimPrefix(d.most.Format(name), string(name)+" "))
	}
	text := "no instance type has enough resources: " + strings.Join(parts, ", ")
	if requests.MilliCPU >= 1_000_000_000 {
		text += " (CPU request >= 1 Million, m vs M typo?)"
	}
	return text
}

func (c *class) termText() string {
	var parts []string
	for _, term := range c.terms {
		var keys []string
		for _, key := range term.Keys() {
			keys = append(keys, term[key].String())
		}
		parts = append(parts, strings.Join(keys, ", "))
	}
	return strings.Join(parts, " or ")
}
