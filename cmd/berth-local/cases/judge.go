package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// observation is all that was seen of a case, in the words of the case: zones are zone-a to zone-f.
type observation struct {
	claims    []claimSeen // created by the case, not those of given.nodes
	pods      map[string]podSeen
	refused   map[string]string   // pod to why its node's kubelet refused it, daemon pods included
	podGroups map[string][]string // bare name of a pod entry to the names of its pods
	nodes     map[string]nodeSeen // by the Node's name
	texts     map[string]saidOf   // by Kind/name
	calls     map[string]int      // by action
	instances map[string]int      // running instances by NodeClaim
	asked     time.Time           // when the last pods became pending
	// first is how things stood after the first settle step, nil without one.
	first *standing
	// mostClaims is how many NodeClaims there were at most at one moment, mostBefore the same until the
	// first updateNodePool step.
	mostClaims, mostBefore int
	// counts is the number of NodeClaims from the first updateNodePool step on, oldest first.
	counts []countAt
}

type standing struct{ claims, pending int }

type countAt struct {
	after  time.Duration // since the step
	claims int
}

type claimSeen struct {
	name, pool, instanceType, zone, capacityType string
	providerID                                   string
	created                                      time.Time
	launched, gone                               bool
	disrupted                                    bool // it was deleted while its node was fine
}

// podSeen is a pod that became pending in the case or was there before.
type podSeen struct {
	node string // name of the Node; empty while it is unbound
}

type nodeSeen struct {
	given                    string // name in given.nodes; empty for new ones
	pool, zone, instanceType string
}

type saidOf struct {
	texts  []string       // of events and conditions
	events map[string]int // by text, repetitions included
}

func (o *observation) pending() []string {
	var names []string
	for name, pod := range o.pods {
		if pod.node == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// judge returns what does not hold, in the order of the fields; nothing when all holds. Whatever a case
// expects, no pod may have been bound to a node whose kubelet refused it.
func judge(e *expect, o *observation) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(o.refused)) {
		complain("pod %s failed: %s", name, o.refused[name])
	}
	if e.Launches != nil {
		wrong = append(wrong, judgeLaunches(e.Launches, o)...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.LaunchesOf)) {
		n := len(launchesWhere(o, func(c claimSeen) bool { return c.instanceType == name }))
		if want := e.LaunchesOf[name]; !want.holds(n) {
			complain("%d launches of %s, want %s", n, name, want)
		}
	}
	if e.PodsPerZone != nil {
		if got := podsPerZone(o); !maps.Equal(got, e.PodsPerZone) {
			complain("pods per zone are %v, want %v", got, e.PodsPerZone)
		}
	}
	wrong = append(wrong, judgePending(e, o)...)
	for _, name := range slices.Sorted(maps.Keys(e.Bind)) {
		wrong = append(wrong, judgeBinding(name, e.Bind[name], o)...)
	}
	if e.noDisruption {
		for _, c := range o.claims {
			if c.disrupted {
				complain("NodeClaim %s was disrupted, want none", c.name)
			}
		}
	}
	for _, m := range append(slices.Clone(e.Events), e.Warnings...) {
		wrong = append(wrong, judgeMention(m, o)...)
	}
	for _, action := range slices.Sorted(maps.Keys(e.EC2Calls)) {
		want, n := e.EC2Calls[action], o.calls[action]
		if b := (bound{Min: want.Min, Max: want.Max}); !b.holds(n) {
			complain("%d calls of %s, want %s", n, action, b)
		}
	}
	wrong = append(wrong, judgeClaims(e, o)...)
	return append(wrong, judgeOneOf(e, o)...)
}

func judgeOneOf(e *expect, o *observation) []string {
	var all []string
	for i := range e.oneOf {
		inner := judge(&e.oneOf[i], o)
		if len(inner) == 0 {
			return nil
		}
		all = append(all, fmt.Sprintf("(%d) %s", i+1, strings.Join(inner, "; ")))
	}
	if len(all) == 0 {
		return nil
	}
	return []string{"none of oneOf holds: " + strings.Join(all, " ")}
}

