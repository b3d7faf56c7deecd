package types

import (
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-dev/berth/provisioner/catalog"
)

// Metrics describe what can be bought.
type Metrics struct{ cpu, memory, available, price *prometheus.GaugeVec }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "karpenter", Subsystem: "cloudprovider", Name: name, Help: help,
		}, labels)
	}
	m := &Metrics{
		cpu:       gauge("instance_type_cpu_cores", "CPU cores of the instance type.", "instance_type"),
		memory:    gauge("instance_type_memory_bytes", "Memory of the instance type, in bytes.", "instance_type"),
		available: gauge("instance_type_offering_available", "1 when some class can buy the offering now.", "instance_type", "capacity_type", "zone"),
		price:     gauge("instance_type_offering_price_estimate", "Estimated price of the offering, in USD per hour.", "instance_type", "capacity_type", "zone"),
	}
	reg.MustRegister(m.cpu, m.memory, m.available, m.price)
	return m
}

func (m *Metrics) setTypes(infos []*ec2types.InstanceTypeInfo) {
	m.cpu.Reset()
	m.memory.Reset()
	for _, info := range infos {
		m.cpu.WithLabelValues(string(info.InstanceType)).Set(float64(vcpus(info)))
		m.memory.WithLabelValues(string(info.InstanceType)).Set(float64(memoryMiB(info) * mebi))
	}
}

// SetOfferings shows the offerings of several classes' types; one is available when it is so for any.
func (m *Metrics) SetOfferings(classes ...[]*catalog.InstanceType) {
	type key struct{ instanceType, capacityType, zone string }
	available, prices := map[key]float64{}, map[key]float64{}
	for _, types := range classes {
		for _, it := range types {
			for _, o := range it.Offerings {
				k := key{it.Name, o.CapacityType, o.Zone}
				prices[k] = o.Price
				if o.Available {
					available[k] = 1
				} else if _, seen := available[k]; !seen {
					available[k] = 0
				}
			}
		}
	}
	m.available.Reset()
	m.price.Reset()
	for k, v := range available {
		m.available.WithLabelValues(k.instanceType, k.capacityType, k.zone).Set(v)
		m.price.WithLabelValues(k.instanceType, k.capacityType, k.zone).Set(prices[k])
	}
}
