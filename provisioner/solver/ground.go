package solver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-dev/berth/provisioner/resources"
)

// ground is what all attempts at one problem share: everything that no decision changes.
type ground struct {
	problem Problem
	pools   []*pool
	nodes   []*nodePlace // as they are before the first decision
	classes []*class
	placed  *topology // the counts before the first decision
	// average is the mean request of all pods, to compare machines by.
	average resources.Vector
	// smallest is the least of each resource that any class asks for.
	smallest resources.Vector
	// admitting are the nodes that let classes with the same demands on nodes in.
	admitting map[string]bitset
	// known are the values of a topology key on those nodes, by demand and key.
	known  map[string][]string
	prices map[string]float64
	// attaches treats volumes as an amount that places have room for.
	attaches attachRooms
}

func newGround(p Problem) *ground {
	g := &ground{problem: p, placed: newTopology(p.Snapshot), admitting: map[string]bitset{}, known: map[string][]string{}, prices: map[string]float64{}}
	g.attaches = newAttachRooms(p)
	for _, np := range p.Pools {
		prepared := prepare(np, p.Snapshot.Daemons, p.Snapshot.PoolUsage[np.NodePool.Name])
		for _, c := range prepared.candidates {
			c.free = c.free.Add(g.attaches.of(p.AttachRoom.Types, c.it.Name))
		}
		g.pools = append(g.pools, prepared)
	}
	sortPools(g.pools)
	for _, site := range g.placed.sites {
		if !site.node.Deleting {
			n := newNodePlace(site, p.Snapshot.Daemons)
			n.free = n.free.Add(g.attaches.of(p.AttachRoom.Nodes, site.node.Key()))
			n.index = len(g.nodes)
			g.nodes = append(g.nodes, n)
		}
	}
	g.classes = classify(p)
	for i, c := range g.classes {
		c.order = i
		if i == 0 {
			g.smallest = c.requests
		}
		g.smallest = g.smallest.Min(c.requests)
		g.average = g.average.Add(c.requests.Scale(int64(len(c.pods))))
	}
	for _, c := range g.classes {
		c.rules = g.placed.rulesOf(c)
		c.wishes = g.placed.wishesOf(c)
	}
	for _, c := range g.classes {
		g.placed.link(c)
	}
	for _, c := range g.classes {
		g.placed.linkRepulsions(c)
		c.mostPerNode = perNode(c)
	}
	return g
}

// strategy is one way to choose types.
type strategy struct {
	look  int  // at how many other classes a type is judged, as what would fill it up
	blind bool // the worth of a pod leaves out its demands on nodes
}

// strategiesFor are the ways that are tried for so many pods. Looking far ahead prefers large machines,
// as if nothing else could take the pods that fill them up; not looking at all leaves rests. Which is
// better depends on the mix, so both are tried, and more of them while it costs little.
func strategiesFor(pods, classes int) []strategy {
	switch {
	case classes < 2:
		return []strategy{{}}
	case pods > maxPodsToCompare:
		return []strategy{{}}
	case pods > maxPodsToCompare/50:
		return []strategy{{look: 2}, {}}
	default:
		return []strategy{{look: 2}, {}, {look: 1}, {look: 6}, {look: 2, blind: true}}
	}
}

// start sets up an attempt.
func (g *ground) start(learned *lessons, how strategy) *solve {
	s := &solve{ground: g, how: how, lessons: learned, refusals: learned.texts()}
	for _, p := range g.pools {
		p.remaining = p.limit
	}
	for _, n := range g.nodes {
		s.nodes = append(s.nodes, &nodePlace{nodeSite: n.nodeSite, index: n.index, free: n.free, ports: slices.Clip(n.ports)})
	}
	s.topology, s.classes = g.placed.copyWith(g.classes)
	for _, c := range s.classes {
		c.unitPrice = s.unitPrice(c)
		if len(c.rules) == 0 && len(c.ports) == 0 && c.unitPrice > 0 && c.mostPerNode > 1 {
			s.plain = append(s.plain, c)
		}
	}
	return s
}