func launchesWhere(o *observation, holds func(claimSeen) bool) []claimSeen {
	var out []claimSeen
	for _, c := range o.claims {
		if c.launched && holds(c) {
			out = append(out, c)
		}
	}
	return out
}

// judgeLaunches wants the number of launches and that every one of them is as told.
func judgeLaunches(want *launches, o *observation) []string {
	var wrong []string
	launched := launchesWhere(o, func(claimSeen) bool { return true })
	if !want.holds(len(launched)) {
		wrong = append(wrong, fmt.Sprintf("%d launches %v, want %s", len(launched), describe(launched), want.bound))
	}
	zones := map[string]int{}
	for _, c := range launched {
		zones[c.zone]++
		check := func(ok bool, what, got string, allowed any) {
			if !ok {
				wrong = append(wrong, fmt.Sprintf("NodeClaim %s has %s %s, want %v", c.name, what, got, allowed))
			}
		}
		check(want.NodePool == "" || c.pool == want.NodePool, "pool", c.pool, want.NodePool)
		check(want.CapacityType == "" || c.capacityType == want.CapacityType, "capacity type", c.capacityType, want.CapacityType)
		check(want.InstanceTypeIn == nil || slices.Contains(want.InstanceTypeIn, c.instanceType), "instance type", c.instanceType, want.InstanceTypeIn)
		check(want.ZoneIn == nil || slices.Contains(want.ZoneIn, c.zone), "zone", c.zone, want.ZoneIn)
		if want.WithinSeconds != nil {
			took := c.created.Sub(o.asked)
			check(took <= seconds(*want.WithinSeconds), "age since the pods were pending", took.String(), seconds(*want.WithinSeconds))
		}
	}
	if want.PerZone != nil && !maps.Equal(zones, want.PerZone) {
		wrong = append(wrong, fmt.Sprintf("launches per zone are %v, want %v", zones, want.PerZone))
	}
	return wrong
}

func describe(claims []claimSeen) []string {
	counts := map[string]int{}
	for _, c := range claims {
		counts[fmt.Sprintf("%s/%s/%s", c.pool, c.instanceType, c.zone)]++
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[key], key))
	}
	return out
}

func podsPerZone(o *observation) map[string]int {
	zones := map[string]int{}
	for _, pod := range o.pods {
		if pod.node != "" {
			zones[o.nodes[pod.node].zone]++
		}
	}
	return zones
}

// judgePending wants exactly the named pods unbound; a bare name stands for all pods of an entry.
func judgePending(e *expect, o *observation) []string {
	var wrong []string
	got := o.pending()
	if e.pendingNames != nil {
		var want []string
		for _, name := range e.pendingNames {
			want = append(want, o.expand(name)...)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("pending pods are %s, want %s", brief(got), brief(want)))
		}
	}
	if e.pendingCount != nil && len(got) != *e.pendingCount {
		wrong = append(wrong, fmt.Sprintf("%d pods are pending, want %d", len(got), *e.pendingCount))
	}
	if want := e.pendingFirst; want != nil && (o.first == nil || o.first.pending != *want) {
		wrong = append(wrong, fmt.Sprintf("after the first settle %s, want %d pending pods", o.first, *want))
	}
	return wrong
}

// String tells how things stood.
func (s *standing) String() string {
	if s == nil {
		return "nothing was recorded"
	}
	return fmt.Sprintf("%d NodeClaims and %d pending pods", s.claims, s.pending)
}

func (o *observation) expand(name string) []string {
	if names, ok := o.podGroups[name]; ok {
		return names
	}
	return []string{name}
}

// brief lists names, the first few of many.
func brief(names []string) string {
	if len(names) > 5 {
		return fmt.Sprintf("%v and %d more", names[:5], len(names)-5)
	}
	return fmt.Sprint(names)
}

