package nodepool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// restrictedDomains may hold no labels but the well-known ones; their subdomains neither.
var restrictedDomains = []string{karpv1.Group, ec2v1.Group}

// knownValues lists the values of the keys that take no others.
var knownValues = map[string][]string{
	karpv1.LabelCapacityType: {karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot},
}

// Validate returns every fault of the pool that admission lets pass, nil when it has none. It is pure.
func Validate(pool *karpv1.NodePool) error {
	template := pool.Spec.Template
	errs := []error{validateLabels(template.Labels), validateTaints(template.Spec.Taints, template.Spec.StartupTaints)}
	for i, r := range template.Spec.Requirements {
		if err := validateRequirement(r); err != nil {
			errs = append(errs, fmt.Errorf("spec.template.spec.requirements[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func validateLabels(labels map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		faults := keyFaults(key)
		for _, fault := range validation.IsValidLabelValue(labels[key]) {
			faults = append(faults, fmt.Sprintf("value %q: %s", labels[key], fault))
		}
		if len(faults) > 0 {
			errs = append(errs, fmt.Errorf("spec.template.metadata.labels[%s]: %s", key, strings.Join(faults, "; ")))
		}
	}
	return errors.Join(errs...)
}

// keyFaults says what is wrong with a label key of a pool.
func keyFaults(key string) []string {
	if faults := validation.IsQualifiedName(key); len(faults) > 0 {
		return []string{fmt.Sprintf("key %q: %s", key, strings.Join(faults, "; "))}
	}
	normal := requirement.NormalizeKey(key)
	if normal == karpv1.LabelNodePool {
		return []string{fmt.Sprintf("key %q is restricted: it always has the name of the pool; remove it", key)}
	}
	if requirement.IsWellKnown(normal) {
		return nil
	}
	domain, _, qualified := strings.Cut(normal, "/")
	restricted := normal == corev1.LabelHostname || (qualified && slices.ContainsFunc(restrictedDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	}))
	if !restricted {
		return nil
	}
	return []string{fmt.Sprintf("key %q is restricted, because it may interfere with how nodes are chosen; use a domain of your own. "+
		"Restricted are %s, except %s", key, strings.Join(append(slices.Clone(restrictedDomains), corev1.LabelHostname), ", "), strings.Join(wellKnown(), ", "))}
}

func wellKnown() []string {
	keys := append(karpv1.WellKnownLabels(), ec2v1.WellKnownLabels()...)
	slices.Sort(keys)
	return slices.Compact(slices.DeleteFunc(keys, func(key string) bool { return key == karpv1.LabelNodePool }))
}

func validateRequirement(r karpv1.NodeSelectorRequirementWithMinValues) error {
	faults := keyFaults(r.Key)
	for _, value := range r.Values {
		for _, fault := range validation.IsValidLabelValue(value) {
			faults = append(faults, fmt.Sprintf("value %q of key %q: %s", value, r.Key, fault))
		}
	}
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		faults = append(faults, inFaults(r)...)
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.OperatorGte, karpv1.OperatorLte:
		if !isOneCount(r.Values) {
			faults = append(faults, fmt.Sprintf("operator %s of key %q needs exactly one value, an integer of at least 0, not %q", r.Operator, r.Key, r.Values))
		}
	case corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
	default:
		faults = append(faults, fmt.Sprintf("operator %q of key %q is unknown; use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte", r.Operator, r.Key))
	}
	if len(faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}

func isOneCount(values []string) bool {
	if len(values) != 1 {
		return false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return err == nil && n >= 0
}

// inFaults checks the number of values, and for keys with a closed set, of values that exist.
func inFaults(r karpv1.NodeSelectorRequirementWithMinValues) []string {
	if len(r.Values) == 0 {
		return []string{fmt.Sprintf("operator In of key %q needs a value", r.Key)}
	}
	least := 0
	if r.MinValues != nil {
		least = *r.MinValues
	}
	var faults []string
	if least > len(r.Values) {
		faults = append(faults, fmt.Sprintf("minValues %d of key %q is more than its %d values", least, r.Key, len(r.Values)))
	}
	known, closed := knownValues[requirement.NormalizeKey(r.Key)]
	if !closed {
		return faults
	}
	usable := 0
	for _, value := range slices.Compact(slices.Sorted(slices.Values(r.Values))) {
		if slices.Contains(known, value) {
			usable++
		}
	}
	switch {
	case usable == 0:
		faults = append(faults, fmt.Sprintf("none of the values %q of key %q exists; use some of %q", r.Values, r.Key, known))
	case usable < least:
		faults = append(faults, fmt.Sprintf("minValues %d of key %q is more than the %d of its values that exist", least, r.Key, usable))
	}
	return faults
}

func validateTaints(taints, startup []corev1.Taint) error {
	var errs []error
	seen := map[string]string{}
	check := func(field string, list []corev1.Taint) {
		for i, t := range list {
			at := fmt.Sprintf("spec.template.spec.%s[%d]", field, i)
			if faults := taintFaults(t); len(faults) > 0 {
				errs = append(errs, fmt.Errorf("%s: %s", at, strings.Join(faults, "; ")))
			}
			pair := t.Key + ":" + string(t.Effect)
			if first, twice := seen[pair]; twice {
				errs = append(errs, fmt.Errorf("%s: taint %s is in %s already; remove one", at, pair, first))
				continue
			}
			seen[pair] = at
		}
	}
	check("taints", taints)
	check("startupTaints", startup)
	return errors.Join(errs...)
}

func taintFaults(t corev1.Taint) []string {
	var faults []string
	for _, fault := range validation.IsQualifiedName(t.Key) {
		faults = append(faults, fmt.Sprintf("key %q: %s", t.Key, fault))
	}
	if t.Value != "" {
		for _, fault := range validation.IsQualifiedName(t.Value) {
			faults = append(faults, fmt.Sprintf("value %q: %s", t.Value, fault))
		}
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		faults = append(faults, fmt.Sprintf("effect %q is unknown; use NoSchedule, PreferNoSchedule or NoExecute", t.Effect))
	}
	return faults
}
