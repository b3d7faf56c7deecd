package overlay

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// Order sorts rules as they are applied: greater weights first, and of equal ones the names that come
// last.
func Order(rules []*Rule) {
	slices.SortFunc(rules, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), strings.Compare(b.Name, a.Name))
	})
}

// Apply returns the types of the pool as the rules, which are in Order, correct them. Of several rules for
// one price or resource the first has its way. Types that no rule touches are returned as they are, the
// others are copies: nothing that is given is changed. When no rule touches any, the list itself is returned.
func Apply(rules []*Rule, pool *karpv1.NodePool, list []*catalog.InstanceType, seen Seen) []*catalog.InstanceType {
	labels := labelsOf(pool)
	var out []*catalog.InstanceType
	for i, it := range list {
		adjusted := applyToType(rules, labels, it, pool.Name, seen)
		if adjusted == it {
			continue
		}
		if out == nil {
			out = slices.Clone(list)
		}
		out[i] = adjusted
	}
	if out == nil {
		return list
	}
	return out
}

func applyToType(rules []*Rule, labels map[string]string, it *catalog.InstanceType, pool string, seen Seen) *catalog.InstanceType {
	var out *catalog.InstanceType
	var priced []bool        // by offering
	var offerings []int      // scratch
	var declared declaration // of the type
	for _, r := range rules {
		if offerings = r.match(labels, it, offerings[:0]); len(offerings) == 0 {
			continue
		}
		if r.pricing != nil {
			if priced == nil {
				priced = make([]bool, len(it.Offerings))
			}
			for _, i := range offerings {
				if priced[i] {
					continue
				}
				if out == nil {
					out = copyOf(it)
				}
				if !out.PriceOverlaid {
					out.PriceOverlaid, out.Offerings = true, slices.Clone(it.Offerings)
				}
				priced[i] = true
				o := &out.Offerings[i]
				o.Price = r.pricing.of(o.Price)
				if r.prices && o.Unpriced {
					o.Available, o.Unpriced = true, false
				}
			}
		}
		declared.add(r)
	}
	for _, d := range declared {
		if out == nil {
			out = copyOf(it)
		}
		out.CapacityOverlaid = true
		out.Capacity = out.Capacity.With(d.Name, min(d.Value, seen.limit(d.rule, pool, it.Name, d.Name)))
	}
	if out == nil {
		return it
	}
	return out
}

func copyOf(it *catalog.InstanceType) *catalog.InstanceType {
	c := *it
	return &c
}

// labelsOf are the labels that every node of the pool has.
func labelsOf(pool *karpv1.NodePool) map[string]string {
	labels := make(map[string]string, len(pool.Spec.Template.Labels)+2)
	for key, value := range pool.Spec.Template.Labels {
		labels[requirement.NormalizeKey(key)] = value
	}
	labels[karpv1.LabelNodePool] = pool.Name
	if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil {
		labels[ref.Group+"/"+strings.ToLower(ref.Kind)] = ref.Name
	}
	return labels
}

// match appends the indexes of the type's offerings that meet every demand. What an offering says of a key
// goes before what the type says, and that before the pool. A key that nobody defines fails unless its
// absence is what is demanded.
func (r *Rule) match(pool map[string]string, it *catalog.InstanceType, out []int) []int {
	for _, d := range r.demands { // cheap: most rules are not about this type
		if have, ok := it.Requirements[d.Key()]; ok && !have.Meets(d) {
			return out
		}
	}
	for i := range it.Offerings {
		if r.matches(pool, it, &it.Offerings[i]) {
			out = append(out, i)
		}
	}
	return out
}

func (r *Rule) matches(pool map[string]string, it *catalog.InstanceType, o *catalog.Offering) bool {
	for _, d := range r.demands {
		key := d.Key()
		have, defined := o.Requirements[key]
		if !defined {
			have, defined = it.Requirements[key]
		}
		if defined {
			if !have.Meets(d) {
				return false
			}
			continue
		}
		if value, labelled := pool[key]; labelled {
			if !d.Has(value) {
				return false
			}
		} else if !d.AllowsAbsence() {
			return false
		}
	}
	return true
}

// declaration lists the resources that rules declare for one type, each with the rule that has its way.
type declaration []declaredAmount

type declaredAmount struct {
	Name  corev1.ResourceName
	Value int64
	rule  *Rule
}

func (d *declaration) add(r *Rule) {
	for _, a := range r.capacity {
		if !slices.ContainsFunc(*d, func(known declaredAmount) bool { return known.Name == a.Name }) {
			*d = append(*d, declaredAmount{a.Name, a.Value, r})
		}
	}
}

// declaredFor returns what the rules declare for the type in the pool.
func declaredFor(rules []*Rule, pool map[string]string, it *catalog.InstanceType) declaration {
	var out declaration
	var offerings []int
	for _, r := range rules {
		if len(r.capacity) == 0 {
			continue
		}
		if offerings = r.match(pool, it, offerings[:0]); len(offerings) > 0 {
			out.add(r)
		}
	}
	return out
}
