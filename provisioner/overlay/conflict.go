package overlay

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
)

// Pool is a NodePool with the types that its class allows, as the provider tells of them.
type Pool struct {
	NodePool *karpv1.NodePool
	Types    []*catalog.InstanceType
}

// Conflict says that a rule and an earlier one of the same weight want the same price or resource.
type Conflict struct {
	Other, Pool, Type string
	Weight            int32
	// Resource is empty when the prices are what they both set.
	Resource corev1.ResourceName
	// Zone and CapacityType name the offering, for prices.
	Zone, CapacityType string
}

// String says it to people, with the way out.
func (c *Conflict) String() string {
	what := fmt.Sprintf("the price of %s in %s, %s", c.Type, c.Zone, c.CapacityType)
	if c.Resource != "" {
		what = fmt.Sprintf("capacity %s of %s", c.Resource, c.Type)
	}
	weight := fmt.Sprintf("spec.weight %d", c.Weight)
	if c.Weight == 0 {
		weight = "no spec.weight"
	}
	return fmt.Sprintf("%s: NodeOverlay %s sets %s (NodePool %s) too, and both have %s; this one is not applied anywhere: give one of them another weight, or narrow its requirements",
		v1alpha1.MessageConflict, c.Other, what, c.Pool, weight)
}

// Settle returns the rules, which are in Order, that may be applied, and why the others may not, by name. A
// rule that touches a price or a resource which an earlier one of equal weight touches is left out
// everywhere, and is in nobody's way then.
func Settle(rules []*Rule, pools []Pool) (accepted []*Rule, conflicts map[string]*Conflict) {
	conflicts = map[string]*Conflict{}
	labels := make([]map[string]string, len(pools))
	for i, p := range pools {
		labels[i] = labelsOf(p.NodePool)
	}
	for start := 0; start < len(rules); {
		end := start + 1
		for end < len(rules) && rules[end].Weight == rules[start].Weight {
			end++
		}
		if end-start == 1 { // nobody to conflict with
			accepted = append(accepted, rules[start])
			start = end
			continue
		}
		touched := newTouched(pools)
		for _, r := range rules[start:end] {
			if c := touched.by(r, pools, labels); c != nil {
				conflicts[r.Name] = c
				continue
			}
			accepted = append(accepted, r)
		}
		start = end
	}
	return accepted, conflicts
}

// touched remembers which rule of one weight touches what.
type touched struct {
	prices   [][]*Rule // by pool, and by offering over all types
	capacity map[touchedResource]*Rule
}

type touchedResource struct {
	pool, instanceType int
	name               corev1.ResourceName
}

func newTouched(pools []Pool) *touched {
	t := &touched{prices: make([][]*Rule, len(pools)), capacity: map[touchedResource]*Rule{}}
	for i, p := range pools {
		n := 0
		for _, it := range p.Types {
			n += len(it.Offerings)
		}
		t.prices[i] = make([]*Rule, n)
	}
	return t
}

// by records what the rule touches; on a conflict nothing is recorded.
func (t *touched) by(r *Rule, pools []Pool, labels []map[string]string) *Conflict {
	var offerings []int
	var prices []**Rule
	var amounts []touchedResource
	for p, pool := range pools {
		first := 0 // number of the type's first offering
		for i, it := range pool.Types {
			offerings = r.match(labels[p], it, offerings[:0])
			if r.pricing != nil {
				for _, o := range offerings {
					slot := &t.prices[p][first+o]
					if *slot != nil {
						return &Conflict{Other: (*slot).Name, Pool: pool.NodePool.Name, Type: it.Name, Weight: r.Weight,
							Zone: it.Offerings[o].Zone, CapacityType: it.Offerings[o].CapacityType}
					}
					prices = append(prices, slot)
				}
			}
			if len(offerings) > 0 {
				for _, a := range r.capacity {
					key := touchedResource{p, i, a.Name}
					if other := t.capacity[key]; other != nil {
						return &Conflict{Other: other.Name, Pool: pool.NodePool.Name, Type: it.Name, Weight: r.Weight, Resource: a.Name}
					}
					amounts = append(amounts, key)
				}
			}
			first += len(it.Offerings)
		}
	}
	for _, slot := range prices {
		*slot = r
	}
	for _, key := range amounts {
		t.capacity[key] = r
	}
	return nil
}
