//go:build crdschema

package v1

// VolumeSize is a quantity: 1..59000 Gi, 1..64000 G, 1..64 T, or Ti with the digits 1-9, n0-n7 for tens
// 1-5, and 58.
// +kubebuilder:validation:Pattern=`^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]|[1-5][0-7]|58)Ti|([1-9]|[1-5][0-9]|6[0-4])T)$`
type VolumeSize string
