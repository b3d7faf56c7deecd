//go:build !crdschema

package v1

import "k8s.io/apimachinery/pkg/api/resource"

// VolumeSize is a quantity. Its schema demands one of the sizes that EBS has.
type VolumeSize = resource.Quantity
