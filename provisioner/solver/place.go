package solver

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// nodePlace is a node of the snapshot with what is left of it.
type nodePlace struct {
	node  *cluster.Node
	free  resources.Vector
	ports []hostPort
}

func newNodePlace(node *cluster.Node, daemons []*corev1.Pod) *nodePlace {
	p := &nodePlace{node: node, free: node.Allocatable}
	running := map[string]bool{}
	for _, pods := range [][]*corev1.Pod{node.Pods, node.Promised} {
		for _, pod := range pods {
			p.free = p.free.Sub(resources.PodRequests(pod))
			p.ports = append(p.ports, hostPorts(pod)...)
			for _, owner := range pod.OwnerReferences {
				running[string(owner.UID)] = true
			}
		}
	}
	// Daemons that will come but have not yet: only on nodes that are not settled, since a daemon that
	// is missing from a settled node is not coming.
	if node.Initialized {
		return p
	}
	labels := withSimulated(node.Requirements)
	for _, d := range daemons {
		owned := len(d.OwnerReferences) > 0 && running[string(d.OwnerReferences[0].UID)]
		if !owned && untolerated(d, node.Taints) == nil && firstCompatible(labels, nodeTerms(d), openFor(node)) != nil {
			p.free = p.free.Sub(resources.PodRequests(d))
			p.ports = append(p.ports, hostPorts(d)...)
		}
	}
	return p
}

// openFor lets well-known keys be undecided on nodes that are not launched yet.
func openFor(node *cluster.Node) func(string) bool {
	if node.Node == nil {
		return requirement.IsWellKnown
	}
	return nil
}

// admits reports whether the class could run on the node as far as labels and taints go.
func (p *nodePlace) admits(c *class) bool {
	return !p.node.Deleting && untolerated(c.pod, p.node.Taints) == nil &&
		firstCompatible(p.node.Requirements, c.terms, openFor(p.node)) != nil
}

func (p *nodePlace) take(c *class, n int64) {
	p.free = p.free.Sub(c.requests.Scale(n))
	p.ports = append(p.ports, c.ports...)
}

// openClaim is a node that this solve opens.
type openClaim struct {
	id         string
	pool       *pool
	reqs       requirement.Set
	chosen     *candidate
	candidates []*candidate // those that can hold what is on the claim, chosen included
	requests   resources.Vector
	ports      []hostPort
	classes    []*class // by pod
	pods       []*corev1.Pod
}

func (o *openClaim) domain(key string) (string, bool) {
	if key == corev1.LabelHostname {
		return o.id, true
	}
	return o.reqs.Get(key).Single()
}

// room is what the chosen type has left.
func (o *openClaim) room() resources.Vector { return o.chosen.free.Sub(o.requests) }

// narrowed returns the claim's requirements with those of the class, nil when they exclude each other
// or no offering of the chosen type is left.
func (o *openClaim) narrowed(c *class) requirement.Set {
	for _, term := range c.terms {
		if reqs := narrow(o.chosen, o.reqs, term); reqs != nil {
			return reqs
		}
	}
	return nil
}

// narrow merges the term into the requirements if a machine of the candidate can be had that way.
func narrow(cand *candidate, reqs, term requirement.Set) requirement.Set {
	known := cand.reqs
	if err := known.Compatible(term, nil); err != nil {
		return nil
	}
	if reqs.Intersects(term) != nil {
		return nil
	}
	merged := reqs.Clone()
	merged.Merge(term)
	if !hasOffering(cand.it, merged) {
		return nil
	}
	return merged
}

// pin decides the given keys by the cheapest offering, so that topology counts are exact.
func pin(cand *candidate, reqs requirement.Set, keys []string) requirement.Set {
	out := reqs
	for _, key := range keys {
		if _, decided := out.Get(key).Single(); decided {
			continue
		}
		offering, _ := cheapest(cand.it, out)
		if offering == nil {
			return out
		}
		value, ok := offering.Requirements.Get(key).Single()
		if !ok {
			if value, ok = cand.reqs.Get(key).Single(); !ok {
				continue
			}
		}
		out = out.Clone()
		out.Add(requirement.New(key, corev1.NodeSelectorOpIn, value))
	}
	return out
}

// add puts pods of the class on the claim, under requirements that narrowed has found.
func (o *openClaim) add(c *class, reqs requirement.Set, pods []*corev1.Pod) {
	o.reqs = reqs
	o.requests = o.requests.Add(c.requests.Scale(int64(len(pods))))
	o.ports = append(o.ports, c.ports...)
	for _, pod := range pods {
		o.pods, o.classes = append(o.pods, pod), append(o.classes, c)
	}
}

