package ec2sim

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// KubeletSettings is what decides, beside the machine, what a kubelet reports.
// The zero value is an AL2023 node with EKS's defaults.
type KubeletSettings struct {
	RootGiB        int64               // size of the volume that pods use; default 20
	RAID0          bool                // pods use the local disks, if there are any
	MaxPods        int                 // default what the network interfaces allow
	KubeReserved   corev1.ResourceList // each missing resource has EKS's default
	SystemReserved corev1.ResourceList
	EvictionMemory *resource.Quantity // hard eviction threshold memory.available; default 100Mi
	EFA            int                // EFA interfaces that were attached
	PodENI         bool               // security groups for pods are switched on
}

// TrueResources tells what the kubelet of an AL2023 node with default settings
// reports. Only the simulated kubelets may ask: the provisioner must get by with
// what AWS publishes.
func TrueResources(t facts.InstanceType) (capacity, allocatable corev1.ResourceList) {
	return KubeletSettings{}.Resources(t)
}

// Resources tells what a kubelet with these settings reports on a machine.
func (k KubeletSettings) Resources(t facts.InstanceType) (capacity, allocatable corev1.ResourceList) {
	pods := int64(k.MaxPods)
	if pods == 0 {
		pods = ENIPods(t)
	}
	memory, disk := trueMemory(t), k.diskBytes(t)
	capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(t.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(disk, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(pods, resource.DecimalSI),
		"hugepages-1Gi":                 *resource.NewQuantity(0, resource.BinarySI),
		"hugepages-2Mi":                 *resource.NewQuantity(0, resource.BinarySI),
	}
	for name, count := range devices(t, k) {
		if count > 0 {
			capacity[name] = *resource.NewQuantity(count, resource.DecimalSI)
		}
	}
	allocatable = capacity.DeepCopy()
	kept := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(reservedMilliCPU(t.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity((11*pods+255)<<20, resource.BinarySI),
		// 1Gi for the system and, as eviction threshold, a tenth of the disk.
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(1<<30, resource.BinarySI),
	}
	for name, quantity := range k.KubeReserved {
		kept[name] = quantity
	}
	eviction := resource.NewQuantity(100<<20, resource.BinarySI)
	if k.EvictionMemory != nil {
		eviction = k.EvictionMemory
	}
	thresholds := corev1.ResourceList{
		corev1.ResourceMemory:           *eviction,
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(disk/10, resource.BinarySI),
	}
	for _, list := range []corev1.ResourceList{kept, k.SystemReserved, thresholds} {
		for name, quantity := range list {
			rest, known := allocatable[name]
			if !known {
				continue
			}
			if rest.Sub(quantity); rest.Sign() < 0 {
				rest = *resource.NewQuantity(0, rest.Format)
			}
			allocatable[name] = rest
		}
	}
	return capacity, allocatable
}

// ENIPods is how many pods the addresses of the default network card allow.
func ENIPods(t facts.InstanceType) int64 {
	if t.Network.DefaultCard >= len(t.Network.Cards) {
		return 110
	}
	return int64(t.Network.Cards[t.Network.DefaultCard].MaxENIs)*int64(t.Network.IPv4PerENI-1) + 2
}

// trueMemory is what the kernel leaves of the nominal memory: 1.5 to 6 % less,
// always the same for a type, in pages of 4 KiB.
func trueMemory(t facts.InstanceType) int64 {
	lost := 0.015 + 0.045*unit(0, "memory|"+t.Name)
	return int64(math.Floor(float64(t.MemoryMiB)*(1-lost)*256)) << 12
}

// reservedMilliCPU is EKS's kube-reserved: 6 % of the first core, 1 % of the
// second, 0.5 % of the next two, 0.25 % of the rest, each cut to whole millis.
func reservedMilliCPU(cores int) int64 {
	n := int64(cores)
	kept := 60 * min(n, 1)
	kept += 10 * min(max(n-1, 0), 1)
	kept += 5 * min(max(n-2, 0), 2)
	return kept + max(n-4, 0)*10/4
}

func (k KubeletSettings) diskBytes(t facts.InstanceType) int64 {
	if k.RAID0 && t.LocalStorage != nil && t.LocalStorage.TotalGB > 0 {
		return int64(t.LocalStorage.TotalGB) * 1e9
	}
	gib := k.RootGiB
	if gib <= 0 {
		gib = 20
	}
	return gib << 30
}

// devices counts what device plugins and the VPC resource controller advertise.
func devices(t facts.InstanceType, k KubeletSettings) map[corev1.ResourceName]int64 {
	count := map[corev1.ResourceName]int64{}
	names := map[string]corev1.ResourceName{"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
	for _, g := range t.GPUs {
		if name, known := names[g.Manufacturer]; known {
			n := int64(g.Count)
			if n == 0 {
				n = int64(g.LogicalCount) // a fraction of a GPU is one device to the plugin
			}
			count[name] += n
		}
	}
	for _, d := range t.NeuronDevices {
		count["aws.amazon.com/neuron"] += int64(d.Count)
		count["aws.amazon.com/neuroncore"] += int64(d.Count * d.CoresPerDevice)
	}
	count["vpc.amazonaws.com/efa"] = int64(k.EFA)
	if k.PodENI && t.BranchENI.Trunking {
		count["vpc.amazonaws.com/pod-eni"] = int64(t.BranchENI.Max)
	}
	return count
}
