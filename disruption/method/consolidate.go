package method

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Terms are what a consolidation is judged by.
type Terms struct {
	// Price is what a node costs, USD per hour; 0 when that is not known.
	Price func(node *cluster.Node) float64
	// NodeCost is what each node costs beside its instance, USD per hour.
	NodeCost float64
	// SpotToSpot allows spot nodes to be replaced by spot nodes.
	SpotToSpot bool
}

// Verdict is what becomes of a plan for the pods of nodes that may go.
type Verdict struct {
	// Why says why nothing is done; "" when the plan is worth it.
	Why string
	// Plan is the plan to carry out: its claims may become only what is cheaper than what goes.
	Plan solver.Plan
	// Saving in USD per hour, by the cheapest offerings of the new nodes.
	Saving float64
}

// spotFlexibility is how many cheaper types a single spot node's replacement must be able to become: with
// fewer, the cheapest one would be chased and soon taken away again. Pools that declare how many types they
// want to choose from have said themselves what is enough.
const spotFlexibility = 15

// floorOf is how many cheaper types a single spot node's replacement needs. A minValues of one says nothing
// that the requirement does not say already.
func floorOf(reqs requirement.Set) int {
	if declared := reqs.Get(corev1.LabelInstanceTypeStable).MinValues(); declared > 1 {
		return declared
	}
	return spotFlexibility
}

// tooFew tells why a single spot node stays, and what would let it go.
func tooFew(floor, got int) string {
	return fmt.Sprintf("SpotToSpotConsolidation requires %d cheaper instance type options than the current candidate to consolidate, got %d: "+
		"without that flexibility spot capacity is soon taken away again; allow more types, or declare your own floor as minValues of %s",
		floor, got, corev1.LabelInstanceTypeStable)
}

// Judge says whether the plan is worth carrying out. The nodes' pods must all have found a place; new
// nodes must cost less together than the nodes that go, even if the cloud gives the worst of what they
// may become.
func Judge(nodes []*cluster.Node, plan solver.Plan, terms Terms) Verdict {
	if len(plan.Unfit) > 0 {
		return Verdict{Why: "not all pods would schedule, " + unfitText(plan.Unfit)}
	}
	old, spot := 0.0, true
	for _, node := range nodes {
		old += terms.Price(node)
		spot = spot && node.Labels[karpv1.LabelCapacityType] == karpv1.CapacityTypeSpot
	}
	if len(plan.Claims) == 0 {
		return Verdict{Plan: plan, Saving: old}
	}
	planned := 0.0
	for _, claim := range plan.Claims {
		planned += claim.Cheapest.Price
	}
	fewer := float64(len(nodes)-len(plan.Claims)) * terms.NodeCost
	if planned >= old || planned >= old+fewer {
		return Verdict{Why: "Can't replace with a cheaper node"}
	}
	out := plan
	out.Claims = slices.Clone(plan.Claims)
	saving := old
	for i := range out.Claims {
		claim := &out.Claims[i]
		// Each new node may cost its part of what is saved on, at most.
		narrowed, why := narrow(*claim, nodes, old*claim.Cheapest.Price/planned, spot, terms)
		if why != "" {
			return Verdict{Why: why}
		}
		*claim = narrowed
		saving -= claim.Cheapest.Price
	}
	return Verdict{Plan: out, Saving: saving}
}

// narrow leaves the claim the types that are cheaper than the limit, whatever the launch gives.
func narrow(claim solver.Claim, nodes []*cluster.Node, limit float64, spot bool, terms Terms) (narrowed solver.Claim, why string) {
	kinds := claim.Requirements.Get(karpv1.LabelCapacityType)
	canSpot := slices.ContainsFunc(claim.Types, func(it *catalog.InstanceType) bool { return sells(it, claim.Requirements, karpv1.CapacityTypeSpot) })
	if spot && canSpot {
		if !terms.SpotToSpot {
			return claim, "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
		}
	}
	if canSpot && (kinds.IsAny() || kinds.Has(karpv1.CapacityTypeOnDemand)) {
		// A launch that finds no spot capacity must not end in a dearer node on demand.
		claim.Requirements = claim.Requirements.Clone()
		claim.Requirements.Merge(requirement.NewSet(requirement.New(karpv1.LabelCapacityType, corev1.NodeSelectorOpIn, karpv1.CapacityTypeSpot)))
	}
	if len(nodes) > 1 {
		limit = min(limit, leastOfSameType(claim, nodes, terms))
	}
	var types []*catalog.InstanceType
	for _, it := range claim.Types {
		if price, ok := worst(it, claim.Requirements); ok && price < limit {
			types = append(types, it)
		}
	}
	if len(types) == 0 {
		return claim, "Can't replace with a cheaper node"
	}
	if spot && canSpot && len(nodes) == 1 {
		if floor := floorOf(claim.Requirements); len(types) < floor {
			return claim, tooFew(floor, len(types))
		}
		types = types[:min(len(types), max(spotFlexibility, neededFor(claim.Requirements, types)))]
	}
	if short := shortOf(claim.Requirements, types); short != "" {
		return claim, "Filtering by price: " + short
	}
	claim.Types = types
	claim.Cheapest = cheapest(types, claim.Requirements)
	return claim, ""
}

