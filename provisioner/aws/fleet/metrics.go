package fleet

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what EC2 refused.
type Metrics struct{ failures *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{failures: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "karpenter", Subsystem: "cloudprovider", Name: "instance_launch_failures_total",
		Help: "Pools of capacity that EC2 refused to launch from, by reason.",
	}, []string{"zone", "zone_id", "capacity_type", "reason"})}
	reg.MustRegister(m.failures)
	return m
}
