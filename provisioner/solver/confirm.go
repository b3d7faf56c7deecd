package solver

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
)

// confirmation asks the filters about a plan.
type confirmation struct {
	*attempt
	ctx   context.Context
	trial Trial
	named map[*openClaim]string // claims that are in the trial, by node name
	kept  map[*corev1.Pod]bool
	moved []Placement
}

// confirm asks the filters about every placement, in the order in which they were decided, takes the
// refused ones out of the plan and notes what was learned for the next round.
func (s *attempt) confirm(ctx context.Context, fit Fit) error {
	plan := &s.plan
	if len(s.steps) == 0 {
		return nil
	}
	trial, err := fit.Open(ctx, s.problem.Snapshot)
	if err != nil {
		return fmt.Errorf("open a trial of the scheduler's filters: %w", err)
	}
	defer trial.Close()
	c := &confirmation{attempt: s, ctx: ctx, trial: trial, named: map[*openClaim]string{}, kept: map[*corev1.Pod]bool{}}
	for _, st := range s.steps {
		for _, pod := range st.pods {
			if ctx.Err() != nil { // what was confirmed in time stands
				plan.Unfit = append(plan.Unfit, Unfit{Pod: pod, Reasons: outOfTime()})
				continue
			}
			if err := c.ask(st, pod); err != nil && ctx.Err() == nil {
				return fmt.Errorf("ask the filters about pod %s/%s: %w", pod.Namespace, pod.Name, err)
			} else if err != nil {
				plan.Unfit = append(plan.Unfit, Unfit{Pod: pod, Reasons: outOfTime()})
			}
		}
	}
	plan.Existing = append(slices.DeleteFunc(plan.Existing, func(p Placement) bool { return !c.kept[p.Pod] }), c.moved...)
	claims := plan.Claims[:0:0]
	for _, claim := range plan.Claims {
		claim.Pods = slices.DeleteFunc(slices.Clone(claim.Pods), func(p *corev1.Pod) bool { return !c.kept[p] })
		if len(claim.Pods) > 0 {
			claims = append(claims, claim)
		}
	}
	plan.Claims = claims
	return nil
}

// ask places one pod in the trial as the step says, or learns why it cannot be.
func (c *confirmation) ask(st step, pod *corev1.Pod) error {
	target, name := "", ""
	if st.node != nil {
		target = st.node.node.Key()
		name = target
	} else {
		var err error
		if name, err = c.nodeFor(st.claim); err != nil {
			return err
		}
		target = targetOf(st.claim.chosen, st.claim.shape)
	}
	verdict, err := c.trial.Place(c.ctx, pod, name)
	if err != nil {
		return err
	}
	if verdict.Fits() {
		c.kept[pod] = true
		return nil
	}
	c.lessons.refuse(st.class, pod, target, verdict)
	if !countsNeighbours(verdict.Plugin) {
		var placed bool
		if st.node != nil {
			placed, err = c.elsewhere(st, pod)
		} else {
			err = c.probe(st, pod)
		}
		if placed || err != nil {
			return err
		}
	}
	c.plan.Unfit = append(c.plan.Unfit, Unfit{Pod: pod, Reasons: []PoolReason{{Reason: refusalText(target, verdict)}}})
	return nil
}

// countsNeighbours reports whether the plugin's verdict depends on what else is placed, so that it says
// nothing about other places.
func countsNeighbours(plugin string) bool {
	return slices.Contains([]string{"PodTopologySpread", "InterPodAffinity", "NodeResourcesFit", "NodePorts"}, plugin)
}

// nodeFor adds the claim's node to the trial when it is first needed.
func (c *confirmation) nodeFor(o *openClaim) (string, error) {
	if name, ok := c.named[o]; ok {
		return name, nil
	}
	i := slices.Index(c.opened, o)
	node, daemons := o.virtualNode(c.plan.Claims[i], c.types[i])
	if err := c.trial.AddNode(c.ctx, node, daemons); err != nil {
		return "", fmt.Errorf("add planned node %s to the trial: %w", o.id, err)
	}
	c.named[o] = node.Name
	return node.Name, nil
}

// maxElsewhere bounds how many other nodes are tried for a pod that its node refused.
const maxElsewhere = 20

