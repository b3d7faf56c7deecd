package requirement_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
)

const (
	in           = corev1.NodeSelectorOpIn
	notIn        = corev1.NodeSelectorOpNotIn
	exists       = corev1.NodeSelectorOpExists
	doesNotExist = corev1.NodeSelectorOpDoesNotExist
	gt           = corev1.NodeSelectorOpGt
	lt           = corev1.NodeSelectorOpLt
	gte          = karpv1.OperatorGte
	lte          = karpv1.OperatorLte
)

func TestHasFollowsTheOperator(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		r    requirement.Requirement
		yes  []string
		no   []string
		want corev1.NodeSelectorOperator
	}{
		"In":                           {r: requirement.New("k", in, "b", "a"), yes: []string{"a", "b"}, no: []string{"c", ""}, want: in},
		"NotIn":                        {r: requirement.New("k", notIn, "a"), yes: []string{"b", ""}, no: []string{"a"}, want: notIn},
		"NotIn without values, Exists": {r: requirement.New("k", notIn), yes: []string{"a"}, want: exists},
		"Exists":                       {r: requirement.New("k", exists), yes: []string{"a", ""}, want: exists},
		"DoesNotExist":                 {r: requirement.New("k", doesNotExist), no: []string{"a", ""}, want: doesNotExist},
		"Gt is exclusive":              {r: requirement.New("k", gt, "2"), yes: []string{"3", "100"}, no: []string{"2", "x", ""}, want: gte},
		"Gte is inclusive":             {r: requirement.New("k", gte, "2"), yes: []string{"2"}, no: []string{"1", "2.5"}, want: gte},
		"Lt is exclusive":              {r: requirement.New("k", lt, "2"), yes: []string{"1", "-5"}, no: []string{"2"}, want: lte},
		"Lte is inclusive":             {r: requirement.New("k", lte, "2"), yes: []string{"2"}, no: []string{"3"}, want: lte},
		"Gt MaxInt matches nothing":    {r: requirement.New("k", gt, strconv.Itoa(math.MaxInt64)), no: []string{"1"}, want: doesNotExist},
		"Gt of a word matches nothing": {r: requirement.New("k", gt, "x"), no: []string{"1"}, want: doesNotExist},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range tc.yes {
				require.True(t, tc.r.Has(v), "%s has %q", tc.r, v)
			}
			for _, v := range tc.no {
				require.False(t, tc.r.Has(v), "%s has %q", tc.r, v)
			}
			require.Equal(t, tc.want, tc.r.Operator())
		})
	}
}

func TestIntersection(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		a, b requirement.Requirement
		want string
	}{
		"set and set":                   {a: requirement.New("k", in, "a", "b"), b: requirement.New("k", in, "b", "c"), want: "k In [b]"},
		"set and complement":            {a: requirement.New("k", in, "a", "b"), b: requirement.New("k", notIn, "a"), want: "k In [b]"},
		"complements unite":             {a: requirement.New("k", notIn, "a"), b: requirement.New("k", notIn, "b"), want: "k NotIn [a, b]"},
		"bounds filter a set":           {a: requirement.New("k", in, "1", "5", "x"), b: requirement.New("k", gt, "2"), want: "k In [5]"},
		"bounds tighten":                {a: requirement.New("k", gte, "2"), b: requirement.New("k", gt, "4"), want: "k Gte 5"},
		"two bounds stay two":           {a: requirement.New("k", gte, "2"), b: requirement.New("k", lte, "8"), want: "k Gte 2 and k Lte 8"},
		"CORE-040 crossed bounds: none": {a: requirement.New("k", gte, "9"), b: requirement.New("k", lte, "8"), want: "k DoesNotExist"},
		"nothing in common":             {a: requirement.New("k", in, "a"), b: requirement.New("k", in, "b"), want: "k DoesNotExist"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.a.Intersection(tc.b).String())
			require.Equal(t, tc.want, tc.b.Intersection(tc.a).String())
		})
	}
	require.Equal(t, 3, requirement.New("k", exists).WithMinValues(2).Intersection(requirement.New("k", exists).WithMinValues(3)).MinValues())
}