// attempt is a plan with the state that it came from; types has the types of each claim with their
// offerings.
type attempt struct {
	*solve
	plan  Plan
	types [][]priced
}

// best plans in several ways, as long as that is quick, and keeps the best plan: the one that leaves the
// fewest pods out, among those the cheapest.
func (g *ground) best(ctx context.Context, learned *lessons) attempt {
	var best attempt
	for _, way := range strategiesFor(len(g.problem.Pods), len(g.classes)) {
		s := g.start(learned, way)
		s.run(ctx)
		plan, types := s.plan()
		if best.solve == nil || plan.betterThan(best.plan, g.problem.NodeCost) {
			best = attempt{s, plan, types}
		}
		if len(plan.Claims) == 0 || ctx.Err() != nil {
			break
		}
	}
	return best
}

// maxPodsToCompare is up to how many pods are planned in several ways.
const maxPodsToCompare = 25_000

func (p Plan) betterThan(o Plan, perNode float64) bool {
	return cmp.Or(cmp.Compare(len(p.Unfit), len(o.Unfit)), cmp.Compare(p.cost(perNode), o.cost(perNode))) < 0
}

// cost is what the claims cost in an hour, by their cheapest offerings.
func (p Plan) cost(perNode float64) float64 {
	sum := 0.0
	for _, c := range p.Claims {
		sum += c.Cheapest.Price + perNode
	}
	return sum
}

// demandKey names what the class demands of nodes.
func (c *class) demandKey() string {
	parts := []string{fmt.Sprint(c.pod.Spec.Tolerations)}
	for _, t := range c.terms {
		parts = append(parts, t.key)
	}
	return strings.Join(parts, "\x00")
}

// admits returns the nodes, by index, whose labels and taints let the class in.
func (g *ground) admits(c *class) bitset {
	id := c.demandKey()
	set, known := g.admitting[id]
	if !known {
		set = newBitset(len(g.nodes))
		for i, n := range g.nodes {
			if n.admits(c) {
				set.add(i)
			}
		}
		g.admitting[id] = set
	}
	return set
}

// nodeDomains returns the values of the key on the nodes that let the class in, sorted.
func (g *ground) nodeDomains(c *class, key string) []string {
	keys := c.spreadKeys()
	id := c.demandKey() + "\x01" + key + "\x01" + strings.Join(keys, "\x00")
	list, known := g.known[id]
	if !known {
		set := map[string]bool{}
		for i := range g.admits(c).all() {
			n := g.nodes[i]
			if domain, ok := n.domain(key); ok && !slices.ContainsFunc(keys, func(k string) bool { return keyless(n, k) }) {
				set[domain] = true
			}
		}
		list = slices.Sorted(maps.Keys(set))
		g.known[id] = list
	}
	return list
}

// unitPrice is the least that one pod of the class must cost: its dominant share of the machine, over
// all machines that can take it. 0 when none can.
func (s *solve) unitPrice(c *class) float64 {
	id := c.requests.String()
	if !s.how.blind {
		id += "\x00" + c.demandKey()
	}
	if price, ok := s.prices[id]; ok {
		return price
	}
	least := math.Inf(1)
	for _, p := range s.pools {
		shapes := []*shape{p.base}
		if !s.how.blind {
			shapes = s.shapesOf(c, p)
		}
		for _, sh := range shapes {
			for i := range sh.types.all() {
				cand := p.candidates[i]
				if best := cand.best(sh.kinds); best != nil && c.requests.Fits(cand.free) {
					least = min(least, (best.Price+s.problem.NodeCost)*c.requests.Share(cand.free))
				}
			}
		}
	}
	if math.IsInf(least, 1) {
		least = 0
	}
	s.prices[id] = least
	return least
}
