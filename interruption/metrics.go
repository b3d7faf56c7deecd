package interruption

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-dev/berth/interruption/message"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

type metrics struct {
	received  *prometheus.CounterVec // message_type
	deleted   prometheus.Counter
	latency   prometheus.Histogram
	poison    *prometheus.CounterVec // cause
	healthy   prometheus.Gauge
	unhealthy *prometheus.CounterVec // category
	disrupted *prometheus.CounterVec // shared with lifecycle and disruption
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "karpenter", Subsystem: "interruption", Name: name, Help: help}
	}
	m := &metrics{
		received: prometheus.NewCounterVec(opts("received_messages_total", "Messages that could be read, by kind."), []string{"message_type"}),
		deleted:  prometheus.NewCounter(opts("deleted_messages_total", "Messages that were dealt with and deleted.")),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "interruption", Name: "message_queue_duration_seconds",
			Help: "From EventBridge sending a message to its being read.", Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600},
		}),
		poison:    prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "berth", Subsystem: "interruption", Name: "poison_messages_total", Help: "Messages that were deleted without effect: unreadable, or failing again and again."}, []string{"cause"}),
		healthy:   prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "berth", Subsystem: "interruption", Name: "queue_healthy", Help: "1 while the interruption queue can be read, else 0."}),
		unhealthy: prometheus.NewCounterVec(opts("instance_status_unhealthy_total", "Instances of ours that the cloud found ailing, by category, each once while it lasts."), []string{"category"}),
		disrupted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "nodeclaims", Name: "disrupted_total",
			Help: "NodeClaims whose removal was begun, by reason.",
		}, []string{"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.received, m.deleted, m.latency, m.poison, m.healthy, m.unhealthy} {
		errs = append(errs, registry.Register(c))
	}
	err := registry.Register(m.disrupted)
	if exists, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if shared, isCounter := exists.ExistingCollector.(*prometheus.CounterVec); isCounter {
			m.disrupted, err = shared, nil
		}
	}
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("register metrics of interruption: %w", err)
	}
	return m, nil
}

// countDisrupted counts a claim whose removal was begun. Budgets and policies have no part in it.
func (m *metrics) countDisrupted(claim *karpv1.NodeClaim, kind message.Kind) {
	mode := "graceful"
	if claim.Spec.TerminationGracePeriod != nil {
		mode = "eventual"
	}
	m.disrupted.WithLabelValues(string(kind), claim.Labels[karpv1.LabelNodePool], claim.Labels[karpv1.LabelCapacityType], "", mode).Inc()
}
