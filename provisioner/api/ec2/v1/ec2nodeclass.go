package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EC2NodeClass says how machines are made on EC2: image, network, role, disks, user data.
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ec2nodeclasses,scope=Cluster,categories=karpenter,shortName={ec2nc,ec2ncs}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether machines can be made"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".spec.role",priority=1,description="IAM role of the machines"
type EC2NodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:message="must specify exactly one of ['role', 'instanceProfile']",rule="has(self.role) != has(self.instanceProfile)"
	// +kubebuilder:validation:XValidation:message="if set, amiFamily must be 'AL2' or 'Custom' when using an AL2 alias",rule="!has(self.amiFamily) || self.amiFamily in ['AL2', 'Custom'] || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('al2@'))",fieldPath=".amiFamily"
	// +kubebuilder:validation:XValidation:message="if set, amiFamily must be 'AL2023' or 'Custom' when using an AL2023 alias",rule="!has(self.amiFamily) || self.amiFamily in ['AL2023', 'Custom'] || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('al2023@'))",fieldPath=".amiFamily"
	// +kubebuilder:validation:XValidation:message="if set, amiFamily must be 'Bottlerocket' or 'Custom' when using a Bottlerocket alias",rule="!has(self.amiFamily) || self.amiFamily in ['Bottlerocket', 'Custom'] || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('bottlerocket@'))",fieldPath=".amiFamily"
	// +kubebuilder:validation:XValidation:message="if set, amiFamily must be 'Windows2019' or 'Custom' when using a Windows2019 alias",rule="!has(self.amiFamily) || self.amiFamily in ['Windows2019', 'Custom'] || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('windows2019@'))",fieldPath=".amiFamily"
	// +kubebuilder:validation:XValidation:message="if set, amiFamily must be 'Windows2022' or 'Custom' when using a Windows2022 alias",rule="!has(self.amiFamily) || self.amiFamily in ['Windows2022', 'Custom'] || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('windows2022@'))",fieldPath=".amiFamily"
	// +kubebuilder:validation:XValidation:message="if set, amiFamily must be 'Windows2025' or 'Custom' when using a Windows2025 alias",rule="!has(self.amiFamily) || self.amiFamily in ['Windows2025', 'Custom'] || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('windows2025@'))",fieldPath=".amiFamily"
	// +kubebuilder:validation:XValidation:message="must specify amiFamily if amiSelectorTerms does not contain an alias",rule="has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",fieldPath=".amiFamily"
	// +required
	Spec EC2NodeClassSpec `json:"spec"`
	// +optional
	Status EC2NodeClassStatus `json:"status,omitempty"`
}

// EC2NodeClassList is a list of EC2NodeClasses.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type EC2NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EC2NodeClass `json:"items"`
}

