package nodepool

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// advise sets the conditions that tell of trouble and do not make the pool unready: zones that no subnet
// serves, limits that are used up, launches that a safety brake holds back.
func (c *Controller) advise(pool *karpv1.NodePool, class Class, set func(metav1.Condition)) {
	if class.Found && len(class.Zones) > 0 {
		set(advice(karpv1.ConditionZonesServed, karpv1.ReasonZoneWithoutSubnet, unserved(pool, class)))
	}
	if len(pool.Spec.Limits) > 0 && len(pool.Status.Resources) > 0 {
		set(advice(karpv1.ConditionWithinLimits, karpv1.ReasonLimitReached, usedUp(pool)))
	} else {
		meta.RemoveStatusCondition(&pool.Status.Conditions, karpv1.ConditionWithinLimits)
	}
	why := c.brakes.of(pool.Name, c.Clock.Now())
	if why != "" || meta.FindStatusCondition(pool.Status.Conditions, karpv1.ConditionLaunchesAllowed) != nil {
		set(advice(karpv1.ConditionLaunchesAllowed, karpv1.ReasonSafetyBrake, why))
	}
}

// advice is True when there is nothing to say.
func advice(kind, reason, trouble string) metav1.Condition {
	if trouble == "" {
		_, short, _ := strings.Cut(kind, "/") // a reason has no slash
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: short}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: trouble}
}

// unserved names the zones of the pool's requirements that have no subnet of the class, "" for none.
func unserved(pool *karpv1.NodePool, class Class) string {
	var faults []string
	for _, r := range pool.Spec.Template.Spec.Requirements {
		served := class.Zones
		switch {
		case r.Operator != corev1.NodeSelectorOpIn:
			continue
		case r.Key == ec2v1.LabelTopologyZoneID:
			served = class.ZoneIDs
		case r.Key != corev1.LabelTopologyZone && r.Key != corev1.LabelFailureDomainBetaZone:
			continue
		}
		var missing []string
		for _, zone := range r.Values {
			if !slices.Contains(served, zone) {
				missing = append(missing, zone)
			}
		}
		if len(missing) > 0 {
			slices.Sort(missing)
			faults = append(faults, fmt.Sprintf("spec.template.spec.requirements: %s names %s, and there is no matching subnet in %s %s (it has %s); no node will start there: add a subnet or take the zone out",
				r.Key, strings.Join(missing, ", "), pool.Spec.Template.Spec.NodeClassRef.Kind, pool.Spec.Template.Spec.NodeClassRef.Name, strings.Join(served, ", ")))
		}
	}
	return strings.Join(faults, "; ")
}

// usedUp names the limits of which nothing is left, "" for none.
func usedUp(pool *karpv1.NodePool) string {
	var names []string
	for name := range pool.Spec.Limits {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var full []string
	for _, name := range names {
		limit, used := pool.Spec.Limits[corev1.ResourceName(name)], pool.Status.Resources[corev1.ResourceName(name)]
		if used.Cmp(limit) >= 0 {
			full = append(full, fmt.Sprintf("%s %s of %s", name, used.String(), limit.String()))
		}
	}
	if len(full) == 0 {
		return ""
	}
	return "spec.limits: the limit is reached: " + strings.Join(full, ", ") + "; no further node is launched"
}

// brakeMemory is how long after the last launch that was held back a brake counts as in force.
const brakeMemory = 2 * time.Minute

// brakes remembers which pools a safety brake holds back, and why.
type brakes struct {
	mu     sync.Mutex
	byPool map[string]braked
}

type braked struct {
	why  string
	last time.Time
}

func (b *brakes) note(pool, why string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byPool[pool] = braked{why, now}
}

// of returns why the pool is held back, "" when it is not (any more).
func (b *brakes) of(pool string, now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, ok := b.byPool[pool]
	if ok && now.Sub(held.last) >= brakeMemory {
		delete(b.byPool, pool)
		return ""
	}
	return held.why
}

// pools lists those that are held back or were until now.
func (b *brakes) pools() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, 0, len(b.byPool))
	for name := range b.byPool {
		names = append(names, name)
	}
	return names
}

// RecordBrake notes that a safety brake holds back a launch of the pool. It returns at once.
func (c *Controller) RecordBrake(pool, why string) {
	c.brakes.note(pool, why, c.Clock.Now())
	c.queue.Add(pool)
}

// isAdvice reports whether a condition is one of those that advise sets.
func isAdvice(kind string) bool {
	return kind == karpv1.ConditionZonesServed || kind == karpv1.ConditionWithinLimits || kind == karpv1.ConditionLaunchesAllowed
}

// warn sends a warning for advice that is new. Brakes have an event of their own.
func (c *Controller) warn(before, after *karpv1.NodePool) {
	for _, now := range after.Status.Conditions {
		if !isAdvice(now.Type) || now.Type == karpv1.ConditionLaunchesAllowed || now.Status != metav1.ConditionFalse {
			continue
		}
		if old := meta.FindStatusCondition(before.Status.Conditions, now.Type); old == nil || old.Status != now.Status || old.Message != now.Message {
			c.Events.PoolTrouble(after, now.Reason, now.Message)
		}
	}
}
