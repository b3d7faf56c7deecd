package v1

// The AMI families.
const (
	AMIFamilyAL2          = "AL2"
	AMIFamilyAL2023       = "AL2023"
	AMIFamilyBottlerocket = "Bottlerocket"
	AMIFamilyCustom       = "Custom"
	AMIFamilyWindows2019  = "Windows2019"
	AMIFamilyWindows2022  = "Windows2022"
	AMIFamilyWindows2025  = "Windows2025"
)

// InstanceStorePolicy says what is done with the disks that an instance comes with.
type InstanceStorePolicy string

// InstanceStorePolicyRAID0 joins the disks into one array that backs ephemeral storage.
const InstanceStorePolicyRAID0 InstanceStorePolicy = "RAID0"

// BlockDeviceMapping is one volume.
type BlockDeviceMapping struct {
	// deviceName is the name under which the instance sees the volume, for example /dev/xvda.
	// +optional
	DeviceName *string `json:"deviceName,omitempty"`
	// ebs describes the volume.
	// +optional
	EBS *BlockDevice `json:"ebs,omitempty"`
	// rootVolume marks the volume that holds the kubelet's directory, for the node's ephemeral storage.
	// +optional
	RootVolume bool `json:"rootVolume,omitempty"`
}

// BlockDevice is an EBS volume.
// +kubebuilder:validation:XValidation:message="snapshotID or volumeSize must be defined",rule="has(self.snapshotID) || has(self.volumeSize)"
// +kubebuilder:validation:XValidation:message="snapshotID must be set when volumeInitializationRate is set",rule="!has(self.volumeInitializationRate) || (has(self.snapshotID) && size(self.snapshotID) > 0)",fieldPath=".volumeInitializationRate"
type BlockDevice struct {
	// deleteOnTermination ends the volume with the instance.
	// +optional
	DeleteOnTermination *bool `json:"deleteOnTermination,omitempty"`
	// encrypted says whether the volume is encrypted.
	// +optional
	Encrypted *bool `json:"encrypted,omitempty"`
	// iops of the volume, for the types that let it be chosen.
	// +optional
	IOPS *int64 `json:"iops,omitempty"`
	// kmsKeyID names the key of an encrypted volume: id, alias or ARN.
	// +optional
	KMSKeyID *string `json:"kmsKeyID,omitempty"`
	// snapshotID is the snapshot that the volume starts from.
	// +optional
	SnapshotID *string `json:"snapshotID,omitempty"`
	// throughput in MiB/s, for type gp3.
	// +optional
	Throughput *int64 `json:"throughput,omitempty"`
	// volumeInitializationRate in MiB/s is how fast blocks are fetched from the snapshot.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=300
	// +optional
	VolumeInitializationRate *int32 `json:"volumeInitializationRate,omitempty"`
	// volumeSize is 1Gi to 59000Gi, 1G to 64000G, or the same in Ti and T. It is rounded up to whole Gi.
	// +optional
	VolumeSize *VolumeSize `json:"volumeSize,omitempty"`
	// volumeType of the volume.
	// +kubebuilder:validation:Enum=standard;io1;io2;gp2;sc1;st1;gp3
	// +optional
	VolumeType *string `json:"volumeType,omitempty"`
}

// NetworkInterfaceType is the kind of a network interface.
type NetworkInterfaceType string

// The kinds of network interface.
const (
	NetworkInterfaceTypeInterface NetworkInterfaceType = "interface"
	NetworkInterfaceTypeEFAOnly   NetworkInterfaceType = "efa-only"
)

// NetworkInterface is one network interface of the instance.
type NetworkInterface struct {
	// networkCardIndex is the card that the interface sits on.
	// +kubebuilder:validation:Minimum=0
	// +required
	NetworkCardIndex int32 `json:"networkCardIndex"`
	// deviceIndex is the interface's place on the card.
	// +kubebuilder:validation:Minimum=0
	// +required
	DeviceIndex int32 `json:"deviceIndex"`
	// interfaceType is interface, or efa-only for one without IP.
	// +kubebuilder:validation:Enum=interface;efa-only
	// +required
	InterfaceType NetworkInterfaceType `json:"interfaceType"`
}

// MetadataOptions are those of the instance metadata service.
type MetadataOptions struct {
	// httpEndpoint switches the service on or off.
	// +kubebuilder:default:=enabled
	// +kubebuilder:validation:Enum=enabled;disabled
	// +optional
	HTTPEndpoint *string `json:"httpEndpoint,omitempty"`
	// httpProtocolIPv6 switches the service's IPv6 endpoint on or off.
	// +kubebuilder:default:=disabled
	// +kubebuilder:validation:Enum=enabled;disabled
	// +optional
	HTTPProtocolIPv6 *string `json:"httpProtocolIPv6,omitempty"`
	// httpPutResponseHopLimit is how far from the instance answers travel. 1 keeps them from pods.
	// +kubebuilder:default:=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	// httpTokens says whether callers need a session token (IMDSv2).
	// +kubebuilder:default:=required
	// +kubebuilder:validation:Enum=required;optional
	// +optional
	HTTPTokens *string `json:"httpTokens,omitempty"`
}

// ConnectionTracking sets idle timeouts of tracked connections, in seconds.
type ConnectionTracking struct {
	// tcpEstablishedTimeout of idle TCP connections.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=432000
	// +optional
	TCPEstablishedTimeout *int32 `json:"tcpEstablishedTimeout,omitempty"`
	// udpStreamTimeout of idle UDP flows that had more than one request and answer.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=180
	// +optional
	UDPStreamTimeout *int32 `json:"udpStreamTimeout,omitempty"`
	// udpTimeout of idle UDP flows that had one request, or traffic in one direction.
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=60
	// +optional
	UDPTimeout *int32 `json:"udpTimeout,omitempty"`
}

// CPUOptions are those of the launch template.
type CPUOptions struct {
	// nestedVirtualization enabled keeps only instance types that can run virtual machines.
	// +kubebuilder:validation:Enum=enabled;disabled
	// +optional
	NestedVirtualization *string `json:"nestedVirtualization,omitempty"`
}
