package solver

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/resources"
)

type resourceName = corev1.ResourceName

const (
	hostKey       = corev1.LabelHostname
	nodesResource = karpv1.ResourceNodes
)

// Solve plans where the pods go. It is deterministic, and does not depend on the order of Problem.Pods.
// ctx only bounds the effort: when it ends, what is decided so far is returned and the other pods are
// Unfit. fit may be nil, in which case placements are not confirmed.
func Solve(ctx context.Context, p Problem, fit Fit) Plan {
	learned := newLessons()
	for round := 0; ; round++ {
		s, plan, types := cheapestOf(ctx, p, learned)
		if fit == nil {
			return plan
		}
		lessons := learned.size()
		if err := s.confirm(ctx, fit, &plan, types); err != nil {
			return unconfirmed(plan, err)
		}
		// After the last round the refused pods stay out: nothing unconfirmed leaves.
		if learned.size() == lessons || round == maxRounds || ctx.Err() != nil {
			plan.Disagreements = learned.disagreements()
			return plan
		}
	}
}

// cheapestOf plans with and without look-ahead, as long as that is quick, and keeps the better plan: the
// one that leaves fewer pods out, else the one that costs less.
func cheapestOf(ctx context.Context, p Problem, learned *lessons) (*solve, Plan, [][]priced) {
	s := newSolve(p, learned)
	s.run(ctx)
	plan, types := s.plan()
	if len(p.Pods) > maxPodsToCompare || len(s.plain) < 2 || len(plan.Claims) == 0 {
		return s, plan, types
	}
	other := newSolve(p, learned)
	other.alone = true
	other.run(ctx)
	otherPlan, otherTypes := other.plan()
	if fewer := len(otherPlan.Unfit) - len(plan.Unfit); fewer < 0 || fewer == 0 && otherPlan.cost(p.NodeCost) < plan.cost(p.NodeCost) {
		return other, otherPlan, otherTypes
	}
	return s, plan, types
}

// maxPodsToCompare is how many pods are planned twice at most.
const maxPodsToCompare = 5000

// cost is what the claims cost in an hour, by their cheapest offerings.
func (p Plan) cost(perNode float64) float64 {
	sum := 0.0
	for _, c := range p.Claims {
		sum += c.Cheapest.Price + perNode
	}
	return sum
}

// maxRounds bounds how often a plan is made again because the filters refused a part of it.
const maxRounds = 5

// solve is the working state of one round.
type solve struct {
	problem  Problem
	lessons  *lessons
	refusals map[string]string // by class key, what the filters said in earlier rounds
	pools    []*pool
	nodes    []*nodePlace
	opened   []*openClaim
	classes  []*class
	plain    []*class // those without rules between pods, in order
	alone    bool     // choose types without look-ahead to other classes
	topology *topology
	steps    []step
	unfit    []Unfit
	// average is the mean request of all pods, to compare machines by.
	average resources.Vector
}

func newSolve(p Problem, learned *lessons) *solve {
	s := &solve{problem: p, lessons: learned, refusals: learned.texts(), topology: newTopology(p.Snapshot)}
	for _, np := range p.Pools {
		s.pools = append(s.pools, prepare(np, p.Snapshot.Daemons, p.Snapshot.PoolUsage[np.NodePool.Name]))
	}
	sortPools(s.pools)
	for _, site := range s.topology.sites {
		if !site.node.Deleting {
			s.nodes = append(s.nodes, newNodePlace(site, p.Snapshot.Daemons))
		}
	}
	s.classes = classify(p.Pods)
	for _, c := range s.classes {
		c.rules = s.topology.rulesOf(c)
		c.soft = s.topology.softOf(c)
	}
	for _, c := range s.classes {
		s.topology.link(c)
	}
	for i, c := range s.classes {
		s.topology.linkRepulsions(c)
		c.order, c.mostPerNode = i, perNode(c)
		s.average = s.average.Add(c.requests.Scale(int64(len(c.pods))))
	}
	prices := map[string]float64{}
	for _, c := range s.classes {
		c.unitPrice = s.unitPrice(c, prices)
		if len(c.rules) == 0 && len(c.ports) == 0 && c.unitPrice > 0 && c.mostPerNode > 1 {
			s.plain = append(s.plain, c)
		}
	}
	return s
}