// flexibility: a claim keeps types up to this factor above its cheapest one, and at least minTypes.
// The launch may take any of them, by what the cloud has most of.
const (
	priceSlack = 1.25
	minTypes   = 5
)

// finish chooses the types that the launch may pick from, cheapest first.
func (o *openClaim) finish(maxTypes int) Claim {
	type priced struct {
		c     *candidate
		offer *catalog.Offering
		price float64
	}
	var list []priced
	for _, c := range o.candidates {
		if !c.fits(o.requests, o.ports) || !o.agrees(c) {
			continue
		}
		if offer, price := cheapest(c.it, o.reqs); offer != nil {
			list = append(list, priced{c, offer, price})
		}
	}
	slices.SortFunc(list, func(a, b priced) int {
		return cmp.Or(cmp.Compare(a.price, b.price), strings.Compare(a.c.it.Name, b.c.it.Name))
	})
	keep := min(len(list), maxTypes)
	for i, p := range list[:keep] {
		if i >= minTypes && p.price > list[0].price*priceSlack && minValuesHold(o.reqs, list[:i], func(p priced) *candidate { return p.c }) {
			keep = i
			break
		}
	}
	out := Claim{Pool: o.pool.Name, Requirements: o.reqs, Pods: o.pods}
	least := resources.Vector{}
	for i, p := range list[:keep] {
		out.Types = append(out.Types, p.c.it)
		if i == 0 {
			least = p.c.load
		} else {
			least = least.Min(p.c.load)
		}
	}
	out.Requests = o.requests.Add(least)
	if len(list) > 0 {
		out.Cheapest = Choice{Type: list[0].c.it.Name, Zone: list[0].offer.Zone, CapacityType: list[0].offer.CapacityType, Price: list[0].price}
	}
	return out
}

// agrees reports whether the candidate's labels are within the claim's requirements.
func (o *openClaim) agrees(c *candidate) bool { return c.reqs.Compatible(demanded(o.reqs), nil) == nil }

// demanded are the requirements that a type itself must satisfy: custom keys are labels that the claim
// brings along.
func demanded(reqs requirement.Set) requirement.Set {
	out := requirement.Set{}
	for key, r := range reqs {
		if requirement.IsWellKnown(key) {
			out[key] = r
		}
	}
	return out
}

// minValuesHold reports whether the types have enough distinct values for every key that demands some.
func minValuesHold[T any](reqs requirement.Set, types []T, of func(T) *candidate) bool {
	return shortOfValues(reqs, types, of) == ""
}

// shortOfValues says which minValues demand the types do not meet, "" for none.
func shortOfValues[T any](reqs requirement.Set, types []T, of func(T) *candidate) string {
	for _, key := range reqs.Keys() {
		want := reqs[key].MinValues()
		if want == 0 {
			continue
		}
		values := map[string]bool{}
		for _, t := range types {
			for _, v := range of(t).reqs.Get(key).Values() {
				values[v] = true
			}
		}
		if len(values) < want {
			return fmt.Sprintf("minValues requirement is not met for label %q: %d of %d values", key, len(values), want)
		}
	}
	return ""
}

// virtualNode is the Node that the claim's cheapest offering would become, with the least allocatable
// over the claim's types, so that what fits there fits on any of them.
func virtualNode(id string, p *pool, claim Claim) (*corev1.Node, resources.Vector) {
	labels := map[string]string{}
	maps.Copy(labels, claim.Types[0].Requirements.Labels())
	maps.Copy(labels, claim.Requirements.Labels())
	maps.Copy(labels, p.Spec.Template.Labels)
	labels[corev1.LabelHostname] = id
	labels[corev1.LabelInstanceTypeStable] = claim.Cheapest.Type
	if claim.Cheapest.Zone != "" {
		labels[corev1.LabelTopologyZone] = claim.Cheapest.Zone
	}
	labels["karpenter.sh/capacity-type"] = claim.Cheapest.CapacityType
	for key, r := range claim.Requirements {
		if _, ok := labels[key]; !ok && !requirement.IsWellKnown(key) {
			if value, ok := r.Any(0); ok {
				labels[key] = value
			}
		}
	}
	least, capacity := claim.Types[0].Allocatable(), claim.Types[0].Capacity
	for _, it := range claim.Types[1:] {
		least, capacity = least.Min(it.Allocatable()), capacity.Min(it.Capacity)
	}
	node := &corev1.Node{}
	node.Name, node.Labels = id, labels
	node.Annotations = maps.Clone(p.Spec.Template.Annotations)
	node.Spec.Taints = slices.Clone(p.Spec.Template.Spec.Taints)
	node.Status.Allocatable, node.Status.Capacity = least.ToList(), capacity.ToList()
	return node, least
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
