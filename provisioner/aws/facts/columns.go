package facts

import (
	"fmt"
	"strconv"
	"strings"
)

// column is one cell of a type's row: how it is written and how it is read.
// An empty cell always means the zero value, and set is not called for it.
type column struct {
	name string
	get  func(t *InstanceType) string
	set  func(d *decoder, t *InstanceType, cell string) error
}

func text(name string, field func(*InstanceType) *string) column {
	return column{name,
		func(t *InstanceType) string { return *field(t) },
		func(d *decoder, t *InstanceType, cell string) error { *field(t) = d.intern(cell); return nil }}
}

func number[T int | int64](name string, field func(*InstanceType) *T) column {
	return column{name,
		func(t *InstanceType) string {
			if *field(t) == 0 {
				return ""
			}
			return strconv.FormatInt(int64(*field(t)), 10)
		},
		func(_ *decoder, t *InstanceType, cell string) error {
			n, err := strconv.ParseInt(cell, 10, 64)
			*field(t) = T(n)
			return err
		}}
}

func decimal(name string, field func(*InstanceType) *float64) column {
	return column{name,
		func(t *InstanceType) string { return formatFloat(*field(t)) },
		func(_ *decoder, t *InstanceType, cell string) (err error) {
			*field(t), err = strconv.ParseFloat(cell, 64)
			return err
		}}
}

func words(name string, field func(*InstanceType) *[]string) column {
	return column{name,
		func(t *InstanceType) string { return strings.Join(*field(t), ",") },
		func(d *decoder, t *InstanceType, cell string) error { *field(t) = d.words(cell); return nil }}
}

// flags are single letters in one cell, present when true.
var flags = []struct {
	letter byte
	field  func(*InstanceType) *bool
}{
	{'f', func(t *InstanceType) *bool { return &t.Flex }},
	{'m', func(t *InstanceType) *bool { return &t.BareMetal }},
	{'b', func(t *InstanceType) *bool { return &t.Burstable }},
	{'c', func(t *InstanceType) *bool { return &t.CurrentGeneration }},
	{'t', func(t *InstanceType) *bool { return &t.FreeTier }},
	{'d', func(t *InstanceType) *bool { return &t.DedicatedHosts }},
	{'h', func(t *InstanceType) *bool { return &t.Hibernation }},
	{'r', func(t *InstanceType) *bool { return &t.AutoRecovery }},
	{'6', func(t *InstanceType) *bool { return &t.Network.IPv6 }},
	{'e', func(t *InstanceType) *bool { return &t.Network.EFA }},
	{'x', func(t *InstanceType) *bool { return &t.Network.EncryptionInTransit }},
	{'k', func(t *InstanceType) *bool { return &t.BranchENI.Trunking }},
}

var flagColumn = column{"flags",
	func(t *InstanceType) string {
		var b []byte
		for _, f := range flags {
			if *f.field(t) {
				b = append(b, f.letter)
			}
		}
		return string(b)
	},
	func(_ *decoder, t *InstanceType, cell string) error {
		for i := range len(cell) {
			known := false
			for _, f := range flags {
				if f.letter == cell[i] {
					*f.field(t), known = true, true
				}
			}
			if !known {
				return fmt.Errorf("unknown flag %q", cell[i])
			}
		}
		return nil
	}}

// columns is the layout of a row. The header line carries the names, so a file
// of another layout is refused and never misread.
var columns = []column{
	text("name", func(t *InstanceType) *string { return &t.Name }),
	text("status", func(t *InstanceType) *string { return (*string)(&t.Status) }),
	flagColumn,
	number("vcpus", func(t *InstanceType) *int { return &t.VCPUs }),
	number("cores", func(t *InstanceType) *int { return &t.Cores }),
	number("threadsPerCore", func(t *InstanceType) *int { return &t.ThreadsPerCore }),
	number("memoryMiB", func(t *InstanceType) *int64 { return &t.MemoryMiB }),
	words("arch", func(t *InstanceType) *[]string { return &t.Architectures }),
	text("hypervisor", func(t *InstanceType) *string { return &t.Hypervisor }),
	text("nitroEnclaves", func(t *InstanceType) *string { return &t.NitroEnclaves }),
	text("nitroTPM", func(t *InstanceType) *string { return &t.NitroTPM }),
	text("processorManufacturer", func(t *InstanceType) *string { return &t.ProcessorManufacturer }),
	words("processorFeatures", func(t *InstanceType) *[]string { return &t.ProcessorFeatures }),
	decimal("clockGHz", func(t *InstanceType) *float64 { return &t.ClockGHz }),
	words("usageClasses", func(t *InstanceType) *[]string { return &t.UsageClasses }),
	words("virtualizationTypes", func(t *InstanceType) *[]string { return &t.VirtualizationTypes }),
	words("rootDeviceTypes", func(t *InstanceType) *[]string { return &t.RootDeviceTypes }),
	words("bootModes", func(t *InstanceType) *[]string { return &t.BootModes }),
	words("placementStrategies", func(t *InstanceType) *[]string { return &t.PlacementStrategies }),
	text("ebs.optimizedSupport", func(t *InstanceType) *string { return &t.EBS.OptimizedSupport }),
	text("ebs.encryption", func(t *InstanceType) *string { return &t.EBS.Encryption }),
	text("ebs.nvme", func(t *InstanceType) *string { return &t.EBS.NVMe }),
	number("ebs.maxAttachments", func(t *InstanceType) *int { return &t.EBS.MaxAttachments }),
	text("ebs.attachmentLimitType", func(t *InstanceType) *string { return &t.EBS.AttachmentLimitType }),
	number("ebs.baselineMbps", func(t *InstanceType) *int { return &t.EBS.BaselineMbps }),
	number("ebs.maxMbps", func(t *InstanceType) *int { return &t.EBS.MaxMbps }),
	number("ebs.baselineIops", func(t *InstanceType) *int { return &t.EBS.BaselineIops }),
	number("ebs.maxIops", func(t *InstanceType) *int { return &t.EBS.MaxIops }),
	decimal("ebs.baselineMBps", func(t *InstanceType) *float64 { return &t.EBS.BaselineMBps }),
	decimal("ebs.maxMBps", func(t *InstanceType) *float64 { return &t.EBS.MaxMBps }),
	text("network.performance", func(t *InstanceType) *string { return &t.Network.Performance }),
	number("network.bandwidthMbps", func(t *InstanceType) *int { return &t.Network.BandwidthMbps }),
	number("network.maxENIs", func(t *InstanceType) *int { return &t.Network.MaxENIs }),
	number("network.defaultCard", func(t *InstanceType) *int { return &t.Network.DefaultCard }),
	cardColumn,
	number("network.ipv4PerENI", func(t *InstanceType) *int { return &t.Network.IPv4PerENI }),
	number("network.ipv6PerENI", func(t *InstanceType) *int { return &t.Network.IPv6PerENI }),
	text("network.ena", func(t *InstanceType) *string { return &t.Network.ENA }),
	number("network.maxEFA", func(t *InstanceType) *int { return &t.Network.MaxEFA }),
	number("branchENI.max", func(t *InstanceType) *int { return &t.BranchENI.Max }),
	storageColumn,
	gpuColumn,
	deviceColumn("inferenceAccelerators", func(t *InstanceType) *[]Device { return &t.InferenceAccelerators }),
	neuronColumn,
	deviceColumn("fpgas", func(t *InstanceType) *[]Device { return &t.FPGAs }),
	deviceColumn("mediaAccelerators", func(t *InstanceType) *[]Device { return &t.MediaAccelerators }),
}