// elsewhere tries the other nodes of the snapshot that the algebra finds good for the pod.
func (c *confirmation) elsewhere(st step, pod *corev1.Pod) (placed bool, err error) {
	tried := 0
	for _, n := range c.nodes {
		if n == st.node || tried == maxElsewhere || !st.class.requests.Fits(n.free) || !n.admits(st.class) || c.deniedNode(st.class, n) {
			continue
		}
		tried++
		verdict, err := c.trial.Place(c.ctx, pod, n.node.Key())
		if err != nil {
			return false, err
		}
		if verdict.Fits() {
			n.free = n.free.Sub(st.class.requests)
			c.moved = append(c.moved, Placement{Pod: pod, Node: n.node})
			return true, nil
		}
		c.lessons.refuse(st.class, pod, n.node.Key(), verdict)
	}
	return false, nil
}

// probe asks about the pod on a new node of the same pool in every zone, empty but for its daemons, so
// that the next round knows whether the zone, the pool or only this machine is at fault.
func (c *confirmation) probe(st step, pod *corev1.Pod) error {
	o := st.claim
	var refused []string
	accepted := 0
	seen := map[string]bool{}
	for _, sh := range c.shapesOf(st.class, o.shape.pool) {
		for _, zone := range zonesOf(sh) {
			if seen[zone] {
				continue
			}
			seen[zone] = true
			verdict, err := c.tryZone(st, pod, sh, zone)
			switch {
			case err != nil:
				return err
			case verdict.Fits():
				accepted++
			default:
				refused = append(refused, zone)
			}
		}
	}
	if accepted == 0 && len(refused) > 0 {
		c.lessons.denied[denial{st.class.key, o.shape.pool.Name}] = true
		return nil
	}
	for _, zone := range refused {
		c.lessons.refuseZone(st.class, o.shape.pool.Name, zone)
	}
	return nil
}

// tryZone asks about the pod on a machine of the shape in the zone; a machine that cannot be had there
// counts as refused.
func (c *confirmation) tryZone(st step, pod *corev1.Pod, sh *shape, zone string) (Verdict, error) {
	none := Verdict{Plugin: "none", Reason: "no machine"}
	if zone != "" {
		if sh = sh.at(corev1.LabelTopologyZone, zone); sh == nil {
			return none, nil
		}
	}
	able := c.ableFor(st.class, sh)
	if len(able) == 0 {
		return none, nil
	}
	list := []priced{{able[0], able[0].best(sh.kinds)}}
	probe := &openClaim{id: "probe", shape: sh}
	claim := Claim{Requirements: sh.reqs, Cheapest: Choice{Type: able[0].it.Name, Zone: list[0].offer.Zone, CapacityType: list[0].offer.CapacityType}}
	node, daemons := probe.virtualNode(claim, list)
	if err := c.trial.AddNode(c.ctx, node, daemons); err != nil {
		return none, fmt.Errorf("add a probe in zone %q to the trial: %w", zone, err)
	}
	defer c.trial.RemoveNode(node.Name)
	return c.trial.Place(c.ctx, pod, node.Name)
}

// zonesOf lists the zones that the shape's offerings have; one empty name when they have none.
func zonesOf(sh *shape) []string {
	var zones []string
	for i, kind := range sh.pool.kinds {
		zone, ok := requirement.Set(kind).Get(corev1.LabelTopologyZone).Single()
		if sh.kinds.has(i) && ok && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	if len(zones) == 0 {
		return []string{""}
	}
	slices.Sort(zones)
	return zones
}

// unconfirmed turns a plan whose confirmation broke down into one that does nothing: the pods ask again.
func unconfirmed(plan Plan, err error) Plan {
	reasons := []PoolReason{{Reason: "the scheduler's filters could not be asked: " + err.Error()}}
	told := map[*corev1.Pod]bool{}
	for _, u := range plan.Unfit {
		told[u.Pod] = true
	}
	for _, placement := range plan.Existing {
		if !told[placement.Pod] {
			plan.Unfit = append(plan.Unfit, Unfit{Pod: placement.Pod, Reasons: reasons})
		}
	}
	for _, claim := range plan.Claims {
		for _, pod := range claim.Pods {
			if !told[pod] {
				plan.Unfit = append(plan.Unfit, Unfit{Pod: pod, Reasons: reasons})
			}
		}
	}
	plan.Existing, plan.Claims = nil, nil
	return plan
}
