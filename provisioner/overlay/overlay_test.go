package overlay_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/overlay"
	"github.com/berth-dev/berth/provisioner/requirement"
)

func TestPrices(t *testing.T) {
	t.Parallel()
	plain := map[string]float64{"a on-demand": 1, "b on-demand": 1, "a spot": 0.4, "b spot": 0.4}
	with := func(changes map[string]float64) map[string]float64 {
		out := map[string]float64{}
		for k, v := range plain {
			out[k] = v
			if changed, ok := changes[k]; ok {
				out[k] = changed
			}
		}
		return out
	}
	all := func(onDemand, spot float64) map[string]float64 {
		return map[string]float64{"a on-demand": onDemand, "b on-demand": onDemand, "a spot": spot, "b spot": spot}
	}
	zoneA := req(corev1.LabelTopologyZone, in, "a")
	spot := req(karpv1.LabelCapacityType, in, "spot")
	list := func(o ...*v1alpha1.NodeOverlay) []*v1alpha1.NodeOverlay { return o }
	tests := map[string]struct {
		overlays []*v1alpha1.NodeOverlay
		labels   map[string]string
		want     map[string]float64
	}{
		"PROV-071 a price replaces":              {overlays: list(makeOverlay("o", ofType("m.large"), price("5.00"))), want: all(5, 5)},
		"no requirements are all":                {overlays: list(makeOverlay("o", price("5"))), want: all(5, 5)},
		"an amount more":                         {overlays: list(makeOverlay("o", adjust("+0.25"))), want: all(1.25, 0.65)},
		"an amount less ends at nothing":         {overlays: list(makeOverlay("o", adjust("-0.5"))), want: all(0.5, 0)},
		"a percentage more":                      {overlays: list(makeOverlay("o", adjust("+50%"))), want: all(1.5, 0.6)},
		"a percentage less":                      {overlays: list(makeOverlay("o", adjust("-25%"))), want: all(0.75, 0.3)},
		"for nothing":                            {overlays: list(makeOverlay("o", adjust("-100%"))), want: all(0, 0)},
		"another type":                           {overlays: list(makeOverlay("o", ofType("m.xlarge"), price("5"))), want: plain},
		"only matching offerings":                {overlays: list(makeOverlay("o", of(zoneA, spot), price("5"))), want: with(map[string]float64{"a spot": 5})},
		"no such offering":                       {overlays: list(makeOverlay("o", of(req(corev1.LabelTopologyZone, in, "c")), price("5"))), want: plain},
		"by number":                              {overlays: list(makeOverlay("o", of(req("karpenter.k8s.aws/instance-cpu", corev1.NodeSelectorOpGt, "3")), price("5"))), want: all(5, 5)},
		"by number, too small":                   {overlays: list(makeOverlay("o", of(req("karpenter.k8s.aws/instance-cpu", corev1.NodeSelectorOpGt, "4")), price("5"))), want: plain},
		"a label that the type lacks":            {overlays: list(makeOverlay("o", of(req("karpenter.k8s.aws/instance-gpu-name", exists)), price("5"))), want: plain},
		"the lack of a label":                    {overlays: list(makeOverlay("o", of(req("karpenter.k8s.aws/instance-gpu-name", doesNotExist)), price("5"))), want: all(5, 5)},
		"a label that nobody defines":            {overlays: list(makeOverlay("o", of(req("example.com/team", exists)), price("5"))), want: plain},
		"a well-known label that nobody defines": {overlays: list(makeOverlay("o", of(req("karpenter.k8s.aws/instance-family", in, "m")), price("5"))), want: plain},
		"NotIn of a label that nobody defines":   {overlays: list(makeOverlay("o", of(req("example.com/team", notIn, "a")), price("5"))), want: all(5, 5)},
		"a label of the template": {
			overlays: list(makeOverlay("o", of(req("example.com/team", in, "a")), price("5"))), labels: map[string]string{"example.com/team": "a"}, want: all(5, 5),
		},
		"another value of a label of the template": {
			overlays: list(makeOverlay("o", of(req("example.com/team", in, "a")), price("5"))), labels: map[string]string{"example.com/team": "b"}, want: plain,
		},
		"NotIn of a label of the template": {
			overlays: list(makeOverlay("o", of(req("example.com/team", notIn, "b")), price("5"))), labels: map[string]string{"example.com/team": "b"}, want: plain,
		},
		"the pool":      {overlays: list(makeOverlay("o", of(req(karpv1.LabelNodePool, in, "default")), price("5"))), want: all(5, 5)},
		"another pool":  {overlays: list(makeOverlay("o", of(req(karpv1.LabelNodePool, in, "other")), price("5"))), want: plain},
		"the class":     {overlays: list(makeOverlay("o", of(req("karpenter.k8s.aws/ec2nodeclass", in, "class")), price("5"))), want: all(5, 5)},
		"an alias":      {overlays: list(makeOverlay("o", of(req("failure-domain.beta.kubernetes.io/zone", in, "a")), price("5"))), want: with(map[string]float64{"a on-demand": 5, "a spot": 5})},
		"two of a key":  {overlays: list(makeOverlay("o", of(req(corev1.LabelTopologyZone, in, "a", "b"), req(corev1.LabelTopologyZone, notIn, "a")), price("5"))), want: with(map[string]float64{"b on-demand": 5, "b spot": 5})},
		"impossible":    {overlays: list(makeOverlay("o", of(req(corev1.LabelTopologyZone, in, "a"), req(corev1.LabelTopologyZone, in, "b")), price("5"))), want: plain},
		"capacity only": {overlays: list(makeOverlay("o", capacity(vendor, "1"))), want: plain},
		"the greatest weight wins, offering by offering": {
			overlays: list(makeOverlay("z", price("9")), makeOverlay("a", of(spot), price("2"), weight(10)), makeOverlay("m", of(zoneA), price("5"), weight(5))),
			want:     map[string]float64{"a spot": 2, "b spot": 2, "a on-demand": 5, "b on-demand": 9},
		},
		"adjustments do not add up": {overlays: list(makeOverlay("a", adjust("+50%"), weight(2)), makeOverlay("b", adjust("+50%"), weight(1))), want: all(1.5, 0.6)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, before, pristine := makePool("default", tc.labels), machine("m.large"), machine("m.large")
			types := []*catalog.InstanceType{before}
			got := overlay.Apply(rules(t, tc.overlays...), pool, types, nil)
			require.InDeltaMapValues(t, tc.want, prices(got[0]), 1e-9)
			require.InDeltaMapValues(t, plain, prices(before), 0, "what is given stays as it was")
			require.Equal(t, pristine.Capacity, before.Capacity)
			require.Equal(t, before.Capacity, got[0].Capacity.With(vendor, 0))
			changed := false
			for _, o := range tc.overlays {
				changed = changed || o.Spec.Capacity == nil && !mapsEqual(tc.want, plain)
			}
			require.Equal(t, changed, got[0].PriceOverlaid)
		})
	}
}

