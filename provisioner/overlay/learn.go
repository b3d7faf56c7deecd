package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// enoughFailures is how many nodes in a row must lack a resource that earlier nodes had, before it is not
	// counted on any more; and how many instance types must lack what no node has ever had, before the
	// overlay is not believed for any type of the pool.
	enoughFailures = 3
	// retryAfter is how long a finding is kept when the nodes that it came from are gone.
	retryAfter = 24 * time.Hour
)

// Target is a resource that a rule declares for an instance type of a pool. An empty Type stands for all.
type Target struct {
	Rule     types.UID
	Pool     string
	Type     string
	Resource corev1.ResourceName
}

// Finding is what a node had of a resource that was declared for it.
type Finding struct {
	Target
	Node           string
	Have, Declared int64
	// At is when the node was last seen so.
	At time.Time
	// generation of the rule that was compared with.
	generation int64
}

// Seen has the findings that limit what is counted on, by target. It is immutable.
type Seen map[Target]Finding

// limit returns how much of the resource may be counted on at most.
func (s Seen) limit(r *Rule, pool, instanceType string, name corev1.ResourceName) int64 {
	if len(s) == 0 {
		return math.MaxInt64
	}
	target := Target{Rule: r.UID, Pool: pool, Resource: name}
	if f, ok := s[target]; ok {
		return f.Have
	}
	target.Type = instanceType
	if f, ok := s[target]; ok {
		return f.Have
	}
	return math.MaxInt64
}

// of returns the findings about the rule, sorted; what holds for all types stands for those about single ones.
func (s Seen) of(rule types.UID) []Finding {
	var out []Finding
	for _, f := range s {
		all := f.Target
		all.Type = ""
		if _, general := s[all]; f.Rule == rule && (f.Type == "" || !general) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), cmp.Compare(a.Resource, b.Resource), strings.Compare(a.Type, b.Type))
	})
	return out
}

// String says to people what was found and what becomes of it.
func (f Finding) String() string {
	where := f.Type
	if f.Type == "" {
		where = "any type"
	}
	return fmt.Sprintf("spec.capacity[%s]: %d is declared, but node %s of NodePool %s came up with %d; no more than that is counted on for %s there",
		f.Resource, f.Declared, f.Node, f.Pool, f.Have, where)
}

// remedy ends a message about findings.
const remedy = "; make the device plugin run on such nodes, or correct spec.capacity or spec.requirements: a change of the overlay has it tried again"

// Sight is a node of which a rule declared a resource, when it was complete enough to tell.
type Sight struct {
	Target
	Generation     int64 // of the rule
	Node           string
	Born           time.Time
	Have, Declared int64
	// Believed says that the node was bought in the belief that it would have as much.
	Believed bool
}

// Learner turns what is seen of nodes into findings. It is for one goroutine.
type Learner struct {
	// Grace is how long a node may lack the resource: device plugins start after the node.
	Grace time.Duration

	lacking map[lack]time.Time // since when
	rules   map[types.UID]known
	seen    Seen
	proven  map[Target]bool
}

type lack struct {
	node string
	Target
}

// known is a generation of a rule. Nodes from before since say nothing about it.
type known struct {
	generation int64
	since      time.Time
}

// Recall returns the findings that still hold for these rules, which are all that are applied.
func (l *Learner) Recall(now time.Time, rules []*Rule) Seen {
	l.follow(now, rules)
	next := Seen{}
	for target, f := range l.seen {
		if k, ok := l.rules[f.Rule]; ok && k.generation == f.generation && now.Sub(f.At) < retryAfter && target.Type != "" {
			next[target] = f
		}
	}
	generalize(next, l.proven)
	l.seen = next
	return next
}

