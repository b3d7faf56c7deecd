package method_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/poolhash"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	spot     = karpv1.CapacityTypeSpot
	onDemand = karpv1.CapacityTypeOnDemand
)

// machine costs price on demand and a third of it as spot, in zone a.
func machine(name string, price float64) *catalog.InstanceType {
	in := func(key string, values ...string) requirement.Requirement {
		return requirement.New(key, corev1.NodeSelectorOpIn, values...)
	}
	it := &catalog.InstanceType{
		Name: name, Requirements: requirement.NewSet(in(corev1.LabelInstanceTypeStable, name), in(corev1.LabelTopologyZone, "a"), in(karpv1.LabelCapacityType, spot, onDemand)),
		Capacity: resources.FromList(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}),
	}
	for kind, p := range map[string]float64{onDemand: price, spot: price / 3} {
		it.Offerings = append(it.Offerings, catalog.Offering{
			Zone: "a", CapacityType: kind, Price: p, Available: true,
			Requirements: requirement.NewSet(in(corev1.LabelTopologyZone, "a"), in(karpv1.LabelCapacityType, kind)),
		})
	}
	return it
}

func machines(n int, from, step float64) []*catalog.InstanceType {
	list := make([]*catalog.InstanceType, n)
	for i := range list {
		list[i] = machine(fmt.Sprintf("t%02d", i), from+float64(i)*step)
	}
	return list
}

// claim may become the types as the given capacity types; the plan's price is that of the first.
func claim(types []*catalog.InstanceType, kinds ...string) solver.Claim {
	price := types[0].Offerings[0].Price
	for _, o := range types[0].Offerings {
		if len(kinds) == 1 && o.CapacityType == kinds[0] || len(kinds) == 2 && o.CapacityType == spot {
			price = o.Price
		}
	}
	return solver.Claim{
		Pool: "default", Types: types, Pods: []*corev1.Pod{{}}, Cheapest: solver.Choice{Type: types[0].Name, Price: price},
		Requirements: requirement.NewSet(requirement.New(karpv1.LabelCapacityType, corev1.NodeSelectorOpIn, kinds...)),
	}
}

func node(kind, instanceType string) *cluster.Node {
	return &cluster.Node{Name: "n-" + instanceType, Pool: "default", Labels: map[string]string{karpv1.LabelCapacityType: kind, corev1.LabelInstanceTypeStable: instanceType}}
}

