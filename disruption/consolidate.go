package disruption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/candidate"
	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

const (
	// forgetNothing is how long "there is nothing to consolidate" holds while the cluster does not change.
	forgetNothing = 5 * time.Minute
	// maxTogether bounds the nodes of one consolidation.
	maxTogether = 100
)

// lastLook is what consolidation found when it last looked at everything.
type lastLook struct {
	at         time.Time
	generation uint64
	nothing    bool
}

// consolidate looks for nodes whose pods would be cheaper elsewhere: many at once first, then one by one.
// It starts at most one exchange in a round.
func (c *Controller) consolidate(ctx context.Context, v *view) {
	last := c.lastConsolidation
	switch {
	case c.Planner == nil, c.Price == nil, v.now.Sub(last.at) < c.options.ConsolidationInterval:
		return
	case last.nothing && last.generation == v.snapshot.Generation && v.now.Sub(last.at) < forgetNothing:
		return
	}
	started := time.Now()
	limits, err := c.limits()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Nothing is consolidated in this round")
		return
	}
	world := c.Planner.World(ctx)
	s := &search{Controller: c, ctx: ctx, v: v, world: world, terms: method.Terms{Price: c.Price, NodeCost: c.options.NodeCost, SpotToSpot: c.options.SpotToSpot}}
	nodes, limited := s.eligible(limits)
	s.scales = scalesOf(v, c.Price)
	found := len(nodes) > 0 && s.run(nodes)
	c.lastConsolidation = lastLook{at: c.Clock.Now(), generation: v.snapshot.Generation, nothing: !found && !limited && !s.cut}
	c.metrics.searched.WithLabelValues("underutilized", "").Observe(time.Since(started).Seconds())
}

// search is one look for something to consolidate.
type search struct {
	*Controller
	ctx    context.Context //nolint:containedctx // lives as long as one look
	v      *view
	world  World
	terms  method.Terms
	scales map[string]method.Scale
	began  time.Time
	cut    bool // it ran out of time
	// remaining is how many nodes of each pool may still go.
	remaining map[string]int
}

// eligible returns the nodes that may be consolidated, in the order in which they are tried and within
// the budgets; limited says that budgets kept some out.
func (s *search) eligible(limits *candidate.Limits) (nodes []*cluster.Node, limited bool) {
	for _, node := range s.v.nodes {
		pool := s.v.pools[node.Pool]
		if pool == nil || pool.Spec.Replicas != nil || pool.Spec.Disruption.ConsolidationPolicy == karpv1.WhenEmpty || !s.mayTry(node, s.v.now) {
			continue
		}
		quiet, _ := candidate.IsConsolidatable(node.Claim, pool, s.v.now)
		if !quiet || candidate.IsEmpty(node) || s.Price(node) <= 0 || candidate.Blocked(node, pool, limits, s.v.now) != "" {
			continue
		}
		nodes = append(nodes, node)
	}
	method.BySaving(nodes, s.Price, candidate.MoveCost)
	s.remaining = s.budgetsLeft(s.v, karpv1.DisruptionReasonUnderutilized)
	nodes = slices.DeleteFunc(nodes, func(node *cluster.Node) bool {
		limited = limited || s.remaining[node.Pool] == 0
		return s.remaining[node.Pool] == 0
	})
	return nodes, limited
}

// run tries sets of nodes, then single ones, and starts the first that is worth it.
func (s *search) run(nodes []*cluster.Node) bool {
	s.began = time.Now()
	if together := s.promising(s.withinBudgets(nodes)); len(together) > 1 {
		if n := s.largest(together[:min(len(together), maxTogether)]); n > 1 {
			if s.start(s.ctx, s.proposal(together[:n], "multi")) {
				return true
			}
		}
	}
	for _, node := range s.promising(nodes) {
		if s.late() {
			s.cut = true
			return false
		}
		one := []*cluster.Node{node}
		verdict := s.judge(one, s.world.Without(s.ctx, one, s.shun, false))
		if verdict.Why != "" {
			s.Events.Unconsolidatable(node.Node, verdict.Why)
			s.Events.Unconsolidatable(node.Claim, verdict.Why)
			continue
		}
		if s.start(s.ctx, s.proposal(one, "single")) {
			return true
		}
	}
	return false
}

func (s *search) late() bool {
	return time.Since(s.began) > s.options.ConsolidationTime || s.ctx.Err() != nil
}

func (s *search) proposal(nodes []*cluster.Node, kind string) proposal {
	return proposal{nodes: nodes, reason: karpv1.DisruptionReasonUnderutilized, kind: kind, judge: s.judge, shun: s.shun}
}

// withinBudgets keeps as many nodes of each pool as its budgets let go at once.
func (s *search) withinBudgets(nodes []*cluster.Node) []*cluster.Node {
	left := maps.Clone(s.remaining)
	return slices.DeleteFunc(slices.Clone(nodes), func(node *cluster.Node) bool {
		left[node.Pool]--
		return left[node.Pool] < 0
	})
}