func judgeBinding(name string, want binding, o *observation) []string {
	var wrong []string
	for _, pod := range o.expand(name) {
		seen, known := o.pods[pod]
		if !known || seen.node == "" {
			wrong = append(wrong, fmt.Sprintf("pod %s is not bound", pod))
			continue
		}
		n := o.nodes[seen.node]
		check := func(ok bool, format string, args ...any) {
			if !ok {
				wrong = append(wrong, fmt.Sprintf("pod %s is on %s, ", pod, seen.node)+fmt.Sprintf(format, args...))
			}
		}
		check(want.Node == "" || n.given == want.Node, "want node %s", want.Node)
		check(want.NewNode == nil || (n.given == "") == *want.NewNode, "want newNode %v", want.NewNode != nil && *want.NewNode)
		check(want.NodePool == "" || n.pool == want.NodePool, "of pool %s, want pool %s", n.pool, want.NodePool)
		check(want.Zone == "" || n.zone == want.Zone, "in %s, want %s", n.zone, want.Zone)
		check(want.InstanceType == "" || n.instanceType == want.InstanceType, "a %s, want %s", n.instanceType, want.InstanceType)
	}
	return wrong
}

// judgeMention looks for every word in what was said about the object; case and order don't matter.
func judgeMention(m mention, o *observation) []string {
	said := o.texts[m.Object]
	all := strings.ToLower(strings.Join(said.texts, "\n"))
	var wrong, missing []string
	for _, phrase := range append(slices.Clone(m.Mentions), m.About...) {
		for word := range strings.FieldsSeq(strings.ToLower(phrase)) {
			if !strings.Contains(all, word) {
				missing = append(missing, word)
			}
		}
	}
	switch {
	case len(said.texts) == 0 && m.Max == nil:
		wrong = append(wrong, fmt.Sprintf("nothing was said about %s", m.Object))
	case len(missing) > 0:
		wrong = append(wrong, fmt.Sprintf("nobody said %q about %s; said was %q", missing, m.Object, said.texts))
	}
	if b, n := (bound{Min: m.MinCount, Max: m.Max}), said.about(m); !b.holds(n) {
		wrong = append(wrong, fmt.Sprintf("%d events on %s, want %s", n, m.Object, b))
	}
	return wrong
}

// about counts the events that have every word of the mention.
func (s saidOf) about(m mention) int {
	n := 0
	for text, count := range s.events {
		text = strings.ToLower(text)
		all := true
		for _, phrase := range append(slices.Clone(m.Mentions), m.About...) {
			for word := range strings.FieldsSeq(strings.ToLower(phrase)) {
				all = all && strings.Contains(text, word)
			}
		}
		if all {
			n += count
		}
	}
	return n
}

func judgeClaims(e *expect, o *observation) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	living := 0
	for _, c := range o.claims {
		if !c.gone {
			living++
		}
	}
	if want := e.NodeClaims; want != nil {
		if want.Count != nil && living != *want.Count {
			complain("%d NodeClaims, want %d", living, *want.Count)
		}
		for _, c := range o.claims {
			if want.AllHaveProviderID && !c.gone && c.providerID == "" {
				complain("NodeClaim %s has no providerID", c.name)
			}
		}
		if n := want.AfterFirstSettle; n != nil && (o.first == nil || o.first.claims != *n) {
			complain("after the first settle %s, want %d NodeClaims", o.first, *n)
		}
		if never := want.Never; never != nil {
			most := o.mostClaims
			if never.Until != "" {
				most = o.mostBefore
			}
			if most > never.Above {
				complain("%d NodeClaims at one moment, want never more than %d", most, never.Above)
			}
		}
	}
	if want := e.EC2Instances; want != nil {
		n := 0
		for _, claim := range slices.Sorted(maps.Keys(o.instances)) {
			count := o.instances[claim]
			n += count
			if want.PerNodeClaim != nil && count != *want.PerNodeClaim {
				complain("NodeClaim %s has %d instances, want %d", claim, count, *want.PerNodeClaim)
			}
		}
		if want.Running != nil && n != *want.Running {
			complain("%d instances run, want %d", n, *want.Running)
		}
	}
	if want := e.AfterLimitChange; want != nil {
		reached := func(c countAt) bool { return c.claims == want.NodeClaims && c.after <= seconds(want.WithinSeconds) }
		if !slices.ContainsFunc(o.counts, reached) {
			complain("NodeClaims did not become %d within %s of the change", want.NodeClaims, seconds(want.WithinSeconds))
		} else if living != want.NodeClaims {
			complain("%d NodeClaims at the end, want %d", living, want.NodeClaims)
		}
	}
	return wrong
}
