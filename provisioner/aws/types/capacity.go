package types

import (
	"math"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
	"github.com/berth-dev/berth/provisioner/resources"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
	// armMemoryMiB is what arm64 machines lack of the memory that EC2 tells, for kdump.
	armMemoryMiB = 64
	// windowsPods is the pod density of families whose pods don't get their addresses from ENIs.
	windowsPods = 110
	// defaultEvictionMemory is the kubelet's own threshold.
	defaultEvictionMemory = 100 * mebi
	// defaultVolume backs ephemeral storage when neither class nor family says anything.
	defaultVolume        = 20 * gibi
	defaultWindowsVolume = 50 * gibi
)

func capacity(info *ec2types.InstanceTypeInfo, c *Class, s Settings) resources.Vector {
	v := resources.Vector{
		MilliCPU:         vcpus(info) * 1000,
		Memory:           memory(info, s),
		EphemeralStorage: ephemeralStorage(info, c),
		Pods:             pods(info, c, s),
	}
	set := func(name corev1.ResourceName, n int64) {
		if n > 0 {
			v = v.With(name, n)
		}
	}
	set(ec2v1.ResourcePodENI, int64(facts.BranchENIs(string(info.InstanceType))))
	set(ec2v1.ResourceNVIDIAGPU, gpus(info, "NVIDIA"))
	set(ec2v1.ResourceAMDGPU, gpus(info, "AMD"))
	set(ec2v1.ResourceHabanaGaudi, gpus(info, "Habana"))
	neuron, cores := neurons(info)
	set(ec2v1.ResourceNeuron, neuron)
	set(ec2v1.ResourceNeuronCore, cores)
	set(ec2v1.ResourceEFA, efas(info, c))
	if class.IsWindows(c.Family) && architecture(info) == "amd64" {
		if t, ok := facts.Lookup(string(info.InstanceType)); ok {
			set(ec2v1.ResourcePrivateIPv4, int64(t.Network.IPv4PerENI)-1)
		}
	}
	return v
}