func prices(p map[string]float64) method.Terms {
	return method.Terms{Price: func(n *cluster.Node) float64 { return p[n.Name] }}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	names := func(types []*catalog.InstanceType) []string {
		var out []string
		for _, it := range types {
			out = append(out, it.Name)
		}
		return out
	}
	big := node(onDemand, "big")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	tests := map[string]struct {
		nodes  []*cluster.Node
		plan   solver.Plan
		prices map[string]float64
		spot   bool // gate SpotToSpotConsolidation
		why    string
		types  [][]string
		saving float64
		kinds  []string // that the first claim may have
	}{
		"DISR-009 pods fit elsewhere": {nodes: []*cluster.Node{big}, prices: map[string]float64{"n-big": 1}, saving: 1},
		"DISR-010 a cheaper machine exists": {
			nodes: []*cluster.Node{big}, prices: map[string]float64{"n-big": 1},
			plan:  solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 0.5), machine("m", 0.9), machine("l", 1)}, onDemand)}},
			types: [][]string{{"s", "m"}}, saving: 0.5,
		},
		"DISR-011 only for the same price": {
			nodes: []*cluster.Node{big}, prices: map[string]float64{"n-big": 1},
			plan: solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("b", 1)}, onDemand)}}, why: "Can't replace with a cheaper node",
		},
		"DISR-012 pinned to spot": {
			nodes: []*cluster.Node{big}, prices: map[string]float64{"n-big": 1},
			plan:  solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 1.2), machine("m", 3.3)}, spot, onDemand)}},
			types: [][]string{{"s"}}, saving: 0.6, kinds: []string{spot},
		},
		"DISR-013 spot stays while the gate is off": {
			nodes: []*cluster.Node{node(spot, "big")}, prices: map[string]float64{"n-big": 1},
			plan: solver.Plan{Claims: []solver.Claim{claim(machines(20, 0.3, 0.01), spot)}}, why: "SpotToSpotConsolidation is disabled",
		},
		"DISR-014 too few cheaper types": {
			nodes: []*cluster.Node{node(spot, "big")}, prices: map[string]float64{"n-big": 1}, spot: true,
			plan: solver.Plan{Claims: []solver.Claim{claim(machines(14, 0.3, 0.01), spot)}}, why: "requires 15 cheaper instance type options than the current candidate to consolidate, got 14",
		},
		"DISR-015 the 15 cheapest": {
			nodes: []*cluster.Node{node(spot, "big")}, prices: map[string]float64{"n-big": 1}, spot: true,
			plan:  solver.Plan{Claims: []solver.Claim{claim(machines(20, 0.3, 0.01), spot)}},
			types: [][]string{names(machines(15, 0.3, 0.01))}, saving: 0.9,
		},
		"DISR-016 spot pods that fit elsewhere": {nodes: []*cluster.Node{node(spot, "big")}, prices: map[string]float64{"n-big": 1}, saving: 1},
		"DISR-017 three nodes into one": {
			nodes: []*cluster.Node{node(onDemand, "x"), node(onDemand, "y"), node(onDemand, "z")}, prices: map[string]float64{"n-x": 1, "n-y": 1, "n-z": 1},
			plan:  solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 2)}, onDemand)}},
			types: [][]string{{"s"}}, saving: 1,
		},
		"two nodes into two cheaper ones": {
			nodes: []*cluster.Node{node(onDemand, "x"), node(onDemand, "y")}, prices: map[string]float64{"n-x": 1, "n-y": 1},
			plan:  solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 0.5), machine("m", 1.5)}, onDemand), claim([]*catalog.InstanceType{machine("s", 0.5)}, onDemand)}},
			types: [][]string{{"s"}, {"s"}}, saving: 1,
		},
		"DISR-018 not the same type again": {
			nodes: []*cluster.Node{node(onDemand, "s"), node(onDemand, "y")}, prices: map[string]float64{"n-s": 0.5, "n-y": 1},
			plan: solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 0.5)}, onDemand)}}, why: "Can't replace with a cheaper node",
		},
		"DISR-019 a pod would become pending": {
			nodes: []*cluster.Node{big}, prices: map[string]float64{"n-big": 1},
			plan: solver.Plan{Unfit: []solver.Unfit{{Pod: pod, Reasons: []solver.PoolReason{{Pool: "default", Reason: "limits"}}}}},
			why:  "not all pods would schedule, shop/web => nodepool default: limits",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			terms := prices(tc.prices)
			terms.SpotToSpot = tc.spot
			got := method.Judge(tc.nodes, tc.plan, terms)
			if tc.why != "" {
				require.Contains(t, got.Why, tc.why)
				return
			}
			require.Empty(t, got.Why)
			require.InDelta(t, tc.saving, got.Saving, 1e-9)
			require.Len(t, got.Plan.Claims, len(tc.types))
			for i, want := range tc.types {
				require.Equal(t, want, names(got.Plan.Claims[i].Types))
				require.Equal(t, want[0], got.Plan.Claims[i].Cheapest.Type)
			}
			if tc.kinds != nil {
				require.Equal(t, tc.kinds, got.Plan.Claims[0].Requirements.Get(karpv1.LabelCapacityType).Values())
				require.Equal(t, []string{spot, onDemand}[0], got.Plan.Claims[0].Cheapest.CapacityType)
			}
		})
	}
}

