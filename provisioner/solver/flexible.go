package solver

import (
	"slices"
	"sort"
)

// flexible is how many pods of the class, at most n, the claim can take under the shape and still have as
// many values among its types as minValues demands.
func (o *openClaim) flexible(c *class, sh *shape, n int) int {
	if !sh.demands {
		return n
	}
	return sort.Search(n, func(i int) bool {
		more := *o
		more.requests = o.requests.Add(c.requests.Scale(int64(i + 1)))
		more.ports = slices.Concat(o.ports, c.ports)
		return shortOfValues(sh.reqs, more.able(sh)) != ""
	})
}

// chooseFlexible chooses among the options those that meet minValues with what they take. When none does
// it says what is short.
func (s *solve) chooseFlexible(c *class, options []*option) (*option, string) {
	flexible := func(o *option) int {
		if !o.shape.demands {
			return o.count
		}
		claim := openClaim{shape: o.shape, chosen: o.cand, allowed: o.shape.pool.alternatives(o.cand)}
		return claim.flexible(c, o.shape, o.count)
	}
	best := s.choose(c, options)
	if flexible(best) == best.count {
		return best, ""
	}
	// From here on preferences do not count: what is bought at all depends on minValues.
	short, known := "", map[*option]bool{}
	for len(options) > 0 {
		best = bestOf(options)
		if known[best] {
			return best, ""
		}
		n := flexible(best)
		if n == 0 {
			claim := openClaim{allowed: best.shape.pool.alternatives(best.cand), requests: c.requests, ports: c.ports}
			short = shortOfValues(best.shape.reqs, claim.able(best.shape))
			options = slices.DeleteFunc(slices.Clone(options), func(o *option) bool { return o == best })
			continue
		}
		if n == best.count {
			known[best] = true
			continue
		}
		// It takes fewer, so that it may no longer be the best.
		less := *best
		less.count = n
		less.score.value *= float64(n) / float64(best.count)
		less.score.ratio *= float64(best.count) / float64(n)
		known[&less] = true
		options = append(slices.DeleteFunc(slices.Clone(options), func(o *option) bool { return o == best }), &less)
	}
	return nil, short
}
