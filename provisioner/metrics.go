package provisioner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-dev/berth/provisioner/promise"
)

type metrics struct {
	solve         prometheus.Observer
	unschedulable prometheus.Gauge
	ignored       prometheus.Gauge
	disagreements *prometheus.CounterVec // plugin
	broken        *prometheus.CounterVec // reason: claim_gone, deadline
}

func newMetrics(registry prometheus.Registerer, table *promise.Table) *metrics {
	solve := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "karpenter", Subsystem: "scheduler", Name: "scheduling_duration_seconds",
		Help:    "Wall time of one solve over one batch, confirmation by the filters included.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16), // 1 ms to 33 s
	}, []string{"controller"})
	unschedulable := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "karpenter", Subsystem: "scheduler", Name: "unschedulable_pods_count",
		Help: "Pods of the last batch that fit nowhere.",
	}, []string{"controller"})
	m := &metrics{
		solve: solve.WithLabelValues("provisioner"), unschedulable: unschedulable.WithLabelValues("provisioner"),
		ignored: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "karpenter", Subsystem: "scheduler", Name: "ignored_pods_count",
			Help: "Pods of the last batch that were not planned for, because of their volumes or resource claims.",
		}),
		disagreements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "fit", Name: "disagreements_total",
			Help: "Placements that the planner found good and a filter plugin refused. Each is a bug in the planner; the filters win.",
		}, []string{"plugin"}),
		broken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "promises", Name: "broken_total",
			Help: "Promises that ended before their pod was bound, by reason.",
		}, []string{"reason"}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "berth", Subsystem: "promises", Name: "open",
		Help: "Pods that a node is being kept for.",
	}, func() float64 { return float64(len(table.Promises())) })
	registry.MustRegister(solve, unschedulable, m.ignored, m.disagreements, m.broken, open)
	return m
}

func (m *metrics) observeSolve(took time.Duration, unfit int) {
	m.solve.Observe(took.Seconds())
	m.unschedulable.Set(float64(unfit))
}
