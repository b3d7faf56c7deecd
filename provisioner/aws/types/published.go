package types

import (
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/catalog"
)

// Published returns all types as the class would launch them in the region, by what is publicly known,
// with list prices and simulated spot prices, sorted by name. Those that the region does not have are
// there without an available offering. A class that knows no subnets yet, or is nil, gets every zone.
func Published(c *Class, s Settings) []*catalog.InstanceType {
	known := facts.Zones(s.Region)
	all := make([]string, len(known))
	everywhere := Class{Family: "AL2023"}
	if c != nil {
		everywhere = *c
	}
	for i, z := range known {
		all[i] = z.Name
		if c == nil || len(c.Zones) == 0 {
			everywhere.Zones = append(everywhere.Zones, class.Zone{Name: z.Name, ID: z.ID})
		}
	}
	maker := newOfferingMaker(&everywhere, all, publishedPrices(s.Region), endless{})
	var out []*catalog.InstanceType
	for _, f := range facts.Types() {
		zones := facts.ZonesOf(s.Region, f.Name)
		info := Describe(&f)
		it := Convert(info, zones, &everywhere, s)
		it.Offerings = maker.offerings(info, zones)
		out = append(out, it)
	}
	return out
}

// publishedPrices serves the price lists of one region.
type publishedPrices string

func (region publishedPrices) OnDemand(name string) (float64, bool) {
	return facts.OnDemandPrice(string(region), name)
}

func (region publishedPrices) Spot(name, zone string) (float64, bool) {
	return facts.SpotPrice(string(region), zone, name)
}

// endless is a stock that never runs out.
type endless struct{}

func (endless) OutOf(string, string, string, []string) bool { return false }

// Describe answers for a published type what EC2's DescribeInstanceTypes would, as far as Convert reads it.
func Describe(f *facts.InstanceType) *ec2types.InstanceTypeInfo {
	info := &ec2types.InstanceTypeInfo{
		InstanceType: ec2types.InstanceType(f.Name), Hypervisor: ec2types.InstanceTypeHypervisor(f.Hypervisor),
		BareMetal:            aws.Bool(f.BareMetal),
		VCpuInfo:             &ec2types.VCpuInfo{DefaultVCpus: number(f.VCPUs)},
		MemoryInfo:           &ec2types.MemoryInfo{SizeInMiB: aws.Int64(f.MemoryMiB)},
		NitroEnclavesSupport: ec2types.NitroEnclavesSupport(f.NitroEnclaves),
		ProcessorInfo: &ec2types.ProcessorInfo{
			Manufacturer: aws.String(f.ProcessorManufacturer), SustainedClockSpeedInGhz: aws.Float64(f.ClockGHz),
			SupportedArchitectures: words[ec2types.ArchitectureType](f.Architectures),
			SupportedFeatures:      words[ec2types.SupportedAdditionalProcessorFeature](f.ProcessorFeatures),
		},
		SupportedUsageClasses: words[ec2types.UsageClassType](f.UsageClasses),
		EbsInfo: &ec2types.EbsInfo{
			EbsOptimizedSupport: ec2types.EbsOptimizedSupport(f.EBS.OptimizedSupport),
			EbsOptimizedInfo:    &ec2types.EbsOptimizedInfo{MaximumBandwidthInMbps: number(f.EBS.MaxMbps)},
		},
		NetworkInfo: describeNetwork(&f.Network),
	}
	if s := f.LocalStorage; s != nil {
		info.InstanceStorageInfo = &ec2types.InstanceStorageInfo{TotalSizeInGB: aws.Int64(int64(s.TotalGB)), NvmeSupport: ec2types.EphemeralNvmeSupport(s.NVMe)}
	}
	describeAccelerators(info, f)
	return info
}

func describeNetwork(n *facts.Network) *ec2types.NetworkInfo {
	out := &ec2types.NetworkInfo{
		DefaultNetworkCardIndex: number(n.DefaultCard), Ipv4AddressesPerInterface: number(n.IPv4PerENI),
		EncryptionInTransitSupported: aws.Bool(n.EncryptionInTransit), EnaSupport: ec2types.EnaSupport(n.ENA),
		EfaSupported: aws.Bool(n.EFA), EfaInfo: &ec2types.EfaInfo{MaximumEfaInterfaces: number(n.MaxEFA)},
	}
	for _, c := range n.Cards {
		out.NetworkCards = append(out.NetworkCards, ec2types.NetworkCardInfo{NetworkCardIndex: number(c.Index), MaximumNetworkInterfaces: number(c.MaxENIs)})
	}
	return out
}

func describeAccelerators(info *ec2types.InstanceTypeInfo, f *facts.InstanceType) {
	if len(f.GPUs) > 0 {
		info.GpuInfo = &ec2types.GpuInfo{}
	}
	for _, g := range f.GPUs {
		info.GpuInfo.Gpus = append(info.GpuInfo.Gpus, ec2types.GpuDeviceInfo{
			Name: aws.String(g.Name), Manufacturer: aws.String(g.Manufacturer), Count: number(g.Count),
			MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: number(int(g.MemoryMiB))},
		})
	}
	if len(f.NeuronDevices) > 0 {
		info.NeuronInfo = &ec2types.NeuronInfo{}
	}
	for _, n := range f.NeuronDevices {
		info.NeuronInfo.NeuronDevices = append(info.NeuronInfo.NeuronDevices, ec2types.NeuronDeviceInfo{
			Name: aws.String(n.Name), Count: number(n.Count), CoreInfo: &ec2types.NeuronDeviceCoreInfo{Count: number(n.CoresPerDevice)},
		})
	}
	if len(f.InferenceAccelerators) > 0 {
		info.InferenceAcceleratorInfo = &ec2types.InferenceAcceleratorInfo{}
	}
	for _, d := range f.InferenceAccelerators {
		info.InferenceAcceleratorInfo.Accelerators = append(info.InferenceAcceleratorInfo.Accelerators, ec2types.InferenceDeviceInfo{
			Name: aws.String(d.Name), Manufacturer: aws.String(d.Manufacturer), Count: number(d.Count),
		})
	}
}

// number keeps what EC2 says in 32 bits.
func number(n int) *int32 { return aws.Int32(int32(min(max(n, 0), math.MaxInt32))) } //nolint:gosec // bounded

func words[T ~string](texts []string) []T {
	out := make([]T, len(texts))
	for i, text := range texts {
		out[i] = T(text)
	}
	return out
}