func mapsEqual(a, b map[string]float64) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestCapacity(t *testing.T) {
	t.Parallel()
	pool := makePool("default", nil)
	zoneA := of(req(corev1.LabelTopologyZone, in, "a"))
	t.Run("PROV-073 declared resources are allocatable", func(t *testing.T) {
		t.Parallel()
		given := []*catalog.InstanceType{machine("m.large"), machine("m.xlarge")}
		got := overlay.Apply(rules(t, makeOverlay("o", ofType("m.xlarge"), capacity(vendor, "4"))), pool, given, nil)
		require.Same(t, given[0], got[0], "a type that is not meant is not copied")
		require.False(t, got[0].CapacityOverlaid)
		require.True(t, got[1].CapacityOverlaid)
		require.False(t, got[1].PriceOverlaid)
		require.EqualValues(t, 4, got[1].Allocatable().Get(vendor))
		require.EqualValues(t, 3900, got[1].Allocatable().MilliCPU)
		require.Zero(t, given[1].Capacity.Get(vendor), "what is given stays as it was")
	})
	t.Run("one matching offering is enough, and weights decide by resource", func(t *testing.T) {
		t.Parallel()
		got := overlay.Apply(rules(t,
			makeOverlay("low", capacity(vendor, "1"), capacity("vendor/y", "2")),
			makeOverlay("high", zoneA, capacity(vendor, "8"), weight(3)),
		), pool, []*catalog.InstanceType{machine("m.large")}, nil)
		require.EqualValues(t, 8, got[0].Capacity.Get(vendor))
		require.EqualValues(t, 2, got[0].Capacity.Get("vendor/y"))
	})
	t.Run("no offering, no capacity", func(t *testing.T) {
		t.Parallel()
		given := []*catalog.InstanceType{machine("m.large")}
		got := overlay.Apply(rules(t, makeOverlay("o", of(req(corev1.LabelTopologyZone, in, "c")), capacity(vendor, "1"))), pool, given, nil)
		require.Same(t, &given[0], &got[0], "the very list, when nothing changes")
	})
	t.Run("huge pages come out of memory", func(t *testing.T) {
		t.Parallel()
		before := machine("m.large")
		got := overlay.Apply(rules(t, makeOverlay("o", capacity("hugepages-2Mi", "1Gi"))), pool, []*catalog.InstanceType{before}, nil)
		require.Equal(t, before.Allocatable().Memory-1<<30, got[0].Allocatable().Memory)
	})
	t.Run("what was found on a node is the limit", func(t *testing.T) {
		t.Parallel()
		applied := rules(t, makeOverlay("o", capacity(vendor, "4")))
		given := []*catalog.InstanceType{machine("m.large"), machine("m.xlarge")}
		seen := overlay.Seen{}
		put := func(instanceType string, have int64) {
			target := overlay.Target{Rule: "uid-o", Pool: "default", Type: instanceType, Resource: vendor}
			seen[target] = overlay.Finding{Target: target, Have: have, Declared: 4}
		}
		put("m.large", 2)
		got := overlay.Apply(applied, pool, given, seen)
		require.EqualValues(t, 2, got[0].Capacity.Get(vendor))
		require.EqualValues(t, 4, got[1].Capacity.Get(vendor))
		require.EqualValues(t, 4, overlay.Apply(applied, makePool("other", nil), given, seen)[0].Capacity.Get(vendor), "another pool has other machine images")
		put("", 0)
		for _, it := range overlay.Apply(applied, pool, given, seen) {
			require.Zero(t, it.Capacity.Get(vendor))
			require.NotContains(t, it.Capacity.Names(), vendor)
		}
	})
}