// Narrowing a claim changes nothing of the plan that was handed in: it may be judged again.
func TestJudgeLeavesThePlanAlone(t *testing.T) {
	t.Parallel()
	plan := solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 0.9), machine("m", 6)}, spot, onDemand)}}
	got := method.Judge([]*cluster.Node{node(onDemand, "big")}, plan, prices(map[string]float64{"n-big": 1}))
	require.Empty(t, got.Why)
	require.Len(t, plan.Claims[0].Types, 2)
	require.Equal(t, []string{onDemand, spot}, plan.Claims[0].Requirements.Get(karpv1.LabelCapacityType).Values())
}

func TestMinValuesHoldAfterFilteringByPrice(t *testing.T) {
	t.Parallel()
	c := claim([]*catalog.InstanceType{machine("s", 0.5), machine("m", 2)}, onDemand)
	c.Requirements.Merge(requirement.NewSet(requirement.New(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists).WithMinValues(2)))
	got := method.Judge([]*cluster.Node{node(onDemand, "big")}, solver.Plan{Claims: []solver.Claim{c}}, prices(map[string]float64{"n-big": 1}))
	require.Contains(t, got.Why, "Filtering by price: minValues requirement is not met")
}

func TestNodeCostCounts(t *testing.T) {
	t.Parallel()
	terms := prices(map[string]float64{"n-big": 1})
	two := solver.Plan{Claims: []solver.Claim{claim([]*catalog.InstanceType{machine("s", 0.49)}, onDemand), claim([]*catalog.InstanceType{machine("s", 0.49)}, onDemand)}}
	require.Empty(t, method.Judge([]*cluster.Node{node(onDemand, "big")}, two, terms).Why)
	terms.NodeCost = 0.05
	require.NotEmpty(t, method.Judge([]*cluster.Node{node(onDemand, "big")}, two, terms).Why, "one more node costs more than is saved")
}

func TestBalancedScores(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		scale           method.Scale
		saving, trouble float64
		score           float64
		approved        bool
	}{
		"DISR-073 half price in a uniform pool":   {method.Scale{Cost: 10, Trouble: 20}, 0.5, 2, 0.5, true},
		"DISR-074 little saving for much trouble": {method.Scale{Cost: 100, Trouble: 100}, 4.2, 10, 0.42, false},
		"DISR-075 a pod that is dear to move":     {method.Scale{Cost: 10, Trouble: 20}, 0.5, 11, 0.0909, false},
		"deleting a node of a uniform pool":       {method.Scale{Cost: 10, Trouble: 20}, 1, 2, 1, true},
		"no saving":                               {method.Scale{Cost: 10, Trouble: 20}, 0, 2, 0, false},
		"a pool without a price":                  {method.Scale{Trouble: 20}, 1, 2, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.InDelta(t, tc.score, tc.scale.Score(tc.saving, tc.trouble), 1e-3)
			require.Equal(t, tc.approved, tc.scale.Approves(tc.saving, tc.trouble))
		})
	}
}

