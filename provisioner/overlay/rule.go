package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// Rule is a NodeOverlay that is valid, ready to be applied. It is immutable.
type Rule struct {
	Name       string
	UID        types.UID
	Generation int64
	Weight     int32
	// demands are the requirements, sorted so that those which reject most come first.
	demands []requirement.Requirement
	// pricing is nil when the overlay leaves prices alone.
	pricing *pricing
	// prices says that the overlay may price types that nobody else has a price for.
	prices bool
	// capacity has the declared resources only.
	capacity []resources.Amount
}

// pricing is a replacement (factor 0) or an adjustment of an hourly price in USD.
type pricing struct{ factor, add float64 }

func (p pricing) of(price float64) float64 { return max(0, price*p.factor+p.add) }

var (
	pricePattern      = regexp.MustCompile(`^\d+(\.\d+)?$`)
	adjustmentPattern = regexp.MustCompile(`^(([+-]\d+(\.\d+)?)|(\+\d+(\.\d+)?%)|(-\d{1,2}(\.\d+)?%)|(-100(\.0+)?%))$`)
)

// unselectable are keys that depend on the launch in a way that no overlay can foresee.
var unselectable = []string{
	ec2v1.LabelInstanceTenancy, ec2v1.LabelCapacityReservationID, ec2v1.LabelCapacityReservationType,
	ec2v1.LabelCapacityReservationInterruptible, ec2v1.LabelPlacementGroupID, ec2v1.LabelPlacementGroupPartition,
}

// providedResources are told by the provider or the kubelet; an overlay cannot know better.
var providedResources = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	ec2v1.ResourceNVIDIAGPU, ec2v1.ResourceAMDGPU, ec2v1.ResourceNeuron, ec2v1.ResourceNeuronCore, ec2v1.ResourceHabanaGaudi,
	ec2v1.ResourcePodENI, ec2v1.ResourcePrivateIPv4, ec2v1.ResourceEFA, ec2v1.ResourceNitroSandbox,
}

// Parse checks the overlay and makes a rule of it. The error names every fault with its field, the value
// and what to write instead.
func Parse(o *v1alpha1.NodeOverlay) (*Rule, error) {
	r := &Rule{Name: o.Name, UID: o.UID, Generation: o.Generation}
	if o.Spec.Weight != nil {
		r.Weight = *o.Spec.Weight
	}
	var errs []error
	if w := o.Spec.Weight; w != nil && (*w < 1 || *w > 10000) {
		errs = append(errs, fmt.Errorf("spec.weight: %d is out of range; use 1 to 10000, or leave it out for the least", *w))
	}
	set := requirement.Set{}
	for i, item := range o.Spec.Requirements {
		if fault := requirementFault(item); fault != "" {
			errs = append(errs, fmt.Errorf("spec.requirements[%d]: %s", i, fault))
			continue
		}
		set.Add(requirement.New(item.Key, item.Operator, item.Values...))
	}
	var err error
	if r.pricing, err = parsePricing(o.Spec.Price, o.Spec.PriceAdjustment); err != nil {
		errs = append(errs, err)
	}
	if r.capacity, err = parseCapacity(corev1.ResourceList(o.Spec.Capacity)); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r.demands = slices.SortedFunc(maps.Values(set), func(a, b requirement.Requirement) int {
		return cmp.Or(cmp.Compare(selectivity(a), selectivity(b)), cmp.Compare(a.Key(), b.Key()))
	})
	r.prices = o.Spec.Price != nil && len(o.Spec.Requirements) == 1 && o.Spec.Requirements[0].Operator == corev1.NodeSelectorOpIn &&
		r.demands[0].Key() == corev1.LabelInstanceTypeStable
	return r, nil
}

// selectivity is low for demands that few types meet.
func selectivity(r requirement.Requirement) int {
	if !r.IsConcrete() {
		return math.MaxInt
	}
	return len(r.Values())
}