func TestPriceForTypesWithoutOne(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		overlay *v1alpha1.NodeOverlay
		want    bool
	}{
		"a price for the type":         {overlay: makeOverlay("o", ofType("m.large"), price("5")), want: true},
		"more requirements":            {overlay: makeOverlay("o", of(req(corev1.LabelInstanceTypeStable, in, "m.large"), req(corev1.LabelTopologyZone, in, "a")), price("5"))},
		"not by name":                  {overlay: makeOverlay("o", price("5"))},
		"an adjustment of no price":    {overlay: makeOverlay("o", ofType("m.large"), adjust("+5"))},
		"the names that are not meant": {overlay: makeOverlay("o", of(req(corev1.LabelInstanceTypeStable, notIn, "m.xlarge")), price("5"))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			it := machine("m.large")
			it.Offerings[0].Available, it.Offerings[0].Unpriced, it.Offerings[0].Price = false, true, 0
			it.Offerings[1].Available = false // for another reason
			got := overlay.Apply(rules(t, tc.overlay), makePool("default", nil), []*catalog.InstanceType{it}, nil)[0]
			require.Equal(t, tc.want, got.Offerings[0].Available)
			require.Equal(t, !tc.want, got.Offerings[0].Unpriced)
			require.False(t, got.Offerings[1].Available)
			require.False(t, it.Offerings[0].Available, "what is given stays as it was")
		})
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	pools := []overlay.Pool{
		{NodePool: makePool("red", map[string]string{"color": "red"}), Types: []*catalog.InstanceType{machine("m.large"), machine("m.xlarge")}},
		{NodePool: makePool("blue", map[string]string{"color": "blue"}), Types: []*catalog.InstanceType{machine("m.large")}},
	}
	spot, onDemand := req(karpv1.LabelCapacityType, in, "spot"), req(karpv1.LabelCapacityType, in, "on-demand")
	list := func(o ...*v1alpha1.NodeOverlay) []*v1alpha1.NodeOverlay { return o }
	tests := map[string]struct {
		overlays  []*v1alpha1.NodeOverlay
		accepted  []string
		conflicts map[string]string // name: part of the message
	}{
		"PROV-072 one offering, one weight: the later one is not applied": {
			overlays:  list(makeOverlay("a", price("5")), makeOverlay("b", ofType("m.xlarge"), price("5"))),
			accepted:  []string{"b"},
			conflicts: map[string]string{"a": "conflict with another overlay: NodeOverlay b sets the price of m.xlarge in a, "},
		},
		"other weights":          {overlays: list(makeOverlay("a", price("5")), makeOverlay("b", price("6"), weight(1))), accepted: []string{"b", "a"}},
		"other types":            {overlays: list(makeOverlay("a", ofType("m.large"), price("5")), makeOverlay("b", ofType("m.xlarge"), price("5"))), accepted: []string{"b", "a"}},
		"other offerings":        {overlays: list(makeOverlay("a", of(spot), price("5")), makeOverlay("b", of(onDemand), price("5"))), accepted: []string{"b", "a"}},
		"other pools":            {overlays: list(makeOverlay("a", of(req("color", in, "red")), price("5")), makeOverlay("b", of(req("color", in, "blue")), price("5"))), accepted: []string{"b", "a"}},
		"a price and a capacity": {overlays: list(makeOverlay("a", price("5")), makeOverlay("b", capacity(vendor, "1"))), accepted: []string{"b", "a"}},
		"other resources":        {overlays: list(makeOverlay("a", capacity("vendor/y", "1")), makeOverlay("b", capacity(vendor, "1"))), accepted: []string{"b", "a"}},
		"one resource": {
			overlays:  list(makeOverlay("a", of(spot), capacity(vendor, "1"), weight(4)), makeOverlay("b", of(onDemand), capacity(vendor, "1"), weight(4))),
			accepted:  []string{"b"},
			conflicts: map[string]string{"a": "NodeOverlay b sets capacity vendor/x of m.large (NodePool red) too, and both have spec.weight 4; this one is not applied anywhere: give one of them another weight, or narrow its requirements"},
		},
		"what is not applied is in nobody's way": {
			overlays: list(
				makeOverlay("c", ofType("m.large"), price("5")),
				makeOverlay("b", price("5")), // conflicts with c, and is all that a would conflict with
				makeOverlay("a", ofType("m.xlarge"), price("5"))),
			accepted:  []string{"c", "a"},
			conflicts: map[string]string{"b": "NodeOverlay c sets the price of m.large"},
		},
		"a greater weight on the same offering does not settle it": {
			overlays:  list(makeOverlay("top", price("1"), weight(9)), makeOverlay("a", price("5")), makeOverlay("b", price("5"))),
			accepted:  []string{"top", "b"},
			conflicts: map[string]string{"a": "both have no spec.weight"},
		},
		"one pool is enough": {
			overlays:  list(makeOverlay("a", ofType("m.large"), price("5")), makeOverlay("b", of(req("color", in, "blue")), price("5"))),
			accepted:  []string{"b"},
			conflicts: map[string]string{"a": "(NodePool blue)"},
		},
		"matching nothing": {overlays: list(makeOverlay("a", ofType("x"), price("5")), makeOverlay("b", ofType("x"), price("5"))), accepted: []string{"b", "a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted, conflicts := overlay.Settle(rules(t, tc.overlays...), pools)
			var names []string
			for _, r := range accepted {
				names = append(names, r.Name)
			}
			require.Equal(t, tc.accepted, names)
			require.Len(t, conflicts, len(tc.conflicts))
			for name, text := range tc.conflicts {
				require.Contains(t, conflicts[name].String(), text)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		overlay *v1alpha1.NodeOverlay
		want    string // "" for valid
	}{
		"nothing at all":                   {overlay: makeOverlay("o")},
		"CORE-046 a signed price":          {overlay: makeOverlay("o", price("+4")), want: `spec.price: "+4" is no price; use USD per hour without a sign, such as 0.25`},
		"CORE-046 a price without a digit": {overlay: makeOverlay("o", price(".5")), want: `spec.price: ".5"`},
		"CORE-046 a price in percent":      {overlay: makeOverlay("o", price("42%")), want: `spec.price: "42%"`},
		"CORE-047 no sign":                 {overlay: makeOverlay("o", adjust("10%")), want: `spec.priceAdjustment: "10%" is no adjustment; use a signed amount such as +0.05`},
		"CORE-047 less than nothing":       {overlay: makeOverlay("o", adjust("-101%")), want: `spec.priceAdjustment: "-101%"`},
		"CORE-047 +298%":                   {overlay: makeOverlay("o", adjust("+298%"))},
		"CORE-047 -100%":                   {overlay: makeOverlay("o", adjust("-100%"))},
		"CORE-047 +34.43":                  {overlay: makeOverlay("o", adjust("+34.43"))},
		"CORE-048 both":                    {overlay: makeOverlay("o", price("1"), adjust("+1")), want: "cannot set both 'price' (\"1\") and 'priceAdjustment' (\"+1\"); keep one"},
		"CORE-049 cpu":                     {overlay: makeOverlay("o", capacity("cpu", "1")), want: "spec.capacity[cpu]: invalid resource restricted: the provider tells the amount of cpu itself; remove it"},
		"CORE-049 a device":                {overlay: makeOverlay("o", capacity("vendor/dev", "1"))},
		"a GPU of the provider's":          {overlay: makeOverlay("o", capacity("nvidia.com/gpu", "1")), want: "spec.capacity[nvidia.com/gpu]: invalid resource restricted"},
		"half a device":                    {overlay: makeOverlay("o", capacity(vendor, "500m")), want: "spec.capacity[vendor/x]: 500m is no whole number"},
		"fewer than none":                  {overlay: makeOverlay("o", capacity(vendor, "-1")), want: "spec.capacity[vendor/x]: -1 is negative; use 0 or more"},
		"weight":                           {overlay: makeOverlay("o", weight(10001)), want: "spec.weight: 10001 is out of range; use 1 to 10000"},
		"tenancy":                          {overlay: makeOverlay("o", of(req("karpenter.k8s.aws/instance-tenancy", in, "default"))), want: `spec.requirements[0]: key "karpenter.k8s.aws/instance-tenancy" is decided by the launch`},
		"reservation":                      {overlay: makeOverlay("o", of(req("karpenter.k8s.aws/capacity-reservation-id", exists))), want: "is decided by the launch"},
		"hostname":                         {overlay: makeOverlay("o", of(req(corev1.LabelHostname, in, "x"))), want: `key "kubernetes.io/hostname" is restricted`},
		"the domain":                       {overlay: makeOverlay("o", of(req("karpenter.sh/unknown", in, "x"))), want: `key "karpenter.sh/unknown" is restricted`},
		"the pool":                         {overlay: makeOverlay("o", of(req(karpv1.LabelNodePool, in, "x")))},
		"In nothing":                       {overlay: makeOverlay("o", of(req("a", in))), want: `operator In of key "a" needs a value`},
		"Exists with a value":              {overlay: makeOverlay("o", of(req("a", exists, "x"))), want: `operator Exists of key "a" takes no values, not ["x"]`},
		"Gt of a word":                     {overlay: makeOverlay("o", of(req("a", corev1.NodeSelectorOpGt, "x"))), want: `operator Gt of key "a" needs exactly one value, an integer of at least 0, not ["x"]`},
		"Lte of a number":                  {overlay: makeOverlay("o", of(req("a", karpv1.OperatorLte, "3")))},
		"an unknown operator":              {overlay: makeOverlay("o", of(req("a", "Like", "x"))), want: `operator "Like" of key "a" is unknown`},
		"a bad value":                      {overlay: makeOverlay("o", of(req("a", in, "-"))), want: `value "-" of key "a"`},
		"a bad key":                        {overlay: makeOverlay("o", of(req("-", in, "x"))), want: `key "-"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := overlay.Parse(tc.overlay)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := overlay.Parse(makeOverlay("o", price("x"), weight(-1), capacity("cpu", "1")))
	for _, field := range []string{"spec.price", "spec.weight", "spec.capacity[cpu]"} {
		require.ErrorContains(t, err, field, "every fault is named")
	}
}

// catalogue has 800 types of 100 families, with 9 offerings each, as a large region has.
func catalogue() []*catalog.InstanceType {
	out := make([]*catalog.InstanceType, 0, 800)
	for i := range 800 {
		it := machine(fmt.Sprintf("f%d.%d", i/8, i%8))
		it.Requirements["karpenter.k8s.aws/instance-family"] = requirement.New("karpenter.k8s.aws/instance-family", in, fmt.Sprintf("f%d", i/8))
		it.Offerings = append(it.Offerings, append(it.Offerings, it.Offerings[0])...)
		out = append(out, it)
	}
	return out
}

func hundred(b *testing.B, w func(i int) int32) []*overlay.Rule {
	b.Helper()
	overlays := make([]*v1alpha1.NodeOverlay, 0, 100)
	for i := range 100 {
		overlays = append(overlays, makeOverlay(fmt.Sprintf("o%d", i), adjust("-10%"), capacity(vendor, "1"), weight(w(i)),
			of(req("karpenter.k8s.aws/instance-family", in, fmt.Sprintf("f%d", i)), req(karpv1.LabelCapacityType, in, "spot"))))
	}
	return rules(b, overlays...)
}

func BenchmarkApply(b *testing.B) {
	list, pool := catalogue(), makePool("default", nil)
	applied := hundred(b, func(i int) int32 { return int32(i%7) + 1 })
	b.ReportAllocs()
	for b.Loop() {
		overlay.Apply(applied, pool, list, nil)
	}
}

func BenchmarkSettle(b *testing.B) {
	pools := []overlay.Pool{{NodePool: makePool("default", nil), Types: catalogue()}}
	applied := hundred(b, func(int) int32 { return 1 })
	b.ReportAllocs()
	for b.Loop() {
		if _, conflicts := overlay.Settle(applied, pools); len(conflicts) > 0 {
			b.Fatal(conflicts)
		}
	}
}
