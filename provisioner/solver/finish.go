package solver

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// A claim keeps the types whose price is at most priceSlack times that of its cheapest one, or the first
// minTypes, whichever is more. The launch may take any of them, by what the cloud has most of: fewer
// would make spot capacity hard to get, dearer ones would make the plan's price a wish.
const (
	priceSlack = 1.5
	minTypes   = 15
)

// priced is a type of a claim with its cheapest offering.
type priced struct {
	c     *candidate
	offer *offer
}

// finish chooses the types that the launch may pick from, cheapest first. The first one need not be the
// type that was chosen when the claim was opened: what is on it now may fit a cheaper one.
func (o *openClaim) finish(maxTypes int) (Claim, []priced) {
	var list []priced
	for _, p := range o.shape.byPrice() {
		if o.allowed.has(p.c.index) && p.c.fits(o.requests, o.ports) {
			if list = append(list, p); len(list) == maxTypes && !o.shape.demands {
				break
			}
		}
	}
	list = kept(list, o.shape, maxTypes)
	out := Claim{Pool: o.shape.pool.Name, Requirements: o.shape.reqs, Pods: o.pods, MinValuesRelaxed: o.shape.lowered}
	least := list[0].c.load
	for _, p := range list {
		out.Types = append(out.Types, p.c.it)
		least = least.Min(p.c.load)
	}
	out.Requests = o.requests.Add(least)
	first := list[0]
	out.Cheapest = Choice{Type: first.c.it.Name, Zone: first.offer.Zone, CapacityType: first.offer.CapacityType, Price: first.offer.Price}
	return out, list
}

// kept cuts the list, which is sorted by price, to the types that are worth offering to the launch. Types
// that minValues needs stay, however dear.
func kept(list []priced, sh *shape, maxTypes int) []priced {
	keep := min(len(list), maxTypes)
	for i, p := range list[:keep] {
		if i >= minTypes && p.offer.Price > list[0].offer.Price*priceSlack {
			keep = i
			break
		}
	}
	if !sh.demands {
		return list[:keep]
	}
	needed := make([]bool, len(list))
	count := 0
	for _, key := range sh.reqs.Keys() {
		values := map[string]bool{}
		for i := 0; i < len(list) && len(values) < sh.reqs[key].MinValues(); i++ {
			before := len(values)
			for _, v := range list[i].c.reqs.Get(key).Values() {
				values[v] = true
			}
			if len(values) > before && !needed[i] {
				needed[i] = true
				count++
			}
		}
	}
	var out []priced
	for i, p := range list {
		if needed[i] {
			count--
			out = append(out, p)
		} else if i < keep && len(out)+count < maxTypes {
			out = append(out, p)
		}
	}
	return out
}

// shortOfValues says which minValues demands the types do not meet, "" for none.
func shortOfValues(reqs requirement.Set, types []*candidate) string {
	for _, key := range reqs.Keys() {
		want := reqs[key].MinValues()
		if want == 0 {
			continue
		}
		if have := valuesOf(key, types); have < want {
			return fmt.Sprintf("minValues requirement is not met for label %q: %d of %d values", key, have, want)
		}
	}
	return ""
}

// relaxed is the shape with minValues lowered to what the types reach.
func (sh *shape) relaxed(types []*candidate) *shape {
	next := &shape{pool: sh.pool, reqs: sh.reqs.Clone(), kinds: sh.kinds, types: sh.types.clone(), narrower: map[string]*shape{}, demands: sh.demands, lowered: true}
	for _, key := range sh.reqs.Keys() {
		r := sh.reqs[key]
		if r.MinValues() > 0 {
			next.reqs[key] = r.WithMinValues(min(r.MinValues(), valuesOf(key, types)))
		}
	}
	return sh.pool.intern(next)
}

// valuesOf counts the different values of the key among the types.
func valuesOf(key string, types []*candidate) int {
	values := map[string]bool{}
	for _, t := range types {
		for _, v := range t.reqs.Get(key).Values() {
			values[v] = true
		}
	}
	return len(values)
}

// virtualNode is the Node that the claim's cheapest offering would become, with the daemons that it would
// run. Its allocatable is what the tightest of the claim's types leaves beside its own daemons, so that
// what fits there fits on any of them.
func (o *openClaim) virtualNode(claim Claim, types []priced) (*corev1.Node, []*corev1.Pod) {
	p, first := o.shape.pool, types[0]
	labels := map[string]string{}
	maps.Copy(labels, first.c.it.Requirements.Labels())
	maps.Copy(labels, first.offer.Requirements.Labels())
	maps.Copy(labels, claim.Requirements.Labels())
	maps.Copy(labels, p.Spec.Template.Labels)
	labels[corev1.LabelHostname] = o.id
	labels[corev1.LabelInstanceTypeStable], labels[karpv1.LabelCapacityType] = claim.Cheapest.Type, claim.Cheapest.CapacityType
	if claim.Cheapest.Zone != "" {
		labels[corev1.LabelTopologyZone] = claim.Cheapest.Zone
	}
	for key, r := range claim.Requirements {
		if _, ok := labels[key]; !ok && !requirement.IsWellKnown(key) {
			if value, ok := r.Any(0); ok {
				labels[key] = value
			}
		}
	}
	free, capacity := first.c.free, first.c.it.Capacity
	for _, t := range types[1:] {
		free, capacity = free.Min(t.c.free), capacity.Min(t.c.it.Capacity)
	}
	allocatable := free.Add(first.c.load)
	node := &corev1.Node{}
	node.Name, node.Labels = o.id, labels
	node.Annotations = maps.Clone(p.Spec.Template.Annotations)
	node.Spec.Taints = slices.Clone(p.Spec.Template.Spec.Taints)
	node.Status.Allocatable, node.Status.Capacity = allocatable.ToList(), capacity.Max(allocatable).ToList()
	return node, first.c.daemons
}