// leastOfSameType is the price of the cheapest node that goes and whose type the claim may become: to buy
// the same again at the same price would only move pods about.
func leastOfSameType(claim solver.Claim, nodes []*cluster.Node, terms Terms) float64 {
	least := 1e18
	for _, node := range nodes {
		name := node.Labels[corev1.LabelInstanceTypeStable]
		if slices.ContainsFunc(claim.Types, func(it *catalog.InstanceType) bool { return it.Name == name }) {
			least = min(least, terms.Price(node))
		}
	}
	return least
}

func sells(it *catalog.InstanceType, reqs requirement.Set, kind string) bool {
	return slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool {
		return o.Available && o.CapacityType == kind && reqs.Overlaps(o.Requirements)
	})
}

// worst is the most that a launch of the type can cost: the dearest offering of the kind that a launch
// tries first.
func worst(it *catalog.InstanceType, reqs requirement.Set) (price float64, ok bool) {
	for _, kind := range []string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand} {
		for _, o := range it.Offerings {
			if o.Available && o.CapacityType == kind && reqs.Overlaps(o.Requirements) {
				price, ok = max(price, o.Price), true
			}
		}
		if ok {
			return price, true
		}
	}
	return 0, false
}

func cheapest(types []*catalog.InstanceType, reqs requirement.Set) solver.Choice {
	var best solver.Choice
	found := false
	for _, it := range types {
		for _, o := range it.Offerings {
			if o.Available && reqs.Overlaps(o.Requirements) && (!found || o.Price < best.Price) {
				best, found = solver.Choice{Type: it.Name, Zone: o.Zone, CapacityType: o.CapacityType, Price: o.Price}, true
			}
		}
	}
	return best
}

// neededFor is how many of the types, in order, it takes to meet every minValues.
func neededFor(reqs requirement.Set, types []*catalog.InstanceType) int {
	for n := range types {
		if shortOf(reqs, types[:n+1]) == "" {
			return n + 1
		}
	}
	return len(types)
}

// shortOf says which minValues the types do not meet, "" for none.
func shortOf(reqs requirement.Set, types []*catalog.InstanceType) string {
	for _, key := range slices.Sorted(maps.Keys(reqs)) {
		want := reqs[key].MinValues()
		if want == 0 {
			continue
		}
		values := map[string]bool{}
		for _, it := range types {
			for _, v := range it.Requirements.Get(key).Values() {
				values[v] = true
			}
		}
		if len(values) < want {
			return fmt.Sprintf("minValues requirement is not met for label %q: %d of %d values", key, len(values), want)
		}
	}
	return ""
}

// unfitText names up to five pods with why they fit nowhere.
func unfitText(unfit []solver.Unfit) string {
	const most = 5
	var parts []string
	for _, u := range unfit[:min(most, len(unfit))] {
		reason := "no place found"
		if len(u.Reasons) > 0 {
			reason = u.Reasons[0].Reason
			if u.Reasons[0].Pool != "" {
				reason = "nodepool " + u.Reasons[0].Pool + ": " + reason
			}
		}
		parts = append(parts, fmt.Sprintf("%s/%s => %s", u.Pod.Namespace, u.Pod.Name, reason))
	}
	if more := len(unfit) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// BySaving orders nodes as they are tried: most money for each unit of trouble first. cost is the trouble
// of emptying a node.
func BySaving(nodes []*cluster.Node, price, cost func(*cluster.Node) float64) {
	ratio := make(map[*cluster.Node]float64, len(nodes))
	for _, node := range nodes {
		ratio[node] = price(node) / cost(node)
	}
	slices.SortStableFunc(nodes, func(a, b *cluster.Node) int {
		return cmp.Or(cmp.Compare(ratio[b], ratio[a]), strings.Compare(a.Name, b.Name))
	})
}