// Look takes all that is seen of nodes now, and returns what may not be counted on; changed says whether that,
// or what has been proven, is something else than before. Rules are all that are applied.
func (l *Learner) Look(now time.Time, rules []*Rule, sights []Sight) (seen Seen, changed bool) {
	before, proven := l.seen, len(l.proven)
	next := maps.Clone(l.Recall(now, rules))
	maps.DeleteFunc(next, func(target Target, _ Finding) bool { return target.Type == "" })
	byTarget := map[Target][]Sight{}
	still := map[lack]time.Time{}
	for _, s := range sights {
		k, ok := l.rules[s.Rule]
		if !ok || k.generation != s.Generation {
			continue
		}
		if s.Have < s.Declared {
			if !s.Believed || s.Born.Before(k.since) {
				continue
			}
			key := lack{s.Node, s.Target}
			since, known := l.lacking[key]
			if !known {
				since = now
			}
			still[key] = since
			if now.Sub(since) < l.Grace {
				continue
			}
		}
		byTarget[s.Target] = append(byTarget[s.Target], s)
	}
	l.lacking = still
	for target, all := range byTarget {
		l.judge(now, next, target, all)
	}
	generalize(next, l.proven)
	l.seen = next
	return next, !next.limitsAs(before) || len(l.proven) != proven
}

// follow notes new generations of rules; what was found about the old ones does not hold for them.
func (l *Learner) follow(now time.Time, rules []*Rule) {
	first := l.rules == nil
	if l.proven == nil {
		l.proven = map[Target]bool{}
	}
	next := make(map[types.UID]known, len(rules))
	for _, r := range rules {
		k, ok := l.rules[r.UID]
		switch {
		case ok && k.generation == r.Generation:
		case first, !ok: // after a restart, nodes from before are what there is to learn from
			k = known{generation: r.Generation}
		default:
			k = known{generation: r.Generation, since: now}
		}
		next[r.UID] = k
	}
	for target := range l.proven {
		if k, ok := next[target.Rule]; !ok || k != l.rules[target.Rule] {
			delete(l.proven, target)
		}
	}
	l.rules = next
}

// judge decides about one target by its nodes, of which the youngest tell most.
func (l *Learner) judge(now time.Time, next Seen, target Target, all []Sight) {
	slices.SortFunc(all, func(a, b Sight) int { return cmp.Or(b.Born.Compare(a.Born), strings.Compare(a.Node, b.Node)) })
	failures := slices.IndexFunc(all, func(s Sight) bool { return s.Have >= s.Declared })
	if failures < 0 {
		failures = len(all)
	} else {
		l.proven[target] = true
	}
	enough := 1
	if l.proven[target] {
		enough = enoughFailures // one broken machine does not make the overlay wrong
	}
	switch {
	case failures >= enough:
		s := all[0]
		next[target] = Finding{Target: target, Node: s.Node, Have: s.Have, Declared: s.Declared, At: now, generation: s.Generation}
	case failures == 0:
		delete(next, target)
	}
}

// generalize gives up on a declaration that has failed on several types and come true on none: else every
// type would be tried, one node after the other.
func generalize(seen Seen, proven map[Target]bool) {
	type group struct {
		findings []Finding
		hope     bool
	}
	groups := map[Target]*group{}
	at := func(target Target) *group {
		target.Type = ""
		if groups[target] == nil {
			groups[target] = &group{}
		}
		return groups[target]
	}
	for target, f := range seen {
		g := at(target)
		g.findings = append(g.findings, f)
		g.hope = g.hope || f.Have > 0
	}
	for target := range proven {
		at(target).hope = true
	}
	for target, g := range groups {
		if g.hope || len(g.findings) < enoughFailures {
			continue
		}
		f := slices.MinFunc(g.findings, func(a, b Finding) int {
			return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Node, b.Node))
		})
		f.Target = target
		seen[target] = f
	}
}

// limitsAs reports whether both limit the same targets to the same amounts.
func (s Seen) limitsAs(o Seen) bool {
	if len(s) != len(o) {
		return false
	}
	for target, f := range s {
		if other, ok := o[target]; !ok || other.Have != f.Have || other.Declared != f.Declared {
			return false
		}
	}
	return true
}
