package solver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// Solve plans where the pods go. It is deterministic, and does not depend on the order of Problem.Pods.
// ctx only bounds the effort: when it ends, what is decided so far is returned and the other pods are
// Unfit. fit may be nil, in which case placements are not confirmed.
func Solve(ctx context.Context, p Problem, fit Fit) Plan {
	forbidden := map[denial]Disagreement{}
	for round := 0; ; round++ {
		s := newSolve(p, forbidden)
		s.run(ctx)
		plan := s.plan()
		if fit == nil || ctx.Err() != nil {
			return plan
		}
		refused, err := s.confirm(ctx, fit, &plan)
		if err != nil {
			return unconfirmed(plan, err)
		}
		for _, d := range refused {
			plan.Disagreements = append(plan.Disagreements, d.Disagreement)
			forbidden[d.denial] = d.Disagreement
		}
		// After the last round the refused pods stay out: nothing unconfirmed leaves.
		if len(refused) == 0 || round == maxRounds {
			plan.Disagreements = slices.Collect(maps.Values(forbidden))
			sortDisagreements(plan.Disagreements)
			return plan
		}
	}
}

// maxRounds bounds how often a plan is made again because the filters refused a part of it.
const maxRounds = 5

// denial is a placement that the filters have refused: this class, there.
type denial struct {
	class  string
	target string // node key, or pool/type/zone/capacity type
}

// solve is the working state of one round.
type solve struct {
	problem   Problem
	forbidden map[denial]Disagreement
	pools     []*pool
	nodes     []*nodePlace
	opened    []*openClaim
	classes   []*class
	topology  *topology
	existing  []Placement
	unfit     []Unfit
}

func newSolve(p Problem, forbidden map[denial]Disagreement) *solve {
	s := &solve{problem: p, forbidden: forbidden, topology: newTopology(p.Snapshot)}
	for _, np := range p.Pools {
		s.pools = append(s.pools, prepare(np, p.Snapshot.Daemons, p.Snapshot.PoolUsage[np.NodePool.Name]))
	}
	sortPools(s.pools)
	for _, node := range p.Snapshot.Nodes {
		if !node.Deleting {
			s.nodes = append(s.nodes, newNodePlace(node, p.Snapshot.Daemons))
		}
	}
	s.classes = classify(p.Pods)
	for _, c := range s.classes {
		c.rules = s.topology.rulesOf(c.pod)
	}
	for _, c := range s.classes {
		c.keys = s.topology.counted(c)
		c.unitPrice = s.unitPrice(c)
	}
	return s
}

func (s *solve) run(ctx context.Context) {
	for _, c := range s.classes {
		if ctx.Err() != nil {
			s.giveUp(c, []PoolReason{{Reason: "planning ran out of time; the pod is planned again soon"}})
			continue
		}
		s.placeClass(c)
	}
}

// placeClass finds a place for every pod of the class: running and coming nodes first, then claims that
// are open already, then new ones.
func (s *solve) placeClass(c *class) {
	w := &walk{class: c}
	for _, n := range s.nodes {
		if _, no := s.forbidden[denial{c.key, n.node.Key()}]; !no && n.admits(c) {
			w.nodes = append(w.nodes, n)
		}
	}
	for c.left() > 0 {
		domains := s.domains(c, w)
		if s.onNode(c, w, domains) || s.onOpenClaim(c, w, domains) {
			continue
		}
		reasons := s.onNewClaim(c, w, domains)
		if reasons != nil {
			s.giveUp(c, reasons)
			return
		}
	}
}

// giveUp records why the rest of the class fits nowhere.
func (s *solve) giveUp(c *class, reasons []PoolReason) {
	for _, pod := range c.pods[c.next:] {
		s.unfit = append(s.unfit, Unfit{Pod: pod, Reasons: reasons})
	}
	c.next = len(c.pods)
}

// walk remembers, while one class is placed, which places have nothing left for it.
type walk struct {
	class    *class
	nodes    []*nodePlace
	eligible map[string][]string // topology key to the domains where the class could land
}

// choice of domains for the next pod: for each key with a rule, the allowed ones in order of preference.
type domains struct {
	keys     []string
	allowed  map[string][]string
	repelled map[string]map[string]bool
}

