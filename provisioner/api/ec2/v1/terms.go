package v1

// SubnetSelectorTerm selects subnets by id, or by tags that must all match. A tag value * means that
// the key is present.
type SubnetSelectorTerm struct {
	// tags that the subnet has.
	// +kubebuilder:validation:XValidation:message="empty tag keys or values aren't supported",rule="self.all(k, k != '' && self[k] != '')"
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	Tags map[string]string `json:"tags,omitzero"`
	// id of the subnet.
	// +kubebuilder:validation:Pattern=`subnet-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
}

// SecurityGroupSelectorTerm selects security groups by id, by name, or by tags that must all match.
type SecurityGroupSelectorTerm struct {
	// tags that the security group has.
	// +kubebuilder:validation:XValidation:message="empty tag keys or values aren't supported",rule="self.all(k, k != '' && self[k] != '')"
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	Tags map[string]string `json:"tags,omitzero"`
	// id of the security group.
	// +kubebuilder:validation:Pattern=`sg-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
	// name of the security group; not its Name tag.
	// +optional
	Name string `json:"name,omitempty"`
}

// CapacityReservationSelectorTerm selects capacity reservations by id, or by everything else, of which
// all must match.
type CapacityReservationSelectorTerm struct {
	// tags that the reservation has.
	// +kubebuilder:validation:XValidation:message="empty tag keys or values aren't supported",rule="self.all(k, k != '' && self[k] != '')"
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	Tags map[string]string `json:"tags,omitzero"`
	// id of the reservation.
	// +kubebuilder:validation:Pattern=`^cr-[0-9a-z]+$`
	// +optional
	ID string `json:"id,omitempty"`
	// ownerID is the account that owns the reservation.
	// +kubebuilder:validation:Pattern=`^[0-9]{12}$`
	// +optional
	OwnerID string `json:"ownerID,omitempty"`
	// instanceMatchCriteria is open or targeted.
	// +kubebuilder:validation:Enum=open;targeted
	// +optional
	InstanceMatchCriteria string `json:"instanceMatchCriteria,omitempty"`
}

// AMISelectorTerm selects machine images by alias, by id, by SSM parameter, or by name, owner and tags,
// of which all must match.
type AMISelectorTerm struct {
	// alias is family@version, for example al2023@latest or bottlerocket@v1.20.5.
	// +kubebuilder:validation:XValidation:message="'alias' is improperly formatted, must match the format 'family@version'",rule="self.matches('^[a-zA-Z0-9]+@.+$')"
	// +kubebuilder:validation:XValidation:message="family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'",rule="self.split('@')[0] in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']"
	// +kubebuilder:validation:XValidation:message="windows families may only specify version 'latest'",rule="!(self.split('@')[0] in ['windows2019', 'windows2022', 'windows2025']) || self.substring(self.indexOf('@') + 1) == 'latest'"
	// +kubebuilder:validation:MaxLength=30
	// +optional
	Alias string `json:"alias,omitempty"`
	// tags that the image has.
	// +kubebuilder:validation:XValidation:message="empty tag keys or values aren't supported",rule="self.all(k, k != '' && self[k] != '')"
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	Tags map[string]string `json:"tags,omitzero"`
	// id of the image.
	// +kubebuilder:validation:Pattern=`ami-[0-9a-z]+`
	// +optional
	ID string `json:"id,omitempty"`
	// name of the image; not its Name tag.
	// +optional
	Name string `json:"name,omitempty"`
	// owner is an account id, self, amazon or aws-marketplace. Unset with a name: self and amazon.
	// +optional
	Owner string `json:"owner,omitempty"`
	// ssmParameter is the name or ARN of an SSM parameter whose value is an image id.
	// +optional
	SSMParameter string `json:"ssmParameter,omitempty"`
}

// PlacementGroupSelector selects one placement group, by name or by id.
// +kubebuilder:validation:XValidation:message="must specify exactly one of ['name', 'id']",rule="has(self.name) != has(self.id)"
type PlacementGroupSelector struct {
	// name of the placement group.
	// +kubebuilder:validation:MinLength=1
	// +optional
	Name string `json:"name,omitempty"`
	// id of the placement group.
	// +kubebuilder:validation:Pattern=`^pg-[0-9a-z]+$`
	// +optional
	ID string `json:"id,omitempty"`
}
