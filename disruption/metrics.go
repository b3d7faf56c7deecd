package disruption

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/disruption/budget"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

type metrics struct {
	decisions *prometheus.CounterVec   // decision, reason, consolidation_type
	disrupted *prometheus.CounterVec   // shared with lifecycle
	allowed   *prometheus.GaugeVec     // nodepool, reason
	consuming *prometheus.GaugeVec     // nodepool, reason
	rejected  *prometheus.CounterVec   // consolidation_type
	failed    *prometheus.CounterVec   // decision, reason, consolidation_type
	searched  *prometheus.HistogramVec // reason, consolidation_type
	repaired  *prometheus.CounterVec   // condition, nodepool, capacity_type, image_id

	pools map[string]struct{} // that have gauges
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "karpenter", Subsystem: "nodepools", Name: name, Help: help}, []string{"nodepool", "reason"})
	}
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "voluntary_disruption", Name: "decisions_total",
			Help: "Decisions to remove or replace nodes, by kind.",
		}, []string{"decision", "reason", "consolidation_type"}),
		disrupted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "nodeclaims", Name: "disrupted_total",
			Help: "NodeClaims whose removal was begun, by reason.",
		}, []string{"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"}),
		allowed:   gauge("allowed_disruptions", "Nodes that the pool's budgets let be disrupted at once, those that are already included."),
		consuming: gauge("nodes_consuming_budgets", "Nodes of the pool that are not ready or on their way out."),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "voluntary_disruption", Name: "failed_validations_total",
			Help: "Decisions that were dropped when they were looked at again.",
		}, []string{"consolidation_type"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "voluntary_disruption", Name: "queue_failures_total",
			Help: "Replacements that did not come, so that their nodes were given back.",
		}, []string{"decision", "reason", "consolidation_type"}),
		searched: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "voluntary_disruption", Name: "decision_evaluation_duration_seconds",
			Help: "How long one look for nodes to disrupt took.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"reason", "consolidation_type"}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "nodeclaims", Name: "unhealthy_disrupted_total",
			Help: "NodeClaims whose removal was begun because of a condition of their node.",
		}, []string{"condition", "nodepool", "capacity_type", "image_id"}),
		pools: map[string]struct{}{},
	}
	var errs []error
	for _, collector := range []prometheus.Collector{m.decisions, m.allowed, m.consuming, m.rejected, m.failed, m.searched, m.repaired} {
		errs = append(errs, registry.Register(collector))
	}
	err := registry.Register(m.disrupted)
	if exists, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if shared, isCounter := exists.ExistingCollector.(*prometheus.CounterVec); isCounter {
			m.disrupted, err = shared, nil
		}
	}
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("register metrics of disruption: %w", err)
	}
	return m, nil
}

// setBudget publishes what budgets allow; no limit is the largest 32-bit integer.
func (m *metrics) setBudget(pool string, reason karpv1.DisruptionReason, allowed, consuming int) {
	m.pools[pool] = struct{}{}
	if allowed == budget.Unlimited {
		allowed = math.MaxInt32
	}
	m.allowed.WithLabelValues(pool, string(reason)).Set(float64(allowed))
	m.consuming.WithLabelValues(pool, string(reason)).Set(float64(consuming))
}

// keepPools drops the gauges of pools that are gone.
func (m *metrics) keepPools(pools map[string]*karpv1.NodePool) {
	for name := range m.pools {
		if _, ok := pools[name]; !ok {
			m.allowed.DeletePartialMatch(prometheus.Labels{"nodepool": name})
			m.consuming.DeletePartialMatch(prometheus.Labels{"nodepool": name})
			delete(m.pools, name)
		}
	}
}

// countRemoved counts a claim whose removal was begun; pool is nil for claims without one.
func (m *metrics) countRemoved(claim *karpv1.NodeClaim, pool *karpv1.NodePool, reason karpv1.DisruptionReason) {
	name, policy := "", ""
	if pool != nil {
		name, policy = pool.Name, policyLabel(pool.Spec.Disruption.ConsolidationPolicy)
	}
	mode := terminationMode(claim)
	if reason == reasonUnhealthy {
		mode = "forceful"
	}
	m.disrupted.WithLabelValues(strings.ToLower(string(reason)), name, claim.Labels[karpv1.LabelCapacityType], policy, mode).Inc()
}

// countRepaired counts a claim whose node was given up for the condition.
func (m *metrics) countRepaired(claim *karpv1.NodeClaim, condition corev1.NodeConditionType) {
	m.repaired.WithLabelValues(snake(string(condition)), claim.Labels[karpv1.LabelNodePool], claim.Labels[karpv1.LabelCapacityType], claim.Status.ImageID).Inc()
}

// snake turns a word in PascalCase into snake_case.
func snake(word string) string {
	var b strings.Builder
	for i, r := range word {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func policyLabel(policy karpv1.ConsolidationPolicy) string {
	switch policy {
	case karpv1.WhenEmpty:
		return "when_empty"
	case karpv1.Balanced:
		return "balanced"
	default:
		return "when_empty_or_underutilized"
	}
}

func terminationMode(claim *karpv1.NodeClaim) string {
	grace := claim.Spec.TerminationGracePeriod
	switch {
	case grace == nil:
		return "graceful"
	case grace.Duration > 0:
		return "eventual"
	default:
		return "forceful"
	}
}
