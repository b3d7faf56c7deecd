package requirement

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// Requirement says which values one label key may have: a set of strings or the complement of one,
// within inclusive integer bounds. The zero value matches nothing.
type Requirement struct {
	key        string
	complement bool
	// present says that the label must be there, as every operator but NotIn and DoesNotExist demands. With
	// an empty set, nothing satisfies the requirement.
	present bool
	values  []string // sorted, without duplicates
	// Bounds hold only for complements: a concrete set has been filtered by them.
	gte, lte  *int64
	minValues int
}

// New makes a requirement from an operator as it stands in a NodePool, NodeClaim or pod. The key is
// normalised. A numeric operator whose value is not one integer, or an unknown operator, matches
// nothing: admission and validation report such input, the algebra only has to stay safe.
func New(key string, op corev1.NodeSelectorOperator, values ...string) Requirement {
	r := Requirement{key: NormalizeKey(key), present: op != corev1.NodeSelectorOpNotIn && op != corev1.NodeSelectorOpDoesNotExist}
	switch op {
	case corev1.NodeSelectorOpIn:
		r.values = normalized(values)
	case corev1.NodeSelectorOpNotIn:
		r.complement, r.values = true, normalized(values)
	case corev1.NodeSelectorOpExists:
		r.complement = true
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.OperatorGte, karpv1.OperatorLte:
		return r.withBound(op, values)
	case corev1.NodeSelectorOpDoesNotExist:
	}
	return r
}

func (r Requirement) withBound(op corev1.NodeSelectorOperator, values []string) Requirement {
	if len(values) != 1 {
		return r
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return r
	}
	switch op {
	case corev1.NodeSelectorOpGt:
		if n == math.MaxInt64 {
			return r // nothing is greater
		}
		n++
		r.gte = &n
	case karpv1.OperatorGte:
		r.gte = &n
	case corev1.NodeSelectorOpLt:
		if n == math.MinInt64 {
			return r
		}
		n--
		r.lte = &n
	default:
		r.lte = &n
	}
	r.complement = true
	return r
}

func normalized(values []string) []string {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		return nil
	}
	return slices.Compact(sorted)
}

// Key returns the normalised label key.
func (r Requirement) Key() string { return r.key }

// MinValues returns how many values must remain among the instance types of a claim, 0 for no demand.
func (r Requirement) MinValues() int { return r.minValues }

// WithMinValues returns the requirement with another demand for flexibility.
func (r Requirement) WithMinValues(n int) Requirement {
	r.minValues = n
	return r
}

// Values returns the members of a concrete set, or the exclusions of a complement, sorted. The slice
// must not be changed.
func (r Requirement) Values() []string { return r.values }

// IsConcrete reports whether Values lists everything that matches.
func (r Requirement) IsConcrete() bool { return !r.complement }

// IsEmpty reports whether no value matches: the label must be absent, or nothing will do.
func (r Requirement) IsEmpty() bool { return !r.complement && len(r.values) == 0 }

// impossible reports whether neither a value nor absence satisfies the requirement.
func (r Requirement) impossible() bool { return r.IsEmpty() && r.present }

// IsAny reports whether every value matches.
func (r Requirement) IsAny() bool {
	return r.complement && len(r.values) == 0 && r.gte == nil && r.lte == nil
}

// Bounds returns the inclusive integer bounds, nil for none.
func (r Requirement) Bounds() (gte, lte *int64) { return r.gte, r.lte }

// Single returns the value when exactly one matches.
func (r Requirement) Single() (string, bool) {
	if r.complement || len(r.values) != 1 {
		return "", false
	}
	return r.values[0], true
}

// Operator returns the operator that describes the requirement best. Bounded complements are Gte when
// they have a lower bound, else Lte.
func (r Requirement) Operator() corev1.NodeSelectorOperator {
	switch {
	case !r.complement && len(r.values) == 0:
		return corev1.NodeSelectorOpDoesNotExist
	case !r.complement:
		return corev1.NodeSelectorOpIn
	case r.gte != nil:
		return karpv1.OperatorGte
	case r.lte != nil:
		return karpv1.OperatorLte
	case len(r.values) > 0:
		return corev1.NodeSelectorOpNotIn
	default:
		return corev1.NodeSelectorOpExists
	}
}

// AllowsAbsence reports whether a node without the label satisfies the requirement, as NotIn and
// DoesNotExist do in Kubernetes.
func (r Requirement) AllowsAbsence() bool {
	op := r.Operator()
	return !r.present && (op == corev1.NodeSelectorOpNotIn || op == corev1.NodeSelectorOpDoesNotExist)
}

// Has reports whether the value matches.
func (r Requirement) Has(value string) bool {
	_, listed := slices.BinarySearch(r.values, value)
	if !r.complement {
		return listed
	}
	return !listed && within(value, r.gte, r.lte)
}