// largest finds how many of the nodes, from the first on, can go together: by halving, as each try costs
// a plan.
func (s *search) largest(nodes []*cluster.Node) int {
	best, low, high := 0, 2, len(nodes)
	for low <= high {
		if s.late() {
			s.cut = true
			break
		}
		n := (low + high + 1) / 2
		if n < 2 {
			break
		}
		if s.judge(nodes[:n], s.world.Without(s.ctx, nodes[:n], s.shun, false)).Why == "" {
			best, low = n, n+1
		} else {
			high = n - 1
		}
	}
	return best
}

// judge is method.Judge with the say of Balanced pools.
func (s *search) judge(nodes []*cluster.Node, plan solver.Plan) method.Verdict {
	verdict := method.Judge(nodes, plan, s.terms)
	if verdict.Why != "" {
		return verdict
	}
	price, trouble, all := map[string]float64{}, map[string]float64{}, 0.0
	for _, node := range nodes {
		price[node.Pool] += s.Price(node)
		trouble[node.Pool] += candidate.MoveCost(node)
		all += s.Price(node)
	}
	for _, name := range slices.Sorted(maps.Keys(price)) {
		pool := s.v.pools[name]
		if pool == nil || pool.Spec.Disruption.ConsolidationPolicy != karpv1.Balanced {
			continue
		}
		share := verdict.Saving * price[name] / all
		if scale := s.scales[name]; !scale.Approves(share, trouble[name]) {
			return method.Verdict{Why: fmt.Sprintf("the Balanced policy of NodePool %q rejects it: score %.2f < threshold 0.50", name, scale.Score(share, trouble[name]))}
		}
	}
	return verdict
}

// scalesOf sums up what each pool costs and what moving all of it would.
func scalesOf(v *view, price func(*cluster.Node) float64) map[string]method.Scale {
	scales := map[string]method.Scale{}
	for _, node := range v.nodes {
		s := scales[node.Pool]
		s.Cost += price(node)
		s.Trouble += candidate.MoveCost(node)
		scales[node.Pool] = s
	}
	return scales
}

// shun keeps pods of consolidated nodes off nodes that are not up yet and off nodes where pods came or
// went within their own consolidateAfter: those are about to change.
func (s *search) shun(node *cluster.Node) bool {
	if node.Claim == nil {
		return !node.Ready
	}
	if !node.Initialized || !node.Ready {
		return true
	}
	pool := s.v.pools[node.Pool]
	if pool == nil || pool.Spec.Disruption.ConsolidateAfter.Duration == nil || *pool.Spec.Disruption.ConsolidateAfter.Duration == 0 {
		return false
	}
	quiet, _ := candidate.IsConsolidatable(node.Claim, pool, s.v.now)
	return !quiet
}

// promising leaves out nodes of which a glance shows that nothing is to be had: their pods fit neither in
// what the other nodes have left nor on a cheaper machine. Rules between pods are not looked at, so what
// stays may still be refused by a plan.
func (s *search) promising(nodes []*cluster.Node) []*cluster.Node {
	var room resources.Vector
	for _, node := range s.world.Snapshot().Nodes {
		if !node.Deleting && !s.shun(node) {
			room = room.Add(free(node).NonNegative())
		}
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(node *cluster.Node) bool {
		load := loadOf(node)
		others := room
		if !s.shun(node) {
			others = room.Sub(free(node).NonNegative())
		}
		return !load.Fits(others) && !s.hasCheaper(node, load)
	})
}

// hasCheaper reports whether some machine of a pool costs less than the node and could hold the load.
func (s *search) hasCheaper(node *cluster.Node, load resources.Vector) bool {
	price := s.Price(node)
	if node.Labels[karpv1.LabelCapacityType] == karpv1.CapacityTypeSpot && !s.options.SpotToSpot {
		return false
	}
	for name := range s.v.pools {
		for _, it := range s.world.Types(name) {
			if !load.Fits(it.Allocatable()) {
				continue
			}
			for _, o := range it.Offerings {
				if o.Available && o.Price < price {
					return true
				}
			}
		}
	}
	return false
}

func loadOf(node *cluster.Node) resources.Vector {
	var sum resources.Vector
	for _, pod := range node.Pods {
		if candidate.IsReschedulable(pod) {
			sum = sum.Add(resources.PodRequests(pod))
		}
	}
	return sum
}

func free(node *cluster.Node) resources.Vector {
	left := node.Allocatable
	for _, pod := range node.Pods {
		left = left.Sub(resources.PodRequests(pod))
	}
	for _, pod := range node.Promised {
		left = left.Sub(resources.PodRequests(pod))
	}
	return left
}
