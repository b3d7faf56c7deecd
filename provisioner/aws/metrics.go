package aws

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/provisioner/cloud"
)

const providerName = "aws"

// metrics time the methods of Provider.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "cloudprovider", Name: "duration_seconds",
			Help: "Duration of calls to the cloud provider.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"controller", "method", "provider"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "cloudprovider", Name: "errors_total",
			Help: "Failed calls to the cloud provider.",
		}, []string{"controller", "method", "provider", "error"}),
	}
	reg.MustRegister(m.seconds, m.errors)
	return m
}

// observe is deferred at the start of a method; err is its result.
func (m *metrics) observe(method string, began time.Time, clock clock.PassiveClock, err *error) {
	m.seconds.WithLabelValues("", method, providerName).Observe(clock.Since(began).Seconds())
	if *err != nil {
		m.errors.WithLabelValues("", method, providerName, errorKind(*err)).Inc()
	}
}

func errorKind(err error) string {
	switch {
	case cloud.IsNotFound(err):
		return "NodeClaimNotFoundError"
	case cloud.IsClassNotReady(err):
		return "NodeClassNotReadyError"
	case cloud.IsNoCapacity(err):
		return "InsufficientCapacityError"
	}
	return ""
}
