package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// maxTypes is how many instance types one request names.
const maxTypes = 60

// Tenancies.
const (
	tenancyDefault   = "default"
	tenancyDedicated = "dedicated"
)

// Wish is what a claim asks of the launch.
type Wish struct {
	Requirements requirement.Set
	Requests     resources.Vector
	// Relaxed says that minValues may be missed.
	Relaxed bool
	// Enclaves and EFA are asked for by requesting their resources.
	Enclaves, EFA bool
}

// WishOf reads a claim.
func WishOf(claim *karpv1.NodeClaim) Wish {
	requests := resources.FromList(corev1.ResourceList(claim.Spec.Resources.Requests))
	w := Wish{
		Requirements: requirement.FromClaim(claim.Spec.Requirements),
		Relaxed:      claim.Annotations[karpv1.AnnotationMinValuesRelaxed] == karpv1.ValueTrue,
		EFA:          requests.Get(ec2v1.ResourceEFA) > 0,
		Enclaves:     requests.Get(ec2v1.ResourceNitroSandbox) > 0,
		Requests:     requests.With(ec2v1.ResourceNitroSandbox, 0), // a switch, not an amount that types have
	}
	if w.Enclaves {
		w.Requirements.Add(requirement.New(ec2v1.LabelNitroSandbox, corev1.NodeSelectorOpIn, karpv1.ValueTrue))
	}
	return w
}

// Choice is what will be asked of EC2.
type Choice struct {
	CapacityType, Tenancy string
	Types                 []Chosen // cheapest first
}

// Chosen is a type with those of its offerings that fit the wish, cheapest first.
type Chosen struct {
	*catalog.InstanceType
	Image     ec2v1.AMI
	Offerings []catalog.Offering
}

// Choose filters the types of a class down to what the launch may take. An error means that there is
// nothing to launch now. Pure.
func Choose(types []*catalog.InstanceType, images image.Matcher, w Wish) (Choice, error) {
	left := compatible(types, images, w)
	if len(left) == 0 {
		return Choice{}, errNothing
	}
	flexible := hasMinValues(w.Requirements)
	if !flexible {
		left = withoutDearSpot(withoutExotic(left), w)
	}
	if len(left) == 0 {
		return Choice{}, errNothing
	}
	slices.SortStableFunc(left, func(a, b Chosen) int {
		return cmp.Or(cmp.Compare(a.Offerings[0].Price, b.Offerings[0].Price), cmp.Compare(a.Name, b.Name))
	})
	left = left[:min(len(left), maxTypes)]
	if flexible && !w.Relaxed {
		if err := checkMinValues(left, w.Requirements); err != nil {
			return Choice{}, err
		}
	}
	choice := Choice{CapacityType: karpv1.CapacityTypeOnDemand, Tenancy: tenancyDefault}
	if w.Requirements.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeSpot) && has(left, karpv1.CapacityTypeSpot) {
		choice.CapacityType = karpv1.CapacityTypeSpot
	}
	if !w.Requirements.Get(ec2v1.LabelInstanceTenancy).Has(tenancyDefault) {
		choice.Tenancy = tenancyDedicated
	}
	for _, t := range left {
		t.Offerings = slices.DeleteFunc(slices.Clone(t.Offerings), func(o catalog.Offering) bool { return o.CapacityType != choice.CapacityType })
		if len(t.Offerings) > 0 {
			choice.Types = append(choice.Types, t)
		}
	}
	if len(choice.Types) == 0 {
		return Choice{}, errNothing
	}
	return choice, nil
}

var errNothing = fmt.Errorf("all requested instance types were unavailable during launch")

func compatible(types []*catalog.InstanceType, images image.Matcher, w Wish) []Chosen {
	var out []Chosen
	for _, it := range types {
		if w.Requirements.Compatible(it.Requirements, requirement.IsWellKnown) != nil || !w.Requests.Fits(it.Allocatable()) {
			continue
		}
		img, ok := images.For(it)
		if !ok {
			continue
		}
		c := Chosen{InstanceType: it, Image: img}
		for _, o := range it.Offerings {
			if o.Available && w.Requirements.Compatible(o.Requirements, requirement.IsWellKnown) == nil {
				c.Offerings = append(c.Offerings, o)
			}
		}
		if len(c.Offerings) > 0 {
			slices.SortStableFunc(c.Offerings, func(a, b catalog.Offering) int { return cmp.Compare(a.Price, b.Price) })
			out = append(out, c)
		}
	}
	return out
}

func hasMinValues(set requirement.Set) bool {
	for _, r := range set {
		if r.MinValues() > 0 {
			return true
		}
	}
	return false
}

// withoutExotic drops bare metal and accelerated types unless nothing else is left.
func withoutExotic(types []Chosen) []Chosen {
	var plain []Chosen
	for _, t := range types {
		if !exotic(t.InstanceType) {
			plain = append(plain, t)
		}
	}
	if len(plain) == 0 {
		return types
	}
	return plain
}

func exotic(it *catalog.InstanceType) bool {
	_, size, _ := strings.Cut(it.Name, ".")
	if strings.Contains(size, "metal") {
		return true
	}
	for _, name := range []corev1.ResourceName{ec2v1.ResourceNeuron, ec2v1.ResourceNeuronCore, ec2v1.ResourceAMDGPU,
		ec2v1.ResourceNVIDIAGPU, ec2v1.ResourceHabanaGaudi} {
		if it.Capacity.Get(name) > 0 {
			return true
		}
	}
	return false
}

// withoutDearSpot drops spot offerings that cost more than the cheapest on-demand one.
func withoutDearSpot(types []Chosen, w Wish) []Chosen {
	kinds := w.Requirements.Get(karpv1.LabelCapacityType)
	if !kinds.Has(karpv1.CapacityTypeSpot) || !kinds.Has(karpv1.CapacityTypeOnDemand) ||
		!has(types, karpv1.CapacityTypeSpot) || !has(types, karpv1.CapacityTypeOnDemand) {
		return types
	}
	cheapest := -1.0
	for _, t := range types {
		for _, o := range t.Offerings {
			if o.CapacityType == karpv1.CapacityTypeOnDemand && (cheapest < 0 || o.Price < cheapest) {
				cheapest = o.Price
			}
		}
	}
	var out []Chosen
	for _, t := range types {
		t.Offerings = slices.DeleteFunc(slices.Clone(t.Offerings), func(o catalog.Offering) bool {
			return o.CapacityType == karpv1.CapacityTypeSpot && o.Price > cheapest
		})
		if len(t.Offerings) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func has(types []Chosen, capacityType string) bool {
	return slices.ContainsFunc(types, func(t Chosen) bool {
		return slices.ContainsFunc(t.Offerings, func(o catalog.Offering) bool { return o.CapacityType == capacityType })
	})
}

func checkMinValues(types []Chosen, reqs requirement.Set) error {
	for _, key := range reqs.Keys() {
		r := reqs[key]
		if r.MinValues() == 0 {
			continue
		}
		values := map[string]bool{}
		for _, t := range types {
			for _, v := range t.Requirements.Get(key).Values() {
				if r.Has(v) {
					values[v] = true
				}
			}
		}
		if len(values) < r.MinValues() {
			return fmt.Errorf("truncating instance types based on the passed-in requirements, %s has %d values of at least %d", key, len(values), r.MinValues())
		}
	}
	return nil
}