func vcpus(info *ec2types.InstanceTypeInfo) int64 {
	if info.VCpuInfo == nil {
		return 0
	}
	return int64(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
}

func memoryMiB(info *ec2types.InstanceTypeInfo) int64 {
	if info.MemoryInfo == nil {
		return 0
	}
	return aws.ToInt64(info.MemoryInfo.SizeInMiB)
}

// memory is the machine's memory as the node will see it, in bytes.
func memory(info *ec2types.InstanceTypeInfo, s Settings) int64 {
	raw := memoryMiB(info)
	if p := info.ProcessorInfo; p != nil && len(p.SupportedArchitectures) > 0 && p.SupportedArchitectures[0] == ec2types.ArchitectureTypeArm64 {
		raw -= armMemoryMiB
	}
	over := int64(math.Ceil(float64(raw*mebi) * s.VMMemoryOverheadPercent / mebi))
	return max(raw-over, 0) * mebi
}

// ephemeralStorage is the size in bytes of the volume that holds the kubelet's directory.
func ephemeralStorage(info *ec2types.InstanceTypeInfo, c *Class) int64 {
	if store := info.InstanceStorageInfo; c.RAID0 && store != nil && aws.ToInt64(store.TotalSizeInGB) > 0 {
		return *store.TotalSizeInGB * 1_000_000_000
	}
	device, size := familyVolume(c.Family)
	for _, m := range c.BlockDeviceMappings {
		if n, ok := volumeSize(m); ok && m.RootVolume {
			return n
		}
	}
	if c.Family == ec2v1.AMIFamilyCustom {
		if n := len(c.BlockDeviceMappings); n > 0 {
			if last, ok := volumeSize(c.BlockDeviceMappings[n-1]); ok {
				return last
			}
		}
		return size
	}
	for _, m := range c.BlockDeviceMappings {
		if n, ok := volumeSize(m); ok && m.DeviceName != nil && *m.DeviceName == device {
			return n
		}
	}
	return size
}

func volumeSize(m ec2v1.BlockDeviceMapping) (int64, bool) {
	if m.EBS == nil || m.EBS.VolumeSize == nil {
		return 0, false
	}
	return m.EBS.VolumeSize.Value(), true
}

func familyVolume(family string) (device string, size int64) {
	switch {
	case family == ec2v1.AMIFamilyBottlerocket:
		return "/dev/xvdb", defaultVolume
	case class.IsWindows(family):
		return "/dev/sda1", defaultWindowsVolume
	default:
		return "/dev/xvda", defaultVolume
	}
}

// defaultCard is the network card of the primary interface. EC2 gives its place in the list.
func defaultCard(info *ec2types.InstanceTypeInfo) (ec2types.NetworkCardInfo, bool) {
	if info.NetworkInfo == nil {
		return ec2types.NetworkCardInfo{}, false
	}
	i := int(aws.ToInt32(info.NetworkInfo.DefaultNetworkCardIndex))
	if i < 0 || i >= len(info.NetworkInfo.NetworkCards) {
		return ec2types.NetworkCardInfo{}, false
	}
	return info.NetworkInfo.NetworkCards[i], true
}

// eniPods is how many pods get an address when every one takes one of an interface.
func eniPods(info *ec2types.InstanceTypeInfo, withheld int64) int64 {
	card, ok := defaultCard(info)
	n := int64(aws.ToInt32(card.MaximumNetworkInterfaces)) - withheld
	if !ok || n <= 0 {
		return 0
	}
	return n*(int64(aws.ToInt32(info.NetworkInfo.Ipv4AddressesPerInterface))-1) + 2
}

func pods(info *ec2types.InstanceTypeInfo, c *Class, s Settings) int64 {
	var n int64
	switch {
	case c.Kubelet.MaxPods != nil:
		n = int64(*c.Kubelet.MaxPods)
	case class.IsWindows(c.Family):
		n = windowsPods
	default:
		n = eniPods(info, int64(s.ReservedENIs)+c.efaOnly(0))
	}
	if per := int64(c.Kubelet.PodsPerCore); per > 0 && c.Family != ec2v1.AMIFamilyBottlerocket {
		n = min(n, per*vcpus(info))
	}
	return n
}

func gpus(info *ec2types.InstanceTypeInfo, maker string) int64 {
	if info.GpuInfo == nil {
		return 0
	}
	var n int64
	for _, g := range info.GpuInfo.Gpus {
		if aws.ToString(g.Manufacturer) == maker {
			n += int64(aws.ToInt32(g.Count))
		}
	}
	return n
}

func neurons(info *ec2types.InstanceTypeInfo) (devices, cores int64) {
	if info.NeuronInfo == nil {
		return 0, 0
	}
	for i, d := range info.NeuronInfo.NeuronDevices {
		devices += int64(aws.ToInt32(d.Count))
		if i == 0 && d.CoreInfo != nil {
			cores = int64(aws.ToInt32(d.Count)) * int64(aws.ToInt32(d.CoreInfo.Count))
		}
	}
	return devices, cores
}

func efas(info *ec2types.InstanceTypeInfo, c *Class) int64 {
	if c.NetworkInterfaces != nil {
		return c.efaOnly(-1)
	}
	if n := info.NetworkInfo; n != nil && n.EfaInfo != nil {
		return int64(aws.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
	return 0
}

// overhead is what the node keeps from pods: reservations and the eviction threshold.
func overhead(info *ec2types.InstanceTypeInfo, c *Class, whole resources.Vector) resources.Vector {
	slots := whole.Pods
	if !class.IsWindows(c.Family) && c.Family != ec2v1.AMIFamilyBottlerocket {
		slots = eniPods(info, c.efaOnly(0)) // the bootstrap of these images knows nothing of maxPods
	}
	kube := resources.Vector{
		MilliCPU:         kubeCPU(vcpus(info)),
		Memory:           (11*slots + 255) * mebi,
		EphemeralStorage: gibi,
	}
	kube = replaced(kube, c.Kubelet.KubeReserved)
	system := replaced(resources.Vector{}, c.Kubelet.SystemReserved)
	eviction := resources.Vector{
		Memory:           defaultEvictionMemory,
		EphemeralStorage: ceilPercent(whole.EphemeralStorage, 10),
	}
	if n, ok := evictionThreshold(c.Kubelet.EvictionHard["memory.available"], whole.Memory); ok {
		eviction.Memory = n
	}
	if n, ok := evictionThreshold(c.Kubelet.EvictionHard["nodefs.available"], whole.EphemeralStorage); ok {
		eviction.EphemeralStorage = n
	}
	return kube.Add(system).Add(eviction)
}

// kubeCPU follows the rule of the EKS bootstrap: 6 % of the first core, 1 % of the second, 0.5 % of the
// next two and 0.25 % of the rest, each in whole millicores.
func kubeCPU(cores int64) int64 {
	milli := int64(0)
	for _, band := range []struct{ cores, perMyriad int64 }{{1, 600}, {1, 100}, {2, 50}, {math.MaxInt32, 25}} {
		n := min(cores, band.cores)
		milli += n * 1000 * band.perMyriad / 10_000
		cores -= n
	}
	return milli
}

// replaced puts amounts from the class in the place of defaults, key by key.
func replaced(v resources.Vector, amounts map[string]string) resources.Vector {
	parsed, err := kubelet.Reserved(amounts)
	if err != nil { // expressions are not among the amounts, so nothing is lost
		return v
	}
	for name, q := range parsed {
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU:
			v.MilliCPU = q.MilliValue()
		case corev1.ResourceMemory:
			v.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			v.EphemeralStorage = q.Value()
		default: // pid is no resource of pods
		}
	}
	return v
}

// evictionThreshold reads a quantity, or a percentage of the whole of which 100% means none.
func evictionThreshold(text string, whole int64) (int64, bool) {
	if text == "" {
		return 0, false
	}
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, false
		}
		if percent == 100 {
			return 0, true
		}
		return ceilPercent(whole, percent), true
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	return q.Value(), true
}

func ceilPercent(whole int64, percent float64) int64 {
	return int64(math.Ceil(float64(whole) / 100 * percent))
}
