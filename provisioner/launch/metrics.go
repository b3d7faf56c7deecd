package launch

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	created *prometheus.CounterVec // reason, nodepool, min_values_relaxed
	held    *prometheus.CounterVec // brake: node_cap, launch_rate; nodepool
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		created: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "nodeclaims", Name: "created_total",
			Help: "NodeClaims created, by reason and pool.",
		}, []string{"reason", "nodepool", "min_values_relaxed"}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "launch", Name: "held_total",
			Help: "Planned nodes that a safety brake held back, by brake and pool.",
		}, []string{"brake", "nodepool"}),
	}
	registry.MustRegister(m.created, m.held)
	return m
}
