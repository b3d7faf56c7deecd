package template

import "github.com/prometheus/client_golang/prometheus"

// Metrics tell how large user data has grown.
type Metrics struct{ userData *prometheus.GaugeVec }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{userData: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "karpenter", Subsystem: "ec2nodeclasses", Name: "userdata_bytes",
		Help: "Size of the rendered user data of the class, in bytes before base64. EC2 takes 16384.",
	}, []string{"nodeclass"})}
	reg.MustRegister(m.userData)
	return m
}
