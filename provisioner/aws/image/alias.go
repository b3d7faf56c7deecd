package image

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
)

// variant says which instance types an image is for.
type variant string

const (
	standard variant = "standard"
	nvidia   variant = "nvidia"
	neuron   variant = "neuron"
)

// query is an SSM parameter and the variants that its image serves.
type query struct {
	path     string
	variants []variant
}

// queries lists the parameters of an alias for a Kubernetes minor version such as 1.32.
func queries(alias class.Alias, kubernetes string) []query {
	const eks = "/aws/service/eks/optimized-ami/"
	version := func(pinned string) string {
		if alias.Version == class.LatestVersion {
			return "recommended"
		}
		return fmt.Sprintf(pinned, kubernetes, alias.Version)
	}
	switch alias.Family {
	case ec2v1.AMIFamilyAL2:
		path := func(folder, name string) string {
			return eks + kubernetes + "/" + folder + "/" + version(name+"-%s-%s") + "/image_id"
		}
		return []query{
			{path("amazon-linux-2", "amazon-eks-node"), []variant{standard}},
			{path("amazon-linux-2-arm64", "amazon-eks-arm64-node"), []variant{standard}},
			{path("amazon-linux-2-gpu", "amazon-eks-gpu-node"), []variant{neuron, nvidia}},
		}
	case ec2v1.AMIFamilyAL2023:
		var out []query
		for _, v := range []struct {
			arch    string
			variant variant
		}{{"x86_64", standard}, {"arm64", standard}, {"x86_64", nvidia}, {"arm64", nvidia}, {"x86_64", neuron}} {
			name := version("amazon-eks-node-al2023-" + v.arch + "-" + string(v.variant) + "-%s-%s")
			out = append(out, query{eks + kubernetes + "/amazon-linux-2023/" + v.arch + "/" + string(v.variant) + "/" + name + "/image_id", []variant{v.variant}})
		}
		return out
	case ec2v1.AMIFamilyBottlerocket:
		path := func(flavour, arch string) string {
			return "/aws/service/bottlerocket/aws-k8s-" + kubernetes + flavour + "/" + arch + "/" + strings.TrimPrefix(alias.Version, "v") + "/image_id"
		}
		return []query{
			{path("", "x86_64"), []variant{standard, neuron}},
			{path("", "arm64"), []variant{standard}},
			{path("-nvidia", "x86_64"), []variant{nvidia}},
			{path("-nvidia", "arm64"), []variant{nvidia}},
		}
	}
	if class.IsWindows(alias.Family) {
		year := strings.TrimPrefix(alias.Family, "Windows")
		return []query{{"/aws/service/ami-windows-latest/Windows_Server-" + year + "-English-Core-EKS_Optimized-" + kubernetes + "/image_id", []variant{variant(alias.Family)}}}
	}
	return nil
}

// isMutable reports whether the parameters of the alias may get another image.
func isMutable(alias class.Alias) bool {
	return alias.Version == class.LatestVersion || class.IsWindows(alias.Family)
}

const (
	lastAL2Minor          = 32
	firstWindows2025Minor = 35
)

// Unsupported returns why there are no images of the alias for a Kubernetes version, "" when there are.
func Unsupported(alias class.Alias, kubernetes string) string {
	minor, err := strconv.Atoi(strings.TrimPrefix(kubernetes, "1."))
	if err != nil {
		return ""
	}
	switch {
	case alias.Family == ec2v1.AMIFamilyAL2 && minor > lastAL2Minor:
		return fmt.Sprintf("AL2 images end with Kubernetes 1.%d and the cluster runs %s; use alias al2023 or bottlerocket, or select AL2 images by id or ssmParameter", lastAL2Minor, kubernetes)
	case alias.Family == ec2v1.AMIFamilyWindows2025 && minor < firstWindows2025Minor:
		return fmt.Sprintf("Windows 2025 images begin with Kubernetes 1.%d and the cluster runs %s; use alias windows2022", firstWindows2025Minor, kubernetes)
	}
	return ""
}

// requirements of a variant's instance types, beside the architecture.
func (v variant) requirements() []corev1.NodeSelectorRequirement {
	exists := func(key string, op corev1.NodeSelectorOperator) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op}
	}
	switch v {
	case "":
		return nil
	case standard:
		return []corev1.NodeSelectorRequirement{exists(ec2v1.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpDoesNotExist),
			exists(ec2v1.LabelInstanceGPUCount, corev1.NodeSelectorOpDoesNotExist)}
	case nvidia:
		return []corev1.NodeSelectorRequirement{exists(ec2v1.LabelInstanceGPUCount, corev1.NodeSelectorOpExists)}
	case neuron:
		return []corev1.NodeSelectorRequirement{exists(ec2v1.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpExists)}
	}
	return []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{string(corev1.Windows)}},
		{Key: corev1.LabelWindowsBuild, Operator: corev1.NodeSelectorOpIn, Values: []string{class.WindowsBuild(string(v))}},
	}
}
