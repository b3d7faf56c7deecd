package instance

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count joint calls and failed terminations.
type Metrics struct {
	seconds, size *prometheus.HistogramVec
	terminations  *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "cloudprovider", Name: "batcher_batch_time_seconds",
			Help: "How long calls were gathered into one.", Buckets: prometheus.ExponentialBuckets(0.025, 2, 7),
		}, []string{"batcher"}),
		size: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "cloudprovider", Name: "batcher_batch_size",
			Help: "How many calls were gathered into one.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"batcher"}),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "cloudprovider", Name: "instance_termination_failures_total",
			Help: "Instances that could not be terminated.",
		}, []string{"zone", "zone_id"}),
	}
	reg.MustRegister(m.seconds, m.size, m.terminations)
	return m
}

func (m *Metrics) observe(batcher string, d time.Duration, size int) {
	m.seconds.WithLabelValues(batcher).Observe(d.Seconds())
	m.size.WithLabelValues(batcher).Observe(float64(size))
}
