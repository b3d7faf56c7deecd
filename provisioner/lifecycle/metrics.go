package lifecycle

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	disrupted           *prometheus.CounterVec
	terminated          *prometheus.CounterVec
	nodesCreated        *prometheus.CounterVec
	nodesTerminated     *prometheus.CounterVec
	nodesDrained        *prometheus.CounterVec
	evictions           *prometheus.CounterVec
	terminationDuration *prometheus.HistogramVec
	orphans             prometheus.Counter
}

// newMetrics registers the metrics under the names that dashboards of Karpenter know.
func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(namespace, subsystem, name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	m := &metrics{
		disrupted: counter("karpenter", "nodeclaims", "disrupted_total", "NodeClaims whose removal was begun, by reason.",
			"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"),
		terminated:      counter("karpenter", "nodeclaims", "terminated_total", "NodeClaims that are gone.", "nodepool", "capacity_type", "zone"),
		nodesCreated:    counter("karpenter", "nodes", "created_total", "Nodes registered.", "nodepool", "zone"),
		nodesTerminated: counter("karpenter", "nodes", "terminated_total", "Nodes that are gone.", "nodepool", "zone"),
		nodesDrained:    counter("karpenter", "nodes", "drained_total", "Nodes whose drain has ended.", "nodepool"),
		evictions:       counter("karpenter", "pods", "eviction_requests_total", "Eviction calls by HTTP code.", "code"),
		terminationDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "nodeclaims", Name: "termination_duration_seconds",
			Help:    "Time from the deletion of a NodeClaim until its finalizer is off.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12), // 1 s to 34 min
		}, []string{"nodepool"}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "lifecycle", Name: "orphan_instances_total",
			Help: "Instances that were terminated because no NodeClaim owned them.",
		}),
	}
	registry.MustRegister(m.disrupted, m.terminated, m.nodesCreated, m.nodesTerminated, m.nodesDrained, m.evictions, m.terminationDuration, m.orphans)
	return m
}
