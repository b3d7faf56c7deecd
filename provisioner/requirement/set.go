package requirement

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// Set holds at most one requirement per key; all must hold. Clone a shared one before Add or Merge.
type Set map[string]Requirement

// NewSet returns the conjunction of the requirements.
func NewSet(rs ...Requirement) Set {
	s := make(Set, len(rs))
	s.Add(rs...)
	return s
}

// FromLabels requires exactly these labels.
func FromLabels(labels map[string]string) Set {
	s := make(Set, len(labels))
	for key, value := range labels {
		s.Add(Requirement{key: NormalizeKey(key), present: true, values: []string{value}})
	}
	return s
}

// FromNodeSelector reads the requirements of one node selector term.
func FromNodeSelector(rs []corev1.NodeSelectorRequirement) Set {
	s := make(Set, len(rs))
	for _, r := range rs {
		s.Add(New(r.Key, r.Operator, r.Values...))
	}
	return s
}

// FromClaim reads the requirements of a NodePool or NodeClaim.
func FromClaim(rs []karpv1.NodeSelectorRequirementWithMinValues) Set {
	s := make(Set, len(rs))
	for _, r := range rs {
		added := New(r.Key, r.Operator, r.Values...)
		if r.MinValues != nil {
			added.minValues = int(*r.MinValues)
		}
		s.Add(added)
	}
	return s
}

// Add narrows the set by more requirements.
func (s Set) Add(rs ...Requirement) {
	for _, r := range rs {
		if have, ok := s[r.key]; ok {
			r = have.Intersection(r)
		}
		s[r.key] = r
	}
}

// Merge narrows the set by every requirement of another.
func (s Set) Merge(o Set) {
	for _, r := range o {
		s.Add(r)
	}
}

// Get returns the requirement of a key; a key without one allows everything.
func (s Set) Get(key string) Requirement {
	key = NormalizeKey(key)
	if r, ok := s[key]; ok {
		return r
	}
	return Requirement{key: key, complement: true}
}

// Has reports whether the set says something about the key.
func (s Set) Has(key string) bool {
	_, ok := s[NormalizeKey(key)]
	return ok
}

// Keys returns the keys, sorted.
func (s Set) Keys() []string { return slices.Sorted(maps.Keys(s)) }

// Clone returns a copy that may be changed.
func (s Set) Clone() Set { return maps.Clone(s) }

// Signature returns a string that equal sets share and different ones do not.
func (s Set) Signature() string {
	var b []byte
	for _, key := range s.Keys() {
		b = s[key].appendSignature(b)
	}
	return string(b)
}

// Labels returns the labels that the set decides: keys with exactly one value.
func (s Set) Labels() map[string]string {
	labels := make(map[string]string, len(s))
	for key, r := range s {
		if value, ok := r.Single(); ok {
			labels[key] = value
		}
	}
	return labels
}

// Compatible reports why pods that demand incoming cannot run on what s describes, nil when they can.
// A key that s does not define is fine when allowUndefined accepts it (well-known keys of a node that
// is not launched yet) or when its absence satisfies the demand. allowUndefined may be nil.
func (s Set) Compatible(incoming Set, allowUndefined func(key string) bool) error {
	for _, key := range incoming.Keys() {
		demand := incoming[key]
		have, defined := s[key]
		if !defined {
			if (allowUndefined != nil && allowUndefined(key) && !demand.impossible()) || demand.AllowsAbsence() {
				continue
			}
			return fmt.Errorf("label %q does not have known values%s", key, s.hint(key))
		}
		if !have.Meets(demand) {
			return fmt.Errorf("label %q: have %s, want %s", key, have, demand)
		}
	}
	return nil
}

// hint offers a defined or well-known key that the unknown one may have meant.
func (s Set) hint(key string) string {
	candidates := append(s.Keys(), sortedWellKnown...)
	_, name, _ := strings.Cut(key, "/")
	for _, candidate := range candidates {
		_, candidateName, _ := strings.Cut(candidate, "/")
		if strings.Contains(candidate, key) || (name != "" && name == candidateName) {
			return fmt.Sprintf(" (typo of %q?)", candidate)
		}
	}
	return ""
}

// Allows is Compatible for callers that do not need to know what is in the way.
func (s Set) Allows(incoming Set, allowUndefined func(key string) bool) bool {
	for key, demand := range incoming {
		have, defined := s[key]
		switch {
		case !defined && ((allowUndefined != nil && allowUndefined(key)) || demand.AllowsAbsence()):
		case !defined || !have.Meets(demand):
			return false
		}
	}
	return true
}

// Overlaps is Intersects for callers that do not need to know what is in the way.
func (s Set) Overlaps(o Set) bool {
	small, large := s, o
	if len(large) < len(small) {
		small, large = large, small
	}
	for key, r := range small {
		if other, ok := large[key]; ok && !r.Meets(other) {
			return false
		}
	}
	return true
}

// Intersects reports the first key, in order, on which the sets exclude each other; nil when none does.
func (s Set) Intersects(o Set) error {
	small, large := s, o
	if len(large) < len(small) {
		small, large = large, small
	}
	var conflict string
	for key, r := range small {
		if other, ok := large[key]; ok && !r.Meets(other) && (conflict == "" || key < conflict) {
			conflict = key
		}
	}
	if conflict == "" {
		return nil
	}
	return fmt.Errorf("label %q: have %s, want %s", conflict, s[conflict], o[conflict])
}

// Product returns every conjunction of one alternative of each list that does not exclude itself, each
// once, in the order of the lists. An empty list allows nothing.
func Product(a, b []Set) []Set {
	var out []Set
	seen := map[string]bool{}
	for _, one := range a {
		for _, other := range b {
			if one.Intersects(other) != nil {
				continue
			}
			both := make(Set, len(one)+len(other))
			both.Merge(one)
			both.Merge(other)
			if id := both.Signature(); !seen[id] {
				seen[id] = true
				out = append(out, both)
			}
		}
	}
	return out
}

// ToClaim renders the set as NodeClaim requirements, sorted by key. Bounds become Gte and Lte items;
// exclusions beside bounds are lost, as the API cannot say both.
func (s Set) ToClaim() []karpv1.NodeSelectorRequirementWithMinValues {
	out := make([]karpv1.NodeSelectorRequirementWithMinValues, 0, len(s))
	for _, key := range s.Keys() {
		out = append(out, s[key].toClaim()...)
	}
	return out
}

func (r Requirement) toClaim() []karpv1.NodeSelectorRequirementWithMinValues {
	item := func(op corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		out := karpv1.NodeSelectorRequirementWithMinValues{Key: r.key, Operator: op, Values: values}
		if r.minValues > 0 {
			n := r.minValues
			out.MinValues = &n
		}
		return out
	}
	if !r.complement || (r.gte == nil && r.lte == nil) {
		out := []karpv1.NodeSelectorRequirementWithMinValues{item(r.Operator(), slices.Clone(r.values)...)}
		if r.present && out[0].Operator == corev1.NodeSelectorOpNotIn {
			out = append(out, item(corev1.NodeSelectorOpExists))
		}
		return out
	}
	var out []karpv1.NodeSelectorRequirementWithMinValues
	if r.gte != nil {
		out = append(out, item(karpv1.OperatorGte, strconv.FormatInt(*r.gte, 10)))
	}
	if r.lte != nil {
		out = append(out, item(karpv1.OperatorLte, strconv.FormatInt(*r.lte, 10)))
	}
	return out
}