// domains works out where the topology rules let the next pod go.
func (s *solve) domains(c *class, w *walk) domains {
	d := domains{allowed: map[string][]string{}, repelled: s.topology.repelledFrom(c.pod)}
	for _, r := range c.rules {
		key := r.group.key
		if key == corev1.LabelHostname {
			continue
		}
		eligible := s.eligible(c, w, key)
		candidates := eligible
		if have, seen := d.allowed[key]; seen {
			candidates = have
		} else {
			d.keys = append(d.keys, key)
		}
		d.allowed[key] = slices.DeleteFunc(slices.Clone(candidates), func(domain string) bool { return !r.allows(domain, eligible) })
		counts := r.group.counts
		if r.kind == spreadRule {
			slices.SortStableFunc(d.allowed[key], func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
		}
	}
	for key, out := range d.repelled {
		if key == corev1.LabelHostname {
			continue
		}
		if _, seen := d.allowed[key]; !seen {
			d.keys = append(d.keys, key)
			d.allowed[key] = s.eligible(c, w, key)
		}
		d.allowed[key] = slices.DeleteFunc(slices.Clone(d.allowed[key]), func(domain string) bool { return out[domain] })
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
	for _, n := range w.nodes {
		if domain, ok := domainOf(n.node)(key); ok {
			set[domain] = true
		}
	}
	for _, p := range s.pools {
		if untolerated(c.pod, p.Spec.Template.Spec.Taints) != nil {
			continue
		}
		for _, cand := range p.candidates {
			if !cand.fits(c.requests, c.ports) {
				continue
			}
			for _, term := range c.terms {
				if reqs := narrow(cand, p.base, term); reqs != nil {
					addDomains(set, cand, reqs, key)
				}
			}
		}
	}
	if w.eligible == nil {
		w.eligible = map[string][]string{}
	}
	w.eligible[key] = slices.Sorted(maps.Keys(set))
	return w.eligible[key]
}

func addDomains(set map[string]bool, cand *candidate, reqs requirement.Set, key string) {
	decided := false
	for i := range cand.it.Offerings {
		o := &cand.it.Offerings[i]
		if r, ok := o.Requirements[key]; ok {
			decided = true
			if offers(o, reqs) {
				for _, v := range r.Values() {
					set[v] = true
				}
			}
		}
	}
	if r, ok := reqs[key]; !decided && ok && r.IsConcrete() {
		for _, v := range r.Values() {
			set[v] = true
		}
	}
}

// passes reports whether the rules let a pod of the class onto a place whose domains are known.
func (s *solve) passes(c *class, d domains, domain func(string) (string, bool)) bool {
	for _, key := range d.keys {
		value, ok := domain(key)
		if !ok {
			if s.demandsKey(c, key) {
				return false
			}
			continue
		}
		if !slices.Contains(d.allowed[key], value) {
			return false
		}
	}
	for _, r := range c.rules {
		if r.group.key == corev1.LabelHostname {
			if host, ok := domain(corev1.LabelHostname); !ok || !r.allows(host, nil) {
				return false
			}
		}
	}
	if out := d.repelled[corev1.LabelHostname]; out != nil {
		if host, ok := domain(corev1.LabelHostname); ok && out[host] {
			return false
		}
	}
	return true
}

// demandsKey reports whether a node without the key is no place for the class: spread and affinity
// need it, anti-affinity does not.
func (s *solve) demandsKey(c *class, key string) bool {
	return slices.ContainsFunc(c.rules, func(r *rule) bool { return r.group.key == key && r.kind != antiRule })
}

// batchOf is how many pods of the class may be placed in one step: all of them where no count changes
// what the next one may do, else one.
func (s *solve) batchOf(c *class, d domains) int {
	if len(c.rules) > 0 || len(d.repelled) > 0 || len(c.ports) > 0 {
		return 1
	}
	return c.left()
}

// take removes the next n pods from the class.
func (c *class) take(n int) []*corev1.Pod {
	pods := c.pods[c.next : c.next+n]
	c.next += n
	return pods
}

// onNode puts pods on an existing node; false when none can take any.
func (s *solve) onNode(c *class, w *walk, d domains) bool {
	kept := w.nodes[:0:0]
	placed := false
	for i, n := range w.nodes {
		times := c.requests.Times(n.free)
		if times < 1 || portsConflict(n.ports, c.ports) {
			continue // for this class the node is full for good
		}
		kept = append(kept, n)
		if !s.passes(c, d, domainOf(n.node)) {
			continue
		}
		count := min(s.batchOf(c, d), int(min(times, math.MaxInt32)))
		for _, pod := range c.take(count) {
			s.existing = append(s.existing, Placement{Pod: pod, Node: n.node})
			s.topology.place(pod, domainOf(n.node))
		}
		n.take(c, int64(count))
		kept = append(kept, w.nodes[i+1:]...)
		placed = true
		break
	}
	w.nodes = kept
	return placed
}

// onOpenClaim fills what the chosen type of an open claim has left.
func (s *solve) onOpenClaim(c *class, w *walk, d domains) bool {
	for _, o := range s.opened {
		times := c.requests.Times(o.room())
		if times < 1 || portsConflict(o.ports, c.ports) || portsConflict(o.chosen.ports, c.ports) ||
			untolerated(c.pod, o.pool.Spec.Template.Spec.Taints) != nil {
			continue
		}
		for _, reqs := range s.placements(c, o.chosen, o.reqs, d) {
			probe := &openClaim{id: o.id, pool: o.pool, reqs: reqs, chosen: o.chosen}
			if s.denied(c, probe) || !s.passes(c, d, probe.domain) || !s.keepsOthers(o, reqs) {
				continue
			}
			pods := c.take(min(s.batchOf(c, d), int(min(times, math.MaxInt32))))
			o.add(c, reqs, pods)
			for _, pod := range pods {
				s.topology.place(pod, o.domain)
			}
			return true
		}
	}
	return false
}

// keepsOthers reports whether narrowing the claim leaves its price alone: a later pod must not make the
// node dearer than it was planned.
func (s *solve) keepsOthers(o *openClaim, reqs requirement.Set) bool {
	_, before := cheapest(o.chosen.it, o.reqs)
	_, after := cheapest(o.chosen.it, reqs)
	const slack = 1.05 // zones differ by little; a new node would cost far more
	return after <= before*slack && shortOfValues(reqs, o.candidates, func(x *candidate) *candidate { return x }) == ""
}

// placements returns the requirements under which a machine of the candidate could take the class, the
// best first: one for each allowed domain of the rules' keys, with every counted key decided.
func (s *solve) placements(c *class, cand *candidate, reqs requirement.Set, d domains) []requirement.Set {
	var out []requirement.Set
	for _, term := range c.terms {
		merged := narrow(cand, reqs, term)
		if merged == nil {
			continue
		}
		for _, variant := range s.inDomains(cand, merged, d) {
			out = append(out, pin(cand, variant, c.keys))
		}
		if len(out) > 0 {
			return out
		}
	}
	return out
}

// inDomains expands the requirements by the allowed domains of every key.
func (s *solve) inDomains(cand *candidate, reqs requirement.Set, d domains) []requirement.Set {
	variants := []requirement.Set{reqs}
	for _, key := range d.keys {
		var next []requirement.Set
		for _, v := range variants {
			if value, decided := v.Get(key).Single(); decided {
				if slices.Contains(d.allowed[key], value) {
					next = append(next, v)
				}
				continue
			}
			for _, domain := range d.allowed[key] {
				if !v.Get(key).Has(domain) {
					continue
				}
				pinned := v.Clone()
				pinned.Add(requirement.New(key, corev1.NodeSelectorOpIn, domain))
				if hasOffering(cand.it, pinned) {
					next = append(next, pinned)
				}
			}
		}
		variants = next
	}
	return variants
}

// denied reports whether the filters have refused the class on such a machine.
func (s *solve) denied(c *class, o *openClaim) bool {
	if len(s.forbidden) == 0 {
		return false
	}
	_, no := s.forbidden[denial{c.key, targetOf(o)}]
	return no
}

// targetOf names the machine that a claim stands for when the filters are asked.
func targetOf(o *openClaim) string {
	offer, _ := cheapest(o.chosen.it, o.reqs)
	if offer == nil {
		return o.pool.Name + "/" + o.chosen.it.Name
	}
	return fmt.Sprintf("%s/%s/%s/%s", o.pool.Name, o.chosen.it.Name, offer.Zone, offer.CapacityType)
}

// unitPrice is the least that one pod of the class must cost: its dominant share of the machine, over
// all machines that can take it.
func (s *solve) unitPrice(c *class) float64 {
	least := math.Inf(1)
	for _, p := range s.pools {
		for _, cand := range p.candidates {
			times := c.requests.Times(cand.free)
			if times < 1 {
				continue
			}
			if _, price := cheapest(cand.it, p.base); !math.IsInf(price, 1) {
				least = min(least, (price+s.problem.NodeCost)*share(c.requests, cand.free))
			}
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// share is the greatest part of any resource of free that the requests take.
func share(requests, free resources.Vector) float64 {
	most := 0.0
	for _, name := range requests.Names() {
		if have := free.Get(name); have > 0 {
			most = max(most, float64(requests.Get(name))/float64(have))
		}
	}
	return most
}

func (s *solve) plan() Plan {
	plan := Plan{Generation: s.problem.Snapshot.Generation, Existing: s.existing, Unfit: s.unfit}
	maxTypes := cmp.Or(s.problem.MaxTypes, 60)
	for _, o := range s.opened {
		plan.Claims = append(plan.Claims, o.finish(maxTypes))
	}
	return plan
}
