package app

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// current is the registry of the Run in this process, shown at the scheduler's /metrics. The legacy
// registry cannot give collectors back, so one that forwards is registered once, and a second Run in
// the same process takes its place.
var (
	current      atomic.Pointer[prometheus.Registry]
	registerOnce sync.Once
	_            prometheus.Collector = forward{}
)

// newRegistry returns the registry of one Run and makes it the one that /metrics shows.
func newRegistry() *prometheus.Registry {
	registerOnce.Do(func() { legacyregistry.RawMustRegister(forward{}) })
	r := prometheus.NewRegistry()
	current.Store(r)
	return r
}

// forward shows whatever the current registry has. It describes nothing, which makes it unchecked.
type forward struct{}

func (forward) Describe(chan<- *prometheus.Desc) {}

func (forward) Collect(ch chan<- prometheus.Metric) {
	if r := current.Load(); r != nil {
		r.Collect(ch)
	}
}

// gateMetrics tell who buys nodes.
type gateMetrics struct {
	active, blocked prometheus.Gauge
	restarts        prometheus.Counter
}

func newGateMetrics(reg prometheus.Registerer) *gateMetrics {
	m := &gateMetrics{
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "provisioner", Name: "active",
			Help: "1 while this process buys and removes nodes, else 0.",
		}),
		blocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "provisioner", Name: "blocked",
			Help: "1 while this process schedules, but another holder of the provisioner lease keeps it from buying nodes.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "provisioner", Name: "restarts_total",
			Help: "How often the provisioner ended with an error or a panic and was started again.",
		}),
	}
	reg.MustRegister(m.active, m.blocked, m.restarts)
	return m
}
