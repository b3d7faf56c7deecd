package solver

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
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
	r := recastFor(ctx, p)
	return r.restore(solveAs(ctx, r.problem, r.fit(fit)))
}

// solveAs plans with the pods' preferences as they stand.
func solveAs(ctx context.Context, p Problem, fit Fit) Plan {
	g, learned := newGround(p), newLessons()
	for round := 0; ; round++ {
		best := g.best(ctx, learned)
		if fit == nil {
			return best.plan
		}
		lessons := learned.size()
		if err := best.confirm(ctx, fit); err != nil {
			return unconfirmed(best.plan, err)
		}
		// After the last round the refused pods stay out: nothing unconfirmed leaves.
		if learned.size() == lessons || round == maxRounds || ctx.Err() != nil {
			best.plan.Disagreements = learned.disagreements()
			return best.plan
		}
	}
}

// maxRounds bounds how often a plan is made again because the filters refused a part of it.
const maxRounds = 5

// solve is the working state of one attempt.
type solve struct {
	*ground
	how      strategy
	lessons  *lessons
	refusals map[string]string // by class key, what the filters said in earlier rounds
	nodes    []*nodePlace
	opened   []*openClaim
	live     []*openClaim // those that are not known to be full
	classes  []*class
	plain    []*class // those without rules between pods, in order
	topology *topology
	steps    []step
	unfit    []Unfit
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
		claim.Requests = s.attaches.strip(claim.Requests)
		plan.Claims, types = append(plan.Claims, claim), append(types, list)
	}
	return plan, types
}

// wish is a preference for where in a topology the next pod goes.
type wish struct {
	group   *group
	fullest bool // near the pods that match, rather than away from them
}

// wishesOf returns what the class would like of domains other than hosts: ScheduleAnyway spreads,
// preferred pod anti-affinity and affinity, the heaviest first.
func (t *topology) wishesOf(c *class) []wish {
	var out []wish
	for _, s := range c.pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.ScheduleAnyway && s.TopologyKey != hostKey {
			who := newMatcher(map[string]bool{c.pod.Namespace: true}, selectorOf(s.LabelSelector, s.MatchLabelKeys, nil, c.pod))
			out = append(out, wish{group: t.groupOf(requirement.NormalizeKey(s.TopologyKey), []matcher{who}, nil)})
		}
	}
	affinity := c.pod.Spec.Affinity
	if affinity == nil {
		return out
	}
	add := func(terms []corev1.WeightedPodAffinityTerm, fullest bool) {
		none := 0
		for _, w := range heaviest(&none, terms, func(w corev1.WeightedPodAffinityTerm) int32 { return w.Weight }) {
			if key := requirement.NormalizeKey(w.PodAffinityTerm.TopologyKey); key != hostKey {
				out = append(out, wish{t.groupOf(key, []matcher{t.matcherOf(w.PodAffinityTerm, c.pod)}, nil), fullest})
			}
		}
	}
	if affinity.PodAntiAffinity != nil {
		add(affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, false)
	}
	if affinity.PodAffinity != nil {
		add(affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, true)
	}
	return out
}