func within(value string, gte, lte *int64) bool {
	if gte == nil && lte == nil {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (gte == nil || n >= *gte) && (lte == nil || n <= *lte)
}

// Intersection returns what matches both. The keys must be equal; minValues is the greater one.
func (r Requirement) Intersection(o Requirement) Requirement {
	out := Requirement{key: r.key, minValues: max(r.minValues, o.minValues), present: r.present || o.present}
	switch {
	case !r.complement:
		out.values = filter(r.values, o.Has)
	case !o.complement:
		out.values = filter(o.values, r.Has)
	default:
		out.gte, out.lte = tighter(r.gte, o.gte, true), tighter(r.lte, o.lte, false)
		if out.gte != nil && out.lte != nil && *out.gte > *out.lte {
			return Requirement{key: r.key, minValues: out.minValues, present: true}
		}
		out.complement = true
		out.values = union(r.values, o.values)
	}
	return out
}

func filter(values []string, keep func(string) bool) []string {
	for i, v := range values {
		if keep(v) {
			continue
		}
		out := slices.Clone(values[:i])
		for _, w := range values[i+1:] {
			if keep(w) {
				out = append(out, w)
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return values // shared: requirements are immutable
}

func union(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	return normalized(append(slices.Clone(a), b...))
}

func tighter(a, b *int64, lower bool) *int64 {
	if a == nil || (b != nil && (*b > *a) == lower && *a != *b) {
		return b
	}
	return a
}

// Intersects reports whether some value matches both, without building the intersection.
func (r Requirement) Intersects(o Requirement) bool {
	switch {
	case !r.complement:
		return slices.ContainsFunc(r.values, o.Has)
	case !o.complement:
		return slices.ContainsFunc(o.values, r.Has)
	}
	gte, lte := tighter(r.gte, o.gte, true), tighter(r.lte, o.lte, false)
	return gte == nil || lte == nil || *gte <= *lte
}

// Meets reports whether a node that has r for the key satisfies the demand: some value is left, or both
// sides are content without the label.
func (r Requirement) Meets(demand Requirement) bool {
	return r.Intersects(demand) || (r.AllowsAbsence() && demand.AllowsAbsence())
}

// appendSignature writes what tells the requirement apart from all others.
func (r Requirement) appendSignature(b []byte) []byte {
	b = append(b, r.key...)
	if r.complement {
		b = append(b, '!')
	}
	if r.present && (r.complement || len(r.values) == 0) {
		b = append(b, '+')
	}
	for _, bound := range []*int64{r.gte, r.lte} {
		b = append(b, 0)
		if bound != nil {
			b = strconv.AppendInt(b, *bound, 10)
		}
	}
	b = strconv.AppendInt(append(b, 0), int64(r.minValues), 10)
	for _, v := range r.values {
		b = append(append(b, 0), v...)
	}
	return append(b, 1)
}

// Signature returns a string that equal requirements share and different ones do not.
func (r Requirement) Signature() string { return string(r.appendSignature(nil)) }

// Any picks a value that matches, for labels that a node must have and that nobody decided. Concrete
// sets give their first member; others give an integer made from the seed within the bounds. ok is
// false when the label must be absent.
func (r Requirement) Any(seed uint64) (value string, ok bool) {
	if !r.complement {
		if len(r.values) == 0 {
			return "", false
		}
		return r.values[0], true
	}
	low, high := int64(0), int64(math.MaxInt32)
	if r.gte != nil {
		low = *r.gte
		high = max(high, low)
	}
	if r.lte != nil {
		high = *r.lte
		if r.gte == nil {
			low = min(low, high)
		}
	}
	span := uint64(high-low) + 1
	// Exclusions are finite, so one of the next len(values)+1 integers is free if the span is wide enough.
	for i := range uint64(len(r.values)) + 1 {
		offset := seed + i
		if span != 0 {
			offset %= span
		}
		if v := strconv.FormatInt(low+int64(offset), 10); r.Has(v) { //nolint:gosec // wraps within the span
			return v, true
		}
	}
	return "", false
}

// String renders the requirement for messages, for example `team In [a, b]`.
func (r Requirement) String() string {
	op := r.Operator()
	switch op {
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		return r.key + " " + string(op)
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		return fmt.Sprintf("%s %s [%s]", r.key, op, abbreviate(r.values))
	default:
		parts := make([]string, 0, 2)
		if r.gte != nil {
			parts = append(parts, fmt.Sprintf("%s Gte %d", r.key, *r.gte))
		}
		if r.lte != nil {
			parts = append(parts, fmt.Sprintf("%s Lte %d", r.key, *r.lte))
		}
		return strings.Join(parts, " and ")
	}
}

// abbreviate lists the first values; long lists of instance types would drown a message.
func abbreviate(values []string) string {
	const shown = 5
	if len(values) <= shown {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(values[:shown], ", "), len(values)-shown)
}