func TestCompatible(t *testing.T) {
	t.Parallel()
	pool := requirement.NewSet(requirement.New("team", in, "a", "b"))
	tests := map[string]struct {
		incoming requirement.Set
		template bool
		wantErr  string
	}{
		"a value of the pool":                        {incoming: requirement.FromLabels(map[string]string{"team": "a"})},
		"another value":                              {incoming: requirement.FromLabels(map[string]string{"team": "c"}), wantErr: `label "team"`},
		"PROV-010 unknown label":                     {incoming: requirement.FromLabels(map[string]string{"x": "y"}), template: true, wantErr: `label "x" does not have known values`},
		"PROV-011 NotIn on an unknown key":           {incoming: requirement.NewSet(requirement.New("x", notIn, "y"))},
		"well-known keys are open for a template":    {incoming: requirement.FromLabels(map[string]string{"kubernetes.io/arch": "arm64"}), template: true},
		"well-known keys are closed for a real node": {incoming: requirement.FromLabels(map[string]string{"kubernetes.io/arch": "arm64"}), wantErr: "does not have known values"},
		"CORE-043 aliases are one key":               {incoming: requirement.FromLabels(map[string]string{"beta.kubernetes.io/arch": "arm64"}), template: true},
		"a typo gets a hint":                         {incoming: requirement.FromLabels(map[string]string{"topology.k8s.io/zone": "a"}), template: true, wantErr: `typo of "topology.kubernetes.io/zone"?`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var open func(string) bool
			if tc.template {
				open = requirement.IsWellKnown
			}
			err := pool.Compatible(tc.incoming, open)
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
}

func TestToClaim(t *testing.T) {
	t.Parallel()
	three := 3
	s := requirement.FromClaim([]karpv1.NodeSelectorRequirementWithMinValues{
		{Key: "cpu", Operator: gt, Values: []string{"2"}},
		{Key: "cpu", Operator: lte, Values: []string{"8"}},
		{Key: "family", Operator: exists, MinValues: &three},
		{Key: "beta.kubernetes.io/os", Operator: in, Values: []string{"linux"}},
	})
	require.Equal(t, []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: "cpu", Operator: gte, Values: []string{"3"}}, // CORE-038
		{Key: "cpu", Operator: lte, Values: []string{"8"}}, // CORE-039
		{Key: "family", Operator: exists, MinValues: &three},
		{Key: "kubernetes.io/os", Operator: in, Values: []string{"linux"}},
	}, s.ToClaim())
}

func TestAny(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		r     requirement.Requirement
		check func(string) bool
		none  bool
	}{
		"In gives a member":                {r: requirement.New("k", in, "b", "a"), check: func(v string) bool { return v == "a" }},
		"Exists gives an integer":          {r: requirement.New("k", exists), check: func(v string) bool { _, err := strconv.Atoi(v); return err == nil }},
		"bounds hold":                      {r: requirement.New("k", gte, "5").Intersection(requirement.New("k", lte, "6")), check: func(v string) bool { return v == "5" || v == "6" }},
		"exclusions hold":                  {r: requirement.New("k", notIn, "7"), check: func(v string) bool { return v != "7" }},
		"DoesNotExist gives no label":      {r: requirement.New("k", doesNotExist), none: true},
		"bounds and exclusions leave none": {r: requirement.New("k", gte, "5").Intersection(requirement.New("k", lte, "5")).Intersection(requirement.New("k", notIn, "5")), none: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(50) {
				value, ok := tc.r.Any(seed * 7)
				require.Equal(t, !tc.none, ok)
				require.True(t, tc.none || tc.check(value), value)
				require.True(t, tc.none || tc.r.Has(value), value)
			}
		})
	}
}

// FuzzLaws: intersection commutes, is idempotent and agrees with Has; Intersects agrees with it.
func FuzzLaws(f *testing.F) {
	f.Add(uint8(0), "a", "b", uint8(1), "a", "5", "7")
	f.Add(uint8(4), "2", "", uint8(7), "9", "", "4")
	ops := []corev1.NodeSelectorOperator{in, notIn, exists, doesNotExist, gt, lt, gte, lte}
	build := func(op uint8, v, w string) requirement.Requirement {
		switch o := ops[int(op)%len(ops)]; o {
		case in, notIn:
			return requirement.New("k", o, v, w)
		case exists, doesNotExist:
			return requirement.New("k", o)
		default:
			return requirement.New("k", o, v)
		}
	}
	f.Fuzz(func(t *testing.T, opA uint8, a1, a2 string, opB uint8, b1, b2, probe string) {
		a, b := build(opA, a1, a2), build(opB, b1, b2)
		ab, ba := a.Intersection(b), b.Intersection(a)
		require.Equal(t, ab, ba)
		require.Equal(t, a, a.Intersection(a))
		for _, v := range []string{probe, a1, a2, b1, b2} {
			require.Equal(t, a.Has(v) && b.Has(v), ab.Has(v), "%s and %s on %q", a, b, v)
		}
		require.Equal(t, a.Intersects(b), !ab.IsEmpty(), "%s and %s", a, b)
		require.Equal(t, a.Meets(b), b.Meets(a))
		require.Equal(t, ab.Signature(), ba.Signature())
		if a.Signature() == b.Signature() {
			require.Equal(t, a, b, "equal signatures of different requirements")
		}
	})
}