func TestDrifted(t *testing.T) {
	t.Parallel()
	hashes := func(hash, version string) map[string]string {
		return map[string]string{karpv1.AnnotationNodePoolHash: hash, karpv1.AnnotationNodePoolHashVersion: version}
	}
	type change func(*karpv1.NodeClaim, *karpv1.NodePool)
	require1 := func(key string, op corev1.NodeSelectorOperator, values ...string) change {
		return func(_ *karpv1.NodeClaim, pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: key, Operator: op, Values: values}}
		}
	}
	age := func(d time.Duration) change {
		return func(c *karpv1.NodeClaim, _ *karpv1.NodePool) { c.CreationTimestamp = metav1.NewTime(t0.Add(-d)) }
	}
	known := []*catalog.InstanceType{machine("m5.large", 1)}
	other := []*catalog.InstanceType{machine("m6.large", 1)}
	tests := map[string]struct {
		changes []change
		types   []*catalog.InstanceType
		want    string
	}{
		"as it was made":                {nil, known, ""},
		"DISR-045 the template changed": {[]change{func(_ *karpv1.NodeClaim, p *karpv1.NodePool) { p.Annotations = hashes("2", poolhash.HashVersion) }}, known, method.NodePoolDrifted},
		"a hash of another version": {[]change{func(c *karpv1.NodeClaim, p *karpv1.NodePool) {
			c.Annotations, p.Annotations = hashes("1", "v3"), hashes("2", poolhash.HashVersion)
		}}, known, ""},
		"not launched yet": {[]change{func(c *karpv1.NodeClaim, p *karpv1.NodePool) {
			c.Status.Conditions, p.Annotations = nil, hashes("2", poolhash.HashVersion)
		}}, known, ""},
		"DISR-046 a requirement was widened":                 {[]change{require1(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "a", "b")}, known, ""},
		"DISR-047 the node's zone was taken out":             {[]change{require1(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "b")}, known, method.RequirementsDrifted},
		"a custom key that the node lacks":                   {[]change{require1("team", corev1.NodeSelectorOpIn, "x")}, known, method.RequirementsDrifted},
		"a well-known key that the node lacks":               {[]change{require1(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux")}, known, method.RequirementsDrifted},
		"DISR-048 weight, limits and budgets say nothing":    {[]change{func(_ *karpv1.NodeClaim, p *karpv1.NodePool) { w := int32(9); p.Spec.Weight = &w }}, known, ""},
		"DISR-049 the type is gone, and the node old enough": {[]change{age(2 * time.Hour)}, other, method.InstanceTypeNotFound},
		"the type is gone, and the node young":               {[]change{age(time.Minute)}, other, ""},
		"types are not known":                                {[]change{age(2 * time.Hour)}, nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "a", karpv1.LabelCapacityType: onDemand},
				Annotations: hashes("1", poolhash.HashVersion), CreationTimestamp: metav1.NewTime(t0),
			}}
			c.Status.Conditions = []metav1.Condition{{Type: karpv1.ConditionLaunched, Status: metav1.ConditionTrue}}
			pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: hashes("1", poolhash.HashVersion)}}
			for _, change := range tc.changes {
				change(c, pool)
			}
			require.Equal(t, tc.want, method.Drifted(c, pool, tc.types, t0))
		})
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	at := func(uid string, after karpv1.NillableDuration) *karpv1.NodeClaim {
		return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), CreationTimestamp: metav1.NewTime(t0)}, Spec: karpv1.NodeClaimSpec{ExpireAfter: after}}
	}
	_, _, ok := method.Expiry(at("x", karpv1.NeverElapses()))
	require.False(t, ok)
	points := map[time.Time]bool{}
	for i := range 100 {
		early, deadline, ok := method.Expiry(at(fmt.Sprint(i), karpv1.DurationOf(100*time.Hour)))
		require.True(t, ok)
		require.Equal(t, t0.Add(100*time.Hour), deadline)
		require.False(t, early.Before(deadline.Add(-10*time.Hour)), "not before the last tenth of the lifetime")
		require.False(t, early.After(deadline.Add(-5*time.Hour)), "and with time enough for the replacement")
		points[early] = true
	}
	require.Greater(t, len(points), 90, "a fleet that was made at once does not go at once")
	early, deadline, _ := method.Expiry(at("x", karpv1.DurationOf(10000*time.Hour)))
	require.LessOrEqual(t, deadline.Sub(early), 24*time.Hour)
}

func TestBySavingPutsMoneyForTroubleFirst(t *testing.T) {
	t.Parallel()
	a, b, c := node(onDemand, "a"), node(onDemand, "b"), node(onDemand, "c")
	nodes := []*cluster.Node{a, b, c}
	price := map[*cluster.Node]float64{a: 1, b: 4, c: 3}
	cost := map[*cluster.Node]float64{a: 1, b: 5, c: 1}
	method.BySaving(nodes, func(n *cluster.Node) float64 { return price[n] }, func(n *cluster.Node) float64 { return cost[n] })
	require.Equal(t, []*cluster.Node{c, a, b}, nodes)
}