// EC2NodeClassSpec is how the machines are made.
type EC2NodeClassSpec struct {
	// subnetSelectorTerms select the subnets; a subnet that matches any term is used.
	// +kubebuilder:validation:XValidation:message="subnetSelectorTerms cannot be empty",rule="size(self) != 0"
	// +kubebuilder:validation:XValidation:message="expected at least one, got none, ['tags', 'id']",rule="self.all(x, has(x.tags) || has(x.id))"
	// +kubebuilder:validation:XValidation:message="'id' is mutually exclusive, cannot be set with a combination of other fields in subnetSelectorTerms",rule="size(self) == 0 || !self.all(x, has(x.id) && has(x.tags))"
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +required
	SubnetSelectorTerms []SubnetSelectorTerm `json:"subnetSelectorTerms"`
	// securityGroupSelectorTerms select the security groups; a group that matches any term is used.
	// +kubebuilder:validation:XValidation:message="securityGroupSelectorTerms cannot be empty",rule="size(self) != 0"
	// +kubebuilder:validation:XValidation:message="expected at least one, got none, ['tags', 'id', 'name']",rule="self.all(x, has(x.tags) || has(x.id) || has(x.name))"
	// +kubebuilder:validation:XValidation:message="'id' is mutually exclusive, cannot be set with a combination of other fields in securityGroupSelectorTerms",rule="size(self) == 0 || !self.all(x, has(x.id) && (has(x.tags) || has(x.name)))"
	// +kubebuilder:validation:XValidation:message="'name' is mutually exclusive, cannot be set with a combination of other fields in securityGroupSelectorTerms",rule="size(self) == 0 || !self.all(x, has(x.name) && (has(x.tags) || has(x.id)))"
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +required
	SecurityGroupSelectorTerms []SecurityGroupSelectorTerm `json:"securityGroupSelectorTerms"`
	// capacityReservationSelectorTerms select the capacity reservations that may be used.
	// +kubebuilder:validation:XValidation:message="expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']",rule="self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))"
	// +kubebuilder:validation:XValidation:message="'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",rule="size(self) == 0 || !self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))"
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	CapacityReservationSelectorTerms []CapacityReservationSelectorTerm `json:"capacityReservationSelectorTerms,omitempty"`
	// amiSelectorTerms select the machine images. An alias such as al2023@latest must be the only term.
	// +kubebuilder:validation:XValidation:message="expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",rule="self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))"
	// +kubebuilder:validation:XValidation:message="'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",rule="!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))"
	// +kubebuilder:validation:XValidation:message="'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",rule="!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))"
	// +kubebuilder:validation:XValidation:message="'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",rule="size(self) == 1 || !self.exists(x, has(x.alias))"
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +required
	AMISelectorTerms []AMISelectorTerm `json:"amiSelectorTerms"`
	// amiFamily says which operating system the user data is written for. An alias implies it.
	// +kubebuilder:validation:Enum=AL2;AL2023;Bottlerocket;Custom;Windows2019;Windows2022;Windows2025
	// +optional
	AMIFamily *string `json:"amiFamily,omitempty"`
	// placementGroupSelector selects the placement group that instances join.
	// +optional
	PlacementGroupSelector *PlacementGroupSelector `json:"placementGroupSelector,omitempty"`
	// associatePublicIPAddress gives instances a public address, or not. Unset: as the subnet says.
	// +optional
	AssociatePublicIPAddress *bool `json:"associatePublicIPAddress,omitempty"`
	// ipPrefixCount is the number of address prefixes that each network interface gets at launch.
	// +kubebuilder:validation:Minimum=0
	// +optional
	IPPrefixCount *int32 `json:"ipPrefixCount,omitempty"`
	// userData is merged with what the AMI family needs; for family Custom it is used as it is.
	// +optional
	UserData *string `json:"userData,omitempty"`
	// role is the IAM role of the instances. An instance profile is made for it.
	// +kubebuilder:validation:XValidation:message="role cannot be empty",rule="self != ''"
	// +optional
	Role string `json:"role,omitempty"`
	// instanceProfile is an existing instance profile, instead of role.
	// +kubebuilder:validation:XValidation:message="instanceProfile cannot be empty",rule="self != ''"
	// +optional
	InstanceProfile *string `json:"instanceProfile,omitempty"`
	// tags are put on instances, volumes, network interfaces, launch templates and instance profiles.
	// +kubebuilder:validation:XValidation:message="empty tag keys aren't supported",rule="!('' in self)"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching eks:eks-cluster-name",rule="!('eks:eks-cluster-name' in self)"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching kubernetes.io/cluster/",rule="self.all(k, !k.startsWith('kubernetes.io/cluster'))"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching karpenter.sh/nodepool",rule="!('karpenter.sh/nodepool' in self)"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching karpenter.sh/nodeclaim",rule="!('karpenter.sh/nodeclaim' in self)"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass",rule="!('karpenter.k8s.aws/ec2nodeclass' in self)"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// kubelet is a KubeletConfiguration of kubelet.config.k8s.io/v1beta1. Mistakes in it are reported in
	// condition ValidationSucceeded.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Kubelet *runtime.RawExtension `json:"kubelet,omitempty"`
	// blockDeviceMappings are the volumes. Unset: those of the AMI family.
	// +kubebuilder:validation:XValidation:message="must have only one blockDeviceMappings with rootVolume",rule="self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1"
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	BlockDeviceMappings []BlockDeviceMapping `json:"blockDeviceMappings,omitempty"`
	// instanceStorePolicy RAID0 joins the instance store disks and gives them to pods as ephemeral storage.
	// +kubebuilder:validation:Enum=RAID0
	// +optional
	InstanceStorePolicy *InstanceStorePolicy `json:"instanceStorePolicy,omitempty"`
	// networkInterfaces replaces the generated network interfaces.
	// +kubebuilder:validation:XValidation:message="networkInterfaces must include a primary interface with interfaceType='interface'",rule="size(self) == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && x.interfaceType == 'interface')"
	// +kubebuilder:validation:XValidation:message="networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card",rule="self.all(x, self.exists_one(y, x.networkCardIndex == y.networkCardIndex && x.deviceIndex == y.deviceIndex)) && self.all(x, x.interfaceType != 'efa-only' || self.exists_one(y, y.interfaceType == 'efa-only' && x.networkCardIndex == y.networkCardIndex))"
	// +kubebuilder:validation:MaxItems=150
	// +listType=atomic
	// +optional
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty"`
	// detailedMonitoring switches on one-minute metrics of the instances.
	// +optional
	DetailedMonitoring *bool `json:"detailedMonitoring,omitempty"`
	// metadataOptions are those of the instance metadata service.
	// +kubebuilder:default:={httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}
	// +optional
	MetadataOptions *MetadataOptions `json:"metadataOptions,omitempty"`
	// connectionTracking sets idle timeouts of the network interfaces. Only Nitro instances have them.
	// +kubebuilder:validation:XValidation:message="at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",rule="has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)"
	// +optional
	ConnectionTracking *ConnectionTracking `json:"connectionTracking,omitempty"`
	// context is the opaque Context of the fleet request.
	// +optional
	Context *string `json:"context,omitempty"`
	// cpuOptions are those of the launch template.
	// +optional
	CPUOptions *CPUOptions `json:"cpuOptions,omitempty"`
}
