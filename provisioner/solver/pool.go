package solver

import (
	"cmp"
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
	candidates []*candidate
	// kinds are the different requirements of the offerings of all candidates.
	kinds []requirement.Set
	// base is what every node of the pool is: requirements, labels, pool and class names.
	base   *shape
	shapes map[string]*shape // interned by the signature of their requirements
	having map[string]bitset // candidates that meet a requirement, by its signature
	offers map[string]bool   // by topology key, whether types or offerings decide it
	// limits are the resources with a limit; limit is what may be added of each, remaining what is left
	// of that in this attempt.
	limits           []corev1.ResourceName
	limit, remaining resources.Vector
}

// candidate is an instance type as the pool would launch it.
type candidate struct {
	it    *catalog.InstanceType
	index int
	// reqs are the type's labels narrowed by the pool; keys that offerings decide have all their values.
	reqs requirement.Set
	// offers are available and agree with the pool, cheapest first.
	offers []offer
	// free is what its daemons leave for pods; daemons, load and ports are theirs.
	free    resources.Vector
	daemons []*corev1.Pod
	load    resources.Vector
	ports   []hostPort
	// allowed are the types that may be launched instead, most is the greatest capacity among them; see
	// alternatives.
	allowed bitset
	most    resources.Vector
}

// best returns the cheapest offering of the given kinds, nil for none.
func (c *candidate) best(kinds kindSet) *offer {
	for i := range c.offers {
		if kinds.has(c.offers[i].kind) {
			return &c.offers[i]
		}
	}
	return nil
}

// fits says whether the candidate can hold the requests.
func (c *candidate) fits(requests resources.Vector, ports []hostPort) bool {
	return requests.Fits(c.free) && !portsConflict(c.ports, ports)
}

// prepare filters the pool's types and computes what daemons take of each.
func prepare(p Pool, daemons []*corev1.Pod, usage resources.Vector) *pool {
	out := &pool{NodePool: p.NodePool, shapes: map[string]*shape{}, having: map[string]bitset{}, offers: map[string]bool{}}
	base := poolRequirements(p.NodePool)
	kindOf := map[string]int{}
	for _, it := range p.Types {
		if !base.Overlaps(it.Requirements) {
			continue
		}
		c := &candidate{it: it, reqs: it.Requirements.Clone()}
		c.reqs.Merge(offeringValues(it, c.reqs))
		c.reqs.Merge(base)
		sold := false
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !base.Overlaps(o.Requirements) {
				continue
			}
			sold = true
			if kind, ok := out.kindOf(o, kindOf); ok && o.Available {
				c.offers = append(c.offers, offer{o, kind})
			}
		}
		if sold { // types without capacity stay, so that reasons can name them
			slices.SortStableFunc(c.offers, func(a, b offer) int { return cmp.Compare(a.Price, b.Price) })
			out.candidates = append(out.candidates, c)
		}
	}
	slices.SortFunc(out.candidates, func(a, b *candidate) int { return strings.Compare(a.it.Name, b.it.Name) })
	for i, c := range out.candidates {
		c.index = i
	}
	out.loadDaemons(daemons)
	out.base = &shape{pool: out, reqs: base, types: newBitset(len(out.candidates)), narrower: map[string]*shape{}}
	for i := range out.candidates {
		out.base.types.add(i)
	}
	for i := range out.kinds {
		out.base.kinds.add(i)
	}
	for _, r := range base {
		out.base.demands = out.base.demands || r.MinValues() > 0
	}
	out.base = out.intern(out.base)
	out.setLimits(usage)
	return out
}

// kindOf returns the number of the offering's kind; ok is false when there are too many kinds.
func (p *pool) kindOf(o *catalog.Offering, known map[string]int) (kind int, ok bool) {
	id := o.Requirements.Signature()
	kind, ok = known[id]
	if !ok && len(p.kinds) < maxKinds {
		kind, ok = len(p.kinds), true
		known[id] = kind
		p.kinds = append(p.kinds, o.Requirements)
	}
	return kind, ok
}

// intern returns the one shape with these requirements.
func (p *pool) intern(sh *shape) *shape {
	id := sh.reqs.Signature()
	if known, ok := p.shapes[id]; ok {
		return known
	}
	sh.number = len(p.shapes)
	p.shapes[id] = sh
	return sh
}

// typesWith returns the candidates whose labels meet the requirement.
func (p *pool) typesWith(r requirement.Requirement) bitset {
	id := r.Signature()
	set, ok := p.having[id]
	if !ok {
		set = newBitset(len(p.candidates))
		for i, c := range p.candidates {
			have, defined := c.reqs[r.Key()]
			if defined && have.Meets(r) || !defined && r.AllowsAbsence() {
				set.add(i)
			}
		}
		p.having[id] = set
	}
	return set
}

// loadDaemons computes which daemons run on each candidate and what they leave.
func (p *pool) loadDaemons(daemons []*corev1.Pod) {
	taints := p.Spec.Template.Spec.Taints
	tolerated := slices.DeleteFunc(slices.Clone(daemons), func(d *corev1.Pod) bool { return untolerated(d, taints) != nil })
	terms := make([][]term, len(tolerated))
	requests := make([]resources.Vector, len(tolerated))
	for i, d := range tolerated {
		terms[i], requests[i] = nodeTerms(d), resources.PodRequests(d)
	}
	for _, c := range p.candidates {
		labels := withSimulated(c.reqs)
		for i, d := range tolerated {
			if compatibleWithAny(labels, terms[i], requirement.IsWellKnown) {
				c.load = c.load.Add(requests[i])
				c.daemons = append(c.daemons, d)
				c.ports = append(c.ports, hostPorts(d)...)
			}
		}
		c.free = c.it.Allocatable().Sub(c.load)
	}
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
	if out == nil {
		out = requirement.Set{}
	}
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
		p.limit = p.limit.With(name, limits.Get(name)-usage.Get(name))
	}
	slices.Sort(p.limits)
}

// over names the limits that a machine of this capacity would exceed.
func (p *pool) over(capacity resources.Vector) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, name := range p.limits {
		if charge(capacity, name) > p.remaining.Get(name) {
			names = append(names, name)
		}
	}
	return names
}

// charge is what a machine of this capacity counts against a limit.
func charge(capacity resources.Vector, name corev1.ResourceName) int64 {
	if name == karpv1.ResourceNodes {
		return 1
	}
	return capacity.Get(name)
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

// compatibleWithAny reports whether the labels satisfy one of the alternatives.
func compatibleWithAny(labels requirement.Set, terms []term, open func(string) bool) bool {
	return slices.ContainsFunc(terms, func(t term) bool { return labels.Allows(t.set, open) })
}
