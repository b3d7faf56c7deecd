package solver

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/resources"
)

// Bound returns a price, in USD per hour, that no set of new nodes for the pods on the plan's claims can
// undercut, node cost left out. 0 when the plan opens none.
//
// It is the dual of the fractional assignment problem. Let every instance type t divide its price among
// its resources by weights w that sum to 1. A pod of class c then owes on t
//
//	price(t, c) * sum over resources r of w(t, r) * request(c, r) / free(t, r)
//
// where price(t, c) is the cheapest offering of t that lets c in. The pods of a full node never owe more
// than the node costs, so if every pod pays the least that it owes anywhere, the sum is a bound for any
// weights. The weights are improved by multiplicative steps along the subgradient. Rules between pods,
// limits and whole numbers of nodes are left out, which makes the bound lower than the best plan.
func Bound(p Problem, plan Plan) float64 {
	p.Pods = nil
	for _, claim := range plan.Claims {
		p.Pods = append(p.Pods, claim.Pods...)
	}
	if len(p.Pods) == 0 {
		return 0
	}
	b := newRelaxation(newGround(p))
	best := b.value()
	steps := b.steps()
	for step := range steps {
		b.improve(1/math.Sqrt(float64(step+1)), step < steps/2)
		best = max(best, b.value())
	}
	return best
}

// steps is how often the weights are improved: first all types alike, then each by itself. Large problems
// are improved less often, so that the bound takes no longer than the plan.
func (b *relaxation) steps() int {
	const most, least, work = 60, 6, 30_000_000
	pairs := 1
	for _, c := range b.classes {
		pairs += len(c.places)
	}
	return min(max(work/pairs, least), most)
}

// relaxation is the dual problem in plain numbers.
type relaxation struct {
	names   []corev1.ResourceName
	types   []*candidate
	per     [][]float64 // by type and resource, 1 / free; 0 where there is none
	weights [][]float64 // by type and resource, summing to 1
	classes []bidder
}

// bidder is the pods of one class with the types that they could be on.
type bidder struct {
	count    float64
	requests []float64
	places   []pricedPlace
	chosen   int     // the place where a pod owes the least
	owes     float64 // there
}

// pricedPlace is a type, by its number, with its cheapest offering for a class.
type pricedPlace struct {
	typ   int
	price float64
}

func newRelaxation(g *ground) *relaxation {
	s := g.start(newLessons(), strategy{})
	b := &relaxation{names: []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}}
	for _, c := range s.classes {
		for _, a := range c.requests.Extended {
			if !slices.Contains(b.names, a.Name) {
				b.names = append(b.names, a.Name)
			}
		}
	}
	first := map[*pool]int{}
	for _, p := range s.pools {
		first[p] = len(b.types)
		for _, c := range p.candidates {
			b.types, b.per = append(b.types, c), append(b.per, b.inverse(c.free))
			b.weights = append(b.weights, b.even(c.free))
		}
	}
	known := map[*shape][]pricedPlace{}
	for _, c := range s.classes {
		var open []pricedPlace
		for _, p := range s.pools {
			for _, sh := range s.shapesOf(c, p) {
				if _, ok := known[sh]; !ok {
					known[sh] = sh.places(first[p])
				}
				open = append(open, known[sh]...)
			}
		}
		open = slices.DeleteFunc(slices.Clone(open), func(o pricedPlace) bool { return !c.requests.Fits(b.types[o.typ].free) })
		if len(open) > 0 {
			b.classes = append(b.classes, bidder{count: float64(len(c.pods)), requests: b.amounts(c.requests), places: open})
		}
	}
	return b
}

// places lists the shape's types with their cheapest offerings, numbered from first on.
func (sh *shape) places(first int) []pricedPlace {
	list := sh.byPrice()
	out := make([]pricedPlace, len(list))
	for i, p := range list {
		out[i] = pricedPlace{first + p.c.index, p.offer.Price}
	}
	return out
}

func (b *relaxation) amounts(v resources.Vector) []float64 {
	out := make([]float64, len(b.names))
	for i, name := range b.names {
		out[i] = float64(v.Get(name))
	}
	return out
}

func (b *relaxation) inverse(free resources.Vector) []float64 {
	out := b.amounts(free)
	for i, x := range out {
		if x > 0 {
			out[i] = 1 / x
		} else {
			out[i] = 0
		}
	}
	return out
}

// even starts with cpu and memory alike and a little of everything else that the type has.
func (b *relaxation) even(free resources.Vector) []float64 {
	out := make([]float64, len(b.names))
	for i, name := range b.names {
		switch {
		case free.Get(name) <= 0:
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory:
			out[i] = 1
		default:
			out[i] = 0.02
		}
	}
	scaleToOne(out)
	return out
}

func scaleToOne(weights []float64) {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for i := range weights {
		weights[i] /= cmp.Or(sum, 1)
	}
}

// value is the bound with the weights as they are. It finds for every class where a pod owes the least.
func (b *relaxation) value() float64 {
	rates := make([][]float64, len(b.types))
	for t := range rates {
		rates[t] = make([]float64, len(b.names))
		for r, w := range b.weights[t] {
			rates[t][r] = w * b.per[t][r]
		}
	}
	sum := 0.0
	for i := range b.classes {
		c := &b.classes[i]
		c.owes = math.Inf(1)
		for n, place := range c.places {
			owes := 0.0
			for r, rate := range rates[place.typ] {
				owes += rate * c.requests[r]
			}
			if owes *= place.price; owes < c.owes {
				c.chosen, c.owes = n, owes
			}
		}
		sum += c.count * c.owes
	}
	return sum
}

// improve moves the weights towards the resources that the classes on a type use most, of all types
// together or of each by itself.
func (b *relaxation) improve(pace float64, together bool) {
	gain := make([][]float64, len(b.types))
	all := make([]float64, len(b.names))
	for _, c := range b.classes {
		place := c.places[c.chosen]
		if gain[place.typ] == nil {
			gain[place.typ] = make([]float64, len(b.names))
		}
		for r, amount := range c.requests {
			g := c.count * place.price * amount * b.per[place.typ][r]
			gain[place.typ][r] += g
			all[r] += g
		}
	}
	for t, weights := range b.weights {
		use := gain[t]
		if together {
			use = all
		}
		if use == nil {
			continue
		}
		most := slices.Max(use)
		if most <= 0 {
			continue
		}
		for r := range weights {
			weights[r] *= math.Exp(pace * (use[r]/most - 0.5))
		}
		scaleToOne(weights)
	}
}