// FuzzSets: parsing never panics, and what is added only ever narrows.
func FuzzSets(f *testing.F) {
	f.Add("zone", "In", "a", "zone", "NotIn", "b", "a")
	f.Add("cpu", "Gt", "9223372036854775807", "cpu", "Lt", "-9223372036854775808", "0")
	f.Add("x", "Nonsense", "", "beta.kubernetes.io/arch", "Gte", "x", "y")
	f.Fuzz(func(t *testing.T, k1, op1, v1, k2, op2, v2, probe string) {
		parse := func(k, op, v string) requirement.Set {
			return requirement.FromClaim([]karpv1.NodeSelectorRequirementWithMinValues{{Key: k, Operator: corev1.NodeSelectorOperator(op), Values: []string{v}}})
		}
		a, b := parse(k1, op1, v1), parse(k2, op2, v2)
		both := a.Clone()
		both.Merge(b)
		for _, key := range both.Keys() {
			r := both[key]
			require.True(t, !r.Has(probe) || a.Get(key).Has(probe) && b.Get(key).Has(probe), "%s is wider than what it was made of", r)
			if value, ok := r.Any(7); ok {
				require.True(t, r.Has(value), "%s has %q", r, value)
			}
		}
		again := requirement.FromClaim(both.ToClaim())
		for _, key := range both.Keys() {
			require.True(t, !both[key].Has(probe) || again[key].Has(probe), "the API form of %s lost %q", both[key], probe)
		}
		require.Equal(t, a.Intersects(b) == nil, b.Intersects(a) == nil)
		_ = a.Compatible(b, requirement.IsWellKnown)
		_ = both.Signature() + both.Get(k1).String()
	})
}

func TestSignatureTellsSetsApart(t *testing.T) {
	t.Parallel()
	sets := []requirement.Set{
		{}, requirement.NewSet(requirement.New("a", in, "x")), requirement.NewSet(requirement.New("a", notIn, "x")),
		requirement.NewSet(requirement.New("a", in, "x", "y")), requirement.NewSet(requirement.New("a", exists)),
		requirement.NewSet(requirement.New("a", doesNotExist)), requirement.NewSet(requirement.New("a", gte, "1")),
		requirement.NewSet(requirement.New("a", lte, "1")), requirement.NewSet(requirement.New("a", exists).WithMinValues(1)),
		requirement.NewSet(requirement.New("a", in, "x"), requirement.New("b", in, "x")), requirement.NewSet(requirement.New("b", in, "x")),
	}
	seen := map[string]int{}
	for i, s := range sets {
		other, taken := seen[s.Signature()]
		require.False(t, taken, "sets %d and %d", i, other)
		seen[s.Signature()] = i
	}
	require.Equal(t, requirement.NewSet(requirement.New("a", in, "y", "x")).Signature(), sets[3].Signature())
}

func BenchmarkCompatible(b *testing.B) {
	node := requirement.FromLabels(map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "a", corev1.LabelInstanceTypeStable: "m5.large",
		"karpenter.k8s.aws/instance-cpu": "2", "karpenter.sh/capacity-type": "spot",
	})
	demand := requirement.NewSet(requirement.New(corev1.LabelArchStable, in, "amd64"), requirement.New(corev1.LabelTopologyZone, in, "a", "b"))
	for b.Loop() {
		if node.Compatible(demand, nil) != nil {
			b.Fatal("not compatible")
		}
	}
}

// What several expressions about one key say together about a node without the label.
func TestAbsenceAfterIntersection(t *testing.T) {
	t.Parallel()
	exists := requirement.New("k", corev1.NodeSelectorOpExists)
	absent := requirement.New("k", corev1.NodeSelectorOpDoesNotExist)
	notA := requirement.New("k", corev1.NodeSelectorOpNotIn, "a")
	isA, isB := requirement.New("k", corev1.NodeSelectorOpIn, "a"), requirement.New("k", corev1.NodeSelectorOpIn, "b")
	tests := map[string]struct {
		a, b  requirement.Requirement
		allow bool
	}{
		"NotIn and NotIn":                   {notA, notA, true},
		"NotIn and DoesNotExist":            {notA, absent, true},
		"Exists and NotIn":                  {exists, notA, false},
		"Exists and DoesNotExist":           {exists, absent, false},
		"In and another In":                 {isA, isB, false},
		"In and NotIn of the same":          {isA, notA, false},
		"In and DoesNotExist":               {isA, absent, false},
		"bounds without an integer between": {requirement.New("k", corev1.NodeSelectorOpGt, "3"), requirement.New("k", corev1.NodeSelectorOpLt, "4"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []requirement.Requirement{tc.a.Intersection(tc.b), tc.b.Intersection(tc.a)} {
				require.Equal(t, tc.allow, r.AllowsAbsence())
				require.Equal(t, tc.allow, requirement.FromLabels(nil).Compatible(requirement.NewSet(r), nil) == nil)
				back := requirement.FromClaim(requirement.NewSet(r).ToClaim())
				if !r.IsEmpty() {
					require.Equal(t, tc.allow, back["k"].AllowsAbsence(), "as a NodeClaim says it")
				}
			}
		})
	}
	anything := func(string) bool { return true }
	require.NoError(t, requirement.FromLabels(nil).Compatible(requirement.NewSet(isA), anything))
	require.Error(t, requirement.FromLabels(nil).Compatible(requirement.NewSet(isA.Intersection(isB)), anything), "no value will do")
}
