package facts

// Status tells where an instance type is known from.
type Status string

const (
	// Listed types are in EC2's DescribeInstanceTypes record; all fields are known.
	Listed Status = "listed"
	// PricedOnly types have a price but are no longer described by EC2.
	PricedOnly Status = "priced-only"
	// LimitsOnly types are known to network limit tables alone (retired, private).
	LimitsOnly Status = "limits-only"
)

// InstanceType is what EC2 tells about one instance type, plus two facts that
// only published tables give: Network.BandwidthMbps and BranchENI.
//
// MiB is 2^20 bytes, GB 10^9 bytes, Mbps and Gbps 10^6 and 10^9 bits per second.
// Zero means unknown or not applicable. Slices and maps are shared between all
// users of the catalogue and must not be changed.
type InstanceType struct {
	Name   string `json:"name"`
	Family string `json:"family"` // the part before the dot: m5
	Size   string `json:"size"`   // the part behind the dot: large
	Flex   bool   `json:"flex,omitempty"`
	Status Status `json:"status"`

	VCPUs          int      `json:"vcpus"`
	Cores          int      `json:"cores,omitempty"`
	ThreadsPerCore int      `json:"threadsPerCore,omitempty"`
	MemoryMiB      int64    `json:"memoryMiB"`
	Architectures  []string `json:"arch"`       // EC2's words, in its order; the first one decides
	Hypervisor     string   `json:"hypervisor"` // nitro, xen, or empty on bare metal

	BareMetal         bool `json:"bareMetal"`
	Burstable         bool `json:"burstable"`
	CurrentGeneration bool `json:"currentGeneration"`
	FreeTier          bool `json:"freeTier"`
	DedicatedHosts    bool `json:"dedicatedHosts"`
	Hibernation       bool `json:"hibernation"`
	AutoRecovery      bool `json:"autoRecovery"`

	NitroEnclaves string `json:"nitroEnclaves,omitempty"` // supported or unsupported
	NitroTPM      string `json:"nitroTPM,omitempty"`      // supported or unsupported

	ProcessorManufacturer string   `json:"processorManufacturer,omitempty"`
	ProcessorFeatures     []string `json:"processorFeatures,omitempty"`
	ClockGHz              float64  `json:"clockGHz,omitempty"` // sustained

	UsageClasses        []string `json:"usageClasses,omitempty"` // on-demand, spot, capacity-block
	VirtualizationTypes []string `json:"virtualizationTypes,omitempty"`
	RootDeviceTypes     []string `json:"rootDeviceTypes,omitempty"`
	BootModes           []string `json:"bootModes,omitempty"`
	PlacementStrategies []string `json:"placementStrategies,omitempty"`

	EBS          EBS           `json:"ebs"`
	Network      Network       `json:"network"`
	BranchENI    BranchENI     `json:"branchENI"`
	LocalStorage *LocalStorage `json:"localStorage,omitempty"` // nil when the type has none

	GPUs                  []GPU          `json:"gpus,omitempty"`
	InferenceAccelerators []Device       `json:"inferenceAccelerators,omitempty"`
	NeuronDevices         []NeuronDevice `json:"neuronDevices,omitempty"`
	FPGAs                 []Device       `json:"fpgas,omitempty"`
	MediaAccelerators     []Device       `json:"mediaAccelerators,omitempty"`

	// Zones maps a region to the letters of the zones that offer the type:
	// "abd" in us-east-1 means us-east-1a, us-east-1b and us-east-1d.
	Zones map[string]string `json:"zones,omitempty"`
}

// EBS is the block storage side of an instance type.
type EBS struct {
	OptimizedSupport    string  `json:"optimizedSupport,omitempty"` // default, supported or unsupported
	Encryption          string  `json:"encryption,omitempty"`
	NVMe                string  `json:"nvme,omitempty"` // required, supported or unsupported
	MaxAttachments      int     `json:"maxAttachments,omitempty"`
	AttachmentLimitType string  `json:"attachmentLimitType,omitempty"` // shared or dedicated
	BaselineMbps        int     `json:"baselineMbps,omitempty"`
	MaxMbps             int     `json:"maxMbps,omitempty"`
	BaselineIops        int     `json:"baselineIops,omitempty"`
	MaxIops             int     `json:"maxIops,omitempty"`
	BaselineMBps        float64 `json:"baselineMBps,omitempty"`
	MaxMBps             float64 `json:"maxMBps,omitempty"`
}

// Network is the network side of an instance type.
type Network struct {
	Performance         string `json:"performance,omitempty"`
	BandwidthMbps       int    `json:"bandwidthMbps,omitempty"` // 0 when only a word is published
	MaxENIs             int    `json:"maxENIs,omitempty"`       // all cards together
	DefaultCard         int    `json:"defaultCard"`             // position in Cards
	Cards               []Card `json:"cards,omitempty"`
	IPv4PerENI          int    `json:"ipv4PerENI,omitempty"`
	IPv6PerENI          int    `json:"ipv6PerENI,omitempty"`
	IPv6                bool   `json:"ipv6,omitempty"`
	ENA                 string `json:"ena,omitempty"` // required, supported or unsupported
	EFA                 bool   `json:"efa,omitempty"`
	MaxEFA              int    `json:"maxEFA,omitempty"`
	EncryptionInTransit bool   `json:"encryptionInTransit,omitempty"`
}

// Card is one network card.
type Card struct {
	Index        int     `json:"index"`
	MaxENIs      int     `json:"maxENIs"`
	Performance  string  `json:"performance,omitempty"`
	BaselineGbps float64 `json:"baselineGbps,omitempty"`
	PeakGbps     float64 `json:"peakGbps,omitempty"`
}

// BranchENI tells how many pods of a node can have a security group of their own.
type BranchENI struct {
	Trunking bool `json:"trunking"`
	Max      int  `json:"max"`
}

// GPU is one kind of GPU; Count is 0 when the type has a fraction of one, and
// LogicalCount then says how many devices the machine sees.
type GPU struct {
	Name         string  `json:"name"`
	Manufacturer string  `json:"manufacturer"`
	Count        int     `json:"count"`
	MemoryMiB    int64   `json:"memoryMiB"` // of each
	LogicalCount int     `json:"logicalCount,omitempty"`
	Partition    float64 `json:"partition,omitempty"` // 1 for a whole GPU
}

// Device is an accelerator that EC2 describes by name, maker, count and memory.
type Device struct {
	Name         string `json:"name"`
	Manufacturer string `json:"manufacturer"`
	Count        int    `json:"count"`
	MemoryMiB    int64  `json:"memoryMiB"` // of each
}

// NeuronDevice is an AWS Inferentia or Trainium device.
type NeuronDevice struct {
	Name           string `json:"name"`
	Count          int    `json:"count"`
	CoresPerDevice int    `json:"coresPerDevice"`
	CoreVersion    int    `json:"coreVersion"`
	MemoryMiB      int64  `json:"memoryMiB"` // of each
}

// LocalStorage is the instance store.
type LocalStorage struct {
	TotalGB    int    `json:"totalGB"`
	NVMe       string `json:"nvme"` // required, supported or unsupported
	Encryption string `json:"encryption"`
	Disks      []Disk `json:"disks"`
}

// Disk is Count equal disks of the instance store.
type Disk struct {
	Count  int    `json:"count"`
	SizeGB int    `json:"sizeGB"`
	Type   string `json:"type"` // ssd or hdd
}

// Zone is an availability zone. ID names the same place in every account, Name does not.
type Zone struct {
	Name string // us-east-1a
	ID   string // use1-az6
}
