package types

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// nameScheme takes type names apart: category letters and generation, as in m5.large or u-12tb1.metal.
var nameScheme = regexp.MustCompile(`(^[a-z]+)(\-[0-9]+tb)?([0-9]+).*\.`)

func in(key string, values ...string) requirement.Requirement {
	return requirement.New(key, corev1.NodeSelectorOpIn, values...)
}

func absent(key string) requirement.Requirement {
	return requirement.New(key, corev1.NodeSelectorOpDoesNotExist)
}

// labels are the requirements of a type. zones are those where EC2 offers it.
func labels(info *ec2types.InstanceTypeInfo, zones []string, c *Class, s Settings) requirement.Set {
	name := string(info.InstanceType)
	set := requirement.NewSet(
		in(corev1.LabelInstanceTypeStable, name),
		in(corev1.LabelArchStable, architecture(info)),
		operatingSystem(info, c),
		in(corev1.LabelTopologyRegion, s.Region),
		windowsBuild(c.Family),
		in(ec2v1.LabelInstanceTenancy, "default", "dedicated"),
	)
	addZones(set, zones, c)
	set.Add(in(karpv1.LabelCapacityType, capacityTypes(info)...))
	set.Add(absent(ec2v1.LabelCapacityReservationID), absent(ec2v1.LabelCapacityReservationType),
		absent(ec2v1.LabelCapacityReservationInterruptible), absent(ec2v1.LabelPlacementGroupID), absent(ec2v1.LabelPlacementGroupPartition))
	addName(set, name)
	addProcessor(set, info)
	addDevices(set, info)
	addAccelerators(set, info)
	return set
}

// architecture is the first one that Kubernetes has a name for.
func architecture(info *ec2types.InstanceTypeInfo) string {
	if info.ProcessorInfo == nil {
		return "unknown"
	}
	for _, a := range info.ProcessorInfo.SupportedArchitectures {
		switch a {
		case ec2types.ArchitectureTypeX8664:
			return karpv1.ArchitectureAMD64
		case ec2types.ArchitectureTypeArm64:
			return karpv1.ArchitectureARM64
		default: // Kubernetes has no name for it
		}
	}
	return fmt.Sprint(info.ProcessorInfo.SupportedArchitectures)
}

func operatingSystem(info *ec2types.InstanceTypeInfo, c *Class) requirement.Requirement {
	switch {
	case !class.IsWindows(c.Family):
		return in(corev1.LabelOSStable, string(corev1.Linux))
	case architecture(info) == karpv1.ArchitectureAMD64:
		return in(corev1.LabelOSStable, string(corev1.Windows))
	default:
		return in(corev1.LabelOSStable) // Windows does not run here
	}
}

func windowsBuild(family string) requirement.Requirement {
	if build := class.WindowsBuild(family); build != "" {
		return in(corev1.LabelWindowsBuild, build)
	}
	return absent(corev1.LabelWindowsBuild)
}

func addZones(set requirement.Set, zones []string, c *Class) {
	var names, ids []string
	for _, name := range zones {
		zone, ok := c.zone(name)
		if !ok {
			continue
		}
		names = append(names, zone.Name)
		if zone.ID != "" {
			ids = append(ids, zone.ID)
		}
	}
	set.Add(in(corev1.LabelTopologyZone, names...))
	if len(ids) > 0 {
		set.Add(in(ec2v1.LabelTopologyZoneID, ids...))
	}
}

// capacityTypes are the ways to buy the type.
func capacityTypes(info *ec2types.InstanceTypeInfo) []string {
	var kinds []string
	for _, usage := range info.SupportedUsageClasses {
		switch usage {
		case ec2types.UsageClassTypeOnDemand:
			kinds = append(kinds, karpv1.CapacityTypeOnDemand)
		case ec2types.UsageClassTypeSpot:
			kinds = append(kinds, karpv1.CapacityTypeSpot)
		default: // capacity blocks are bought ahead
		}
	}
	return kinds
}

func addName(set requirement.Set, name string) {
	family, size, _ := strings.Cut(name, ".")
	set.Add(in(ec2v1.LabelInstanceFamily, family), in(ec2v1.LabelInstanceSize, size),
		in(ec2v1.LabelInstanceCapabilityFlex, strconv.FormatBool(strings.Contains(family, "-flex"))))
	if parts := nameScheme.FindStringSubmatch(name); parts != nil {
		set.Add(in(ec2v1.LabelInstanceCategory, parts[1]), in(ec2v1.LabelInstanceGeneration, parts[3]))
	} else {
		set.Add(absent(ec2v1.LabelInstanceCategory), absent(ec2v1.LabelInstanceGeneration))
	}
}

