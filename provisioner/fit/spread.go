package fit

import (
	"reflect"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// repairSpread makes the state of PodTopologySpread exact after AddPod. Upstream keeps the two least
// domains only, which is enough for one change (its use is preemption) but not for many: the least one
// may be a domain that it has forgotten. The counts per domain are exact, so the least is found there.
// The state's type is private with exported fields; when they are not as expected, it returns false and
// the caller runs PreFilter again.
func repairSpread(state fwk.CycleState) bool {
	v, perDomain, ok := readSpread(state)
	if !ok {
		return false
	}
	paths := v.FieldByName("CriticalPaths")
	if !paths.IsValid() || paths.Kind() != reflect.Slice || len(perDomain) != paths.Len() {
		return false
	}
	for i, domains := range perDomain {
		if !repairPath(reflect.Indirect(paths.Index(i)), domains) {
			return false
		}
	}
	return true
}

// readSpread returns the state and its counts per constraint and domain.
func readSpread(state fwk.CycleState) (v reflect.Value, perDomain []map[string]int, ok bool) {
	data, err := state.Read("PreFilter" + names.PodTopologySpread)
	if err != nil {
		return v, nil, false
	}
	v = reflect.Indirect(reflect.ValueOf(data))
	if v.Kind() != reflect.Struct {
		return v, nil, false
	}
	counts := v.FieldByName("TpValueToMatchNum")
	if !counts.IsValid() {
		return v, nil, false
	}
	perDomain, ok = counts.Interface().([]map[string]int)
	return v, perDomain, ok
}

// spreadKnows reports whether the state counts the domains of a node with these labels, or has to leave
// the node out for want of a label. It is false when a policy keeps the node out, too: that cannot be
// told from a domain that was not added.
func spreadKnows(state fwk.CycleState, labels map[string]string) bool {
	v, perDomain, ok := readSpread(state)
	if !ok {
		return false
	}
	constraints := v.FieldByName("Constraints")
	if !constraints.IsValid() || constraints.Kind() != reflect.Slice || constraints.Len() != len(perDomain) {
		return false
	}
	known := true
	for i, domains := range perDomain {
		key := constraints.Index(i).FieldByName("TopologyKey")
		if !key.IsValid() || key.Kind() != reflect.String {
			return false
		}
		domain, labelled := labels[key.String()]
		if !labelled {
			return true
		}
		_, counted := domains[domain]
		known = known && counted
	}
	return known
}

// repairPath writes the domains with the least and the next least count into a [2]struct{TopologyValue
// string; MatchNum int}. Where fewer than two domains exist, it leaves the rest alone.
func repairPath(path reflect.Value, domains map[string]int) bool {
	if path.Kind() != reflect.Array || path.Len() != 2 || !path.CanSet() {
		return false
	}
	var least [2]string
	var count [2]int
	found := 0
	for domain, n := range domains {
		switch {
		case found == 0 || n < count[0]:
			least[1], count[1] = least[0], count[0]
			least[0], count[0] = domain, n
			found++
		case found == 1 || n < count[1]:
			least[1], count[1] = domain, n
			found++
		}
	}
	for i := range min(found, 2) {
		name, num := path.Index(i).FieldByName("TopologyValue"), path.Index(i).FieldByName("MatchNum")
		if !name.IsValid() || name.Kind() != reflect.String || !num.IsValid() || num.Kind() != reflect.Int {
			return false
		}
		name.SetString(least[i])
		num.SetInt(int64(count[i]))
	}
	return true
}
