package solver

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// pool is a NodePool prepared for a solve.
type pool struct {
	*karpv1.NodePool
	// base is what every node of the pool is: requirements, labels, pool and class names.
	base       requirement.Set
	candidates []*candidate
	// limited is what may still be added, for the resources in limits only; nil without limits.
	limits    []corev1.ResourceName
	remaining resources.Vector
}

// candidate is an instance type as the pool would launch it.
type candidate struct {
	it *catalog.InstanceType
	// reqs are the type's labels narrowed by the pool.
	reqs requirement.Set
	// free is what its daemons leave for pods; daemons and ports are theirs.
	free    resources.Vector
	daemons []*corev1.Pod
	load    resources.Vector
	ports   []hostPort
	index   int
}

// prepare filters the pool's types and computes what daemons take of each.
func prepare(p Pool, daemons []*corev1.Pod, usage resources.Vector) *pool {
	out := &pool{NodePool: p.NodePool, base: poolRequirements(p.NodePool)}
	for _, it := range p.Types {
		if out.base.Intersects(it.Requirements) != nil || !hasOffering(it, out.base) {
			continue
		}
		reqs := it.Requirements.Clone()
		reqs.Merge(offeringValues(it, reqs))
		reqs.Merge(out.base)
		out.candidates = append(out.candidates, &candidate{it: it, reqs: reqs})
	}
	slices.SortFunc(out.candidates, func(a, b *candidate) int { return strings.Compare(a.it.Name, b.it.Name) })
	taints := p.NodePool.Spec.Template.Spec.Taints
	tolerated := slices.DeleteFunc(slices.Clone(daemons), func(d *corev1.Pod) bool { return untolerated(d, taints) != nil })
	terms := make([][]requirement.Set, len(tolerated))
	requests := make([]resources.Vector, len(tolerated))
	for i, d := range tolerated {
		terms[i], requests[i] = nodeTerms(d), resources.PodRequests(d)
	}
	for index, c := range out.candidates {
		c.index = index
		labels := withSimulated(c.reqs)
		for i, d := range tolerated {
			if firstCompatible(labels, terms[i], requirement.IsWellKnown) != nil {
				c.load = c.load.Add(requests[i])
				c.daemons = append(c.daemons, d)
				c.ports = append(c.ports, hostPorts(d)...)
			}
		}
		c.free = c.it.Allocatable().Sub(c.load)
	}
	out.setLimits(usage)
	return out
}

// offeringValues are the keys that only the type's offerings decide, with all values that they have.
func offeringValues(it *catalog.InstanceType, known requirement.Set) requirement.Set {
	values := map[string][]string{}
	for _, o := range it.Offerings {
		for key, r := range o.Requirements {
			if _, ok := known[key]; !ok {
				values[key] = append(values[key], r.Values()...)
			}
		}
	}
	out := requirement.Set{}
	for key, vs := range values {
		out.Add(requirement.New(key, corev1.NodeSelectorOpIn, vs...))
	}
	return out
}

// withSimulated adds the labels that every node gets in the end, so that daemons may select on them.
func withSimulated(reqs requirement.Set) requirement.Set {
	out := reqs.Clone()
	out.Add(requirement.New(karpv1.LabelRegistered, corev1.NodeSelectorOpIn, karpv1.ValueTrue),
		requirement.New(karpv1.LabelInitialized, corev1.NodeSelectorOpIn, karpv1.ValueTrue))
	return out
}

func poolRequirements(np *karpv1.NodePool) requirement.Set {
	set := requirement.FromClaim(np.Spec.Template.Spec.Requirements)
	set.Merge(requirement.FromLabels(np.Spec.Template.Labels))
	set.Add(requirement.New(karpv1.LabelNodePool, corev1.NodeSelectorOpIn, np.Name))
	if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil {
		set.Add(requirement.New(ref.Group+"/"+strings.ToLower(ref.Kind), corev1.NodeSelectorOpIn, ref.Name))
	}
	return set
}

func (p *pool) setLimits(usage resources.Vector) {
	limits := resources.FromList(corev1.ResourceList(p.Spec.Limits))
	for name := range p.Spec.Limits {
		p.limits = append(p.limits, name)
		p.remaining = p.remaining.With(name, limits.Get(name)-usage.Get(name))
	}
	slices.Sort(p.limits)
}

// over names the limits that a machine of this capacity would exceed.
func (p *pool) over(capacity resources.Vector) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, name := range p.limits {
		if chargeOf(capacity).Get(name) > p.remaining.Get(name) {
			names = append(names, name)
		}
	}
	return names
}

// chargeOf is what a machine counts against limits.
func chargeOf(capacity resources.Vector) resources.Vector {
	return capacity.With(karpv1.ResourceNodes, 1)
}

// sortPools orders them as they are tried: heavier first, then by name descending.
func sortPools(pools []*pool) {
	weight := func(p *pool) int32 {
		if p.Spec.Weight == nil {
			return 0
		}
		return *p.Spec.Weight
	}
	slices.SortFunc(pools, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(b.Name, a.Name))
	})
}

// untolerated returns the first taint that keeps the pod off, nil for none. PreferNoSchedule never does.
func untolerated(pod *corev1.Pod, taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, &taints[i]) {
			return &taints[i]
		}
	}
	return nil
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), taint, false)
	})
}

// avoided reports whether the pool has a PreferNoSchedule taint that the pod does not tolerate.
func (p *pool) avoided(pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Template.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(pod, &t)
	})
}

// firstCompatible returns the first alternative that the labels satisfy, nil for none.
func firstCompatible(labels requirement.Set, terms []requirement.Set, open func(string) bool) requirement.Set {
	for _, term := range terms {
		if labels.Compatible(term, open) == nil {
			return term
		}
	}
	return nil
}

// offers reports whether the offering is to be had under the requirements.
func offers(o *catalog.Offering, reqs requirement.Set) bool {
	if !o.Available {
		return false
	}
	for key, r := range o.Requirements {
		if have, ok := reqs[key]; ok && !have.Intersects(r) {
			return false
		}
	}
	return true
}

func hasOffering(it *catalog.InstanceType, reqs requirement.Set) bool {
	return slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool { return offers(&o, reqs) })
}

// cheapest returns the least price of the type under the requirements; +Inf when it cannot be had.
func cheapest(it *catalog.InstanceType, reqs requirement.Set) (best *catalog.Offering, price float64) {
	price = math.Inf(1)
	for i := range it.Offerings {
		if o := &it.Offerings[i]; o.Price < price && offers(o, reqs) {
			best, price = o, o.Price
		}
	}
	return best, price
}

// fits says whether the candidate can hold the requests, and if not, what it lacks.
func (c *candidate) fits(requests resources.Vector, ports []hostPort) bool {
	return requests.Fits(c.free) && !portsConflict(c.ports, ports)
}