// run places every class. Classes with rules that found no place try again as long as others move: their
// affinity may have been waiting for them.
func (s *solve) run(ctx context.Context) {
	waiting := s.classes
	for len(waiting) > 0 {
		var failed []*class
		var reasons [][]PoolReason
		moved := false
		for _, c := range waiting {
			before := c.left()
			if why := s.placeClass(ctx, c); why != nil {
				failed, reasons = append(failed, c), append(reasons, why)
			}
			moved = moved || c.left() < before
		}
		again := failed[:0:0]
		for i, c := range failed {
			if moved && len(c.rules) > 0 && ctx.Err() == nil {
				again = append(again, c)
				continue
			}
			s.giveUp(c, reasons[i])
		}
		waiting = again
	}
}

// placeClass finds a place for every pod of the class: running and coming nodes first, then claims that
// are open already, then new ones. It returns why the pods that are left fit nowhere, nil when none is.
func (s *solve) placeClass(ctx context.Context, c *class) []PoolReason {
	w := s.newWalk(c)
	for c.left() > 0 {
		if ctx.Err() != nil {
			return outOfTime()
		}
		d := s.domains(c, w)
		whole := c.mustShareHost()
		if s.onNode(c, w, d, whole) || s.onOpenClaim(c, w, d, whole) {
			continue
		}
		reasons := s.onNewClaim(c, w, d)
		if reasons == nil {
			continue
		}
		if whole && (s.onNode(c, w, d, false) || s.onOpenClaim(c, w, d, false)) {
			continue
		}
		return reasons
	}
	return nil
}

func outOfTime() []PoolReason {
	return []PoolReason{{Reason: "planning ran out of time; the pod is planned again soon"}}
}

// giveUp records why the rest of the class fits nowhere.
func (s *solve) giveUp(c *class, reasons []PoolReason) {
	for _, pod := range c.pods[c.next:] {
		s.unfit = append(s.unfit, Unfit{Pod: pod, Reasons: reasons})
	}
	c.next = len(c.pods)
}

// unitPrice is the least that one pod of the class must cost: its dominant share of the machine, over
// all machines that can take it. 0 when none can.
func (s *solve) unitPrice(c *class, known map[string]float64) float64 {
	id := c.requests.String()
	for _, t := range c.terms {
		id += "\x00" + t.key
	}
	id += fmt.Sprint(c.pod.Spec.Tolerations)
	if price, ok := known[id]; ok {
		return price
	}
	least := math.Inf(1)
	for _, p := range s.pools {
		for _, sh := range s.shapesOf(c, p) {
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
	known[id] = least
	return least
}

// plan renders the decisions. types has, for each claim, its types with their offerings.
func (s *solve) plan() (plan Plan, types [][]priced) {
	plan = Plan{Generation: s.problem.Snapshot.Generation, Unfit: s.unfit}
	for _, st := range s.steps {
		if st.node == nil {
			continue
		}
		for _, pod := range st.pods {
			plan.Existing = append(plan.Existing, Placement{Pod: pod, Node: st.node.node})
		}
	}
	maxTypes := cmp.Or(s.problem.MaxTypes, 60)
	for _, o := range s.opened {
		claim, list := o.finish(maxTypes)
		plan.Claims, types = append(plan.Claims, claim), append(types, list)
	}
	return plan, types
}

// softOf returns the counts behind the wishes of the class to be spread: ScheduleAnyway constraints and
// preferred pod anti-affinity by zone.
func (t *topology) softOf(c *class) []*group {
	var out []*group
	for _, s := range c.pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.ScheduleAnyway && s.TopologyKey != hostKey {
			who := newMatcher(map[string]bool{c.pod.Namespace: true}, selectorOf(s.LabelSelector, s.MatchLabelKeys, nil, c.pod))
			out = append(out, t.groupOf(s.TopologyKey, []matcher{who}, nil))
		}
	}
	return slices.Clip(out)
}