func addProcessor(set requirement.Set, info *ec2types.InstanceTypeInfo) {
	var maker string
	var clock int64
	if p := info.ProcessorInfo; p != nil {
		maker = kebab(aws.ToString(p.Manufacturer))
		clock = int64(math.Round(aws.ToFloat64(p.SustainedClockSpeedInGhz) * 1000))
	}
	encrypted := info.NetworkInfo != nil && aws.ToBool(info.NetworkInfo.EncryptionInTransitSupported)
	set.Add(
		in(ec2v1.LabelInstanceCPU, strconv.FormatInt(vcpus(info), 10)),
		in(ec2v1.LabelInstanceCPUManufacturer, maker),
		in(ec2v1.LabelInstanceCPUSustainedClockSpeedMHz, strconv.FormatInt(clock, 10)),
		in(ec2v1.LabelInstanceMemory, strconv.FormatInt(memoryMiB(info), 10)),
		in(ec2v1.LabelInstanceHypervisor, string(info.Hypervisor)),
		in(ec2v1.LabelInstanceEncryptionInTransitSupported, strconv.FormatBool(encrypted)),
		in(ec2v1.LabelNitroSandbox, strconv.FormatBool(info.NitroEnclavesSupport == ec2types.NitroEnclavesSupportSupported)),
	)
}

func addDevices(set requirement.Set, info *ec2types.InstanceTypeInfo) {
	ebs, network, nvme := absent(ec2v1.LabelInstanceEBSBandwidth), absent(ec2v1.LabelInstanceNetworkBandwidth), absent(ec2v1.LabelInstanceLocalNVMe)
	if e := info.EbsInfo; e != nil && e.EbsOptimizedInfo != nil && e.EbsOptimizedSupport == ec2types.EbsOptimizedSupportDefault {
		ebs = in(ec2v1.LabelInstanceEBSBandwidth, strconv.Itoa(int(aws.ToInt32(e.EbsOptimizedInfo.MaximumBandwidthInMbps))))
	}
	if mbps, ok := facts.BandwidthMbps(string(info.InstanceType)); ok {
		network = in(ec2v1.LabelInstanceNetworkBandwidth, strconv.Itoa(mbps))
	}
	if s := info.InstanceStorageInfo; s != nil && s.TotalSizeInGB != nil && s.NvmeSupport != ec2types.EphemeralNvmeSupportUnsupported {
		nvme = in(ec2v1.LabelInstanceLocalNVMe, strconv.FormatInt(*s.TotalSizeInGB, 10))
	}
	set.Add(ebs, network, nvme)
}

// addAccelerators describes GPUs and accelerators only where there is exactly one kind of them.
func addAccelerators(set requirement.Set, info *ec2types.InstanceTypeInfo) {
	if g := info.GpuInfo; g != nil && len(g.Gpus) == 1 {
		gpu := g.Gpus[0]
		var mib int32
		if gpu.MemoryInfo != nil {
			mib = aws.ToInt32(gpu.MemoryInfo.SizeInMiB)
		}
		set.Add(
			in(ec2v1.LabelInstanceGPUName, kebab(aws.ToString(gpu.Name))),
			in(ec2v1.LabelInstanceGPUManufacturer, kebab(aws.ToString(gpu.Manufacturer))),
			in(ec2v1.LabelInstanceGPUCount, strconv.Itoa(int(aws.ToInt32(gpu.Count)))),
			in(ec2v1.LabelInstanceGPUMemory, strconv.Itoa(int(mib))))
	} else {
		set.Add(absent(ec2v1.LabelInstanceGPUName), absent(ec2v1.LabelInstanceGPUManufacturer),
			absent(ec2v1.LabelInstanceGPUCount), absent(ec2v1.LabelInstanceGPUMemory))
	}
	name, maker, count, ok := accelerator(info)
	if !ok {
		set.Add(absent(ec2v1.LabelInstanceAcceleratorName), absent(ec2v1.LabelInstanceAcceleratorManufacturer), absent(ec2v1.LabelInstanceAcceleratorCount))
		return
	}
	set.Add(in(ec2v1.LabelInstanceAcceleratorName, kebab(name)), in(ec2v1.LabelInstanceAcceleratorManufacturer, kebab(maker)),
		in(ec2v1.LabelInstanceAcceleratorCount, strconv.Itoa(int(count))))
}

func accelerator(info *ec2types.InstanceTypeInfo) (name, maker string, count int32, ok bool) {
	if n := info.NeuronInfo; n != nil {
		if len(n.NeuronDevices) != 1 {
			return "", "", 0, false
		}
		d := n.NeuronDevices[0]
		return aws.ToString(d.Name), "aws", aws.ToInt32(d.Count), true
	}
	if a := info.InferenceAcceleratorInfo; a != nil && len(a.Accelerators) == 1 {
		d := a.Accelerators[0]
		return aws.ToString(d.Name), aws.ToString(d.Manufacturer), aws.ToInt32(d.Count), true
	}
	return "", "", 0, false
}

func kebab(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "-") }
