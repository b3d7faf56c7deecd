package types

import (
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
)

// Settings are the cluster-wide numbers of the conversion.
type Settings struct {
	Region string
	// VMMemoryOverheadPercent is the fraction (0.075 is 7.5 %) of memory that the hypervisor and the
	// operating system's bookkeeping take.
	VMMemoryOverheadPercent float64
	// ReservedENIs is how many network interfaces are kept from pods.
	ReservedENIs int
}

// Class is what a node class says about its machines as far as types depend on it.
type Class struct {
	Family              string
	Zones               []class.Zone // of its subnets, sorted
	Subnets             map[string][]string
	Kubelet             kubelet.Config
	BlockDeviceMappings []ec2v1.BlockDeviceMapping
	RAID0               bool
	// NetworkInterfaces, when not nil, replaces the generated ones.
	NetworkInterfaces    []ec2v1.NetworkInterface
	ConnectionTracking   bool
	NestedVirtualization bool
}

// ClassOf reads a node class. Kubelet settings that cannot be read count as unset: validation reports
// them, and a class that fails it launches nothing.
func ClassOf(nc *ec2v1.EC2NodeClass) Class {
	settings, err := kubelet.Parse(nc.Spec.Kubelet)
	if err != nil {
		settings = kubelet.Config{}
	}
	c := Class{
		Family: class.Family(nc), Zones: class.Zones(nc), Kubelet: settings,
		Subnets:             map[string][]string{},
		BlockDeviceMappings: nc.Spec.BlockDeviceMappings,
		RAID0:               nc.Spec.InstanceStorePolicy != nil && *nc.Spec.InstanceStorePolicy == ec2v1.InstanceStorePolicyRAID0,
		NetworkInterfaces:   nc.Spec.NetworkInterfaces,
		ConnectionTracking:  nc.Spec.ConnectionTracking != nil,
	}
	for _, s := range nc.Status.Subnets {
		c.Subnets[s.Zone] = append(c.Subnets[s.Zone], s.ID)
	}
	if cpu := nc.Spec.CPUOptions; cpu != nil && cpu.NestedVirtualization != nil {
		c.NestedVirtualization = *cpu.NestedVirtualization == string(ec2types.NestedVirtualizationSpecificationEnabled)
	}
	return c
}

func (c *Class) zone(name string) (class.Zone, bool) {
	for _, z := range c.Zones {
		if z.Name == name {
			return z, true
		}
	}
	return class.Zone{}, false
}

// efaOnly counts the class's EFA-only interfaces; card < 0 counts those of all cards.
func (c *Class) efaOnly(card int32) int64 {
	var n int64
	for _, nic := range c.NetworkInterfaces {
		if nic.InterfaceType == ec2v1.NetworkInterfaceTypeEFAOnly && (card < 0 || nic.NetworkCardIndex == card) {
			n++
		}
	}
	return n
}