func requirementFault(r v1alpha1.NodeSelectorRequirement) string {
	if faults := validation.IsQualifiedName(r.Key); len(faults) > 0 {
		return fmt.Sprintf("key %q: %s", r.Key, strings.Join(faults, "; "))
	}
	normal := requirement.NormalizeKey(r.Key)
	domain, _, qualified := strings.Cut(normal, "/")
	ours := qualified && slices.ContainsFunc([]string{karpv1.Group, ec2v1.Group}, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
	switch {
	case slices.Contains(unselectable, normal):
		return fmt.Sprintf("key %q is decided by the launch, overlays cannot select by it; select by instance type, zone or capacity type", r.Key)
	case normal == corev1.LabelHostname, ours && !requirement.IsWellKnown(normal):
		return fmt.Sprintf("key %q is restricted: no instance type has it; use a label of instance types, of offerings or of the NodePool's template", r.Key)
	}
	for _, value := range r.Values {
		if faults := validation.IsValidLabelValue(value); len(faults) > 0 {
			return fmt.Sprintf("value %q of key %q: %s", value, r.Key, strings.Join(faults, "; "))
		}
	}
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			return fmt.Sprintf("operator %s of key %q needs a value", r.Operator, r.Key)
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return fmt.Sprintf("operator %s of key %q takes no values, not %q", r.Operator, r.Key, r.Values)
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.OperatorGte, karpv1.OperatorLte:
		if len(r.Values) == 1 {
			if n, err := strconv.ParseInt(r.Values[0], 10, 64); err == nil && n >= 0 {
				return ""
			}
		}
		return fmt.Sprintf("operator %s of key %q needs exactly one value, an integer of at least 0, not %q", r.Operator, r.Key, r.Values)
	default:
		return fmt.Sprintf("operator %q of key %q is unknown; use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte", r.Operator, r.Key)
	}
	return ""
}

func parsePricing(price, adjustment *string) (*pricing, error) {
	switch {
	case price != nil && adjustment != nil:
		return nil, fmt.Errorf("spec.priceAdjustment: cannot set both 'price' (%q) and 'priceAdjustment' (%q); keep one", *price, *adjustment)
	case price != nil:
		amount, err := strconv.ParseFloat(*price, 64)
		if !pricePattern.MatchString(*price) || err != nil {
			return nil, fmt.Errorf("spec.price: %q is no price; use USD per hour without a sign, such as 0.25", *price)
		}
		return &pricing{add: amount}, nil
	case adjustment != nil:
		number, percent := strings.CutSuffix(*adjustment, "%")
		amount, err := strconv.ParseFloat(number, 64)
		if !adjustmentPattern.MatchString(*adjustment) || err != nil {
			return nil, fmt.Errorf("spec.priceAdjustment: %q is no adjustment; use a signed amount such as +0.05, or a signed percentage of at least -100%%, such as -10%%", *adjustment)
		}
		if percent {
			return &pricing{factor: 1 + amount/100}, nil
		}
		return &pricing{factor: 1, add: amount}, nil
	}
	return nil, nil
}

func parseCapacity(list corev1.ResourceList) ([]resources.Amount, error) {
	var out []resources.Amount
	var errs []error
	fail := func(name corev1.ResourceName, format string, args ...any) {
		errs = append(errs, fmt.Errorf("spec.capacity[%s]: %s", name, fmt.Sprintf(format, args...)))
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		faults := validation.IsQualifiedName(string(name))
		value, whole := amount.AsInt64()
		switch {
		case slices.Contains(providedResources, name):
			fail(name, "invalid resource restricted: the provider tells the amount of %s itself; remove it", name)
		case len(faults) > 0:
			fail(name, "%s", strings.Join(faults, "; "))
		case amount.Sign() < 0:
			fail(name, "%s is negative; use 0 or more", amount.String())
		case !whole:
			fail(name, "%s is no whole number; %s is counted in units", amount.String(), name)
		default:
			out = append(out, resources.Amount{Name: name, Value: value})
		}
	}
	return out, errors.Join(errs...)
}
