package userdata

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
)

const (
	// Limit is what EC2 takes, in bytes before base64.
	Limit = 16384
	// WarnAt is the size from which an operator should hear of it: nine tenths of Limit.
	WarnAt = 14745
)

// Input is everything that goes into user data.
type Input struct {
	Family string // AMI family

	ClusterName, ClusterEndpoint string
	CABundle                     string // base64
	ClusterCIDR                  string // of services; AL2023 needs it

	Labels  map[string]string
	Taints  []corev1.Taint
	Kubelet kubelet.Config
	MaxPods int64
	// DNS has the cluster DNS addresses when the kubelet settings name none; may be empty.
	DNS   []string
	RAID0 bool
	// ImageVersion is the version of the Bottlerocket image: latest, v1.40.0, or "" when unknown.
	ImageVersion string
	// Custom is the class's own user data.
	Custom string
}

// Render returns the user data as plain text. Errors name what the user has to correct.
func Render(in Input) (string, error) {
	var text string
	var err error
	switch {
	case in.Family == ec2v1.AMIFamilyCustom:
		text = in.Custom
	case in.Family == ec2v1.AMIFamilyAL2:
		text, err = al2(in)
	case in.Family == ec2v1.AMIFamilyAL2023:
		text, err = al2023(in)
	case in.Family == ec2v1.AMIFamilyBottlerocket:
		text, err = bottlerocket(in)
	case class.IsWindows(in.Family):
		text = windows(in)
	default:
		err = fmt.Errorf("AMI family %q is not known", in.Family)
	}
	if err != nil {
		return "", fmt.Errorf("render user data: %w", err)
	}
	return text, nil
}

// Labels returns the labels that the kubelet registers with. Kubelets may not set labels of the
// Kubernetes domains on their own node, so those are left to registration.
func Labels(claim map[string]string, capacityType, family string) map[string]string {
	out := map[string]string{}
	add := func(key, value string) {
		domain, _, found := strings.Cut(key, "/")
		if found && restricted(domain) {
			return
		}
		out[key] = value
	}
	for key, value := range claim {
		add(key, value)
	}
	add(karpv1.LabelCapacityType, capacityType)
	if family != ec2v1.AMIFamilyCustom {
		add(karpv1.LabelDoNotSyncTaints, karpv1.ValueTrue)
	}
	return out
}

func restricted(domain string) bool {
	for _, suffix := range []string{"kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"} {
		if domain == suffix || strings.HasSuffix(domain, "."+suffix) {
			return true
		}
	}
	return false
}

// Taints returns the taints that the kubelet registers with: those of the claim, and the one that keeps
// pods off until the node is joined with its claim.
func Taints(claim *karpv1.NodeClaim) []corev1.Taint {
	taints := slices.Concat(claim.Spec.Taints, claim.Spec.StartupTaints)
	for _, t := range taints {
		if t.MatchTaint(&karpv1.UnregisteredNoExecuteTaint) {
			return taints
		}
	}
	return append(taints, karpv1.UnregisteredNoExecuteTaint)
}

// dns is the first DNS address, "" for none.
func (in *Input) dns() string {
	if all := in.allDNS(); len(all) > 0 {
		return all[0]
	}
	return ""
}

func (in *Input) allDNS() []string {
	if len(in.Kubelet.ClusterDNS) > 0 {
		return in.Kubelet.ClusterDNS
	}
	return in.DNS
}

func isIPv6(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && addr.Is6() && !addr.Is4In6()
}

// labelFlag is the kubelet flag --node-labels, "" without labels.
func (in *Input) labelFlag() string {
	return mapFlag("node-labels", in.Labels, "=")
}

func mapFlag(name string, values map[string]string, separator string) string {
	pairs := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key+separator+values[key])
	}
	if len(pairs) == 0 {
		return ""
	}
	return fmt.Sprintf("--%s=%q", name, strings.Join(pairs, ","))
}

// kubeletFlags is the kubelet's command line for images that take no configuration file.
func (in *Input) kubeletFlags() string {
	k := &in.Kubelet
	taints := make([]string, len(in.Taints))
	for i, t := range in.Taints {
		taints[i] = t.ToString()
	}
	flags := []string{in.labelFlag()}
	if len(taints) > 0 {
		flags = append(flags, fmt.Sprintf("--register-with-taints=%q", strings.Join(taints, ",")))
	}
	flags = append(flags, fmt.Sprintf("--max-pods=%d", in.MaxPods))
	if k.PodsPerCore > 0 {
		flags = append(flags, fmt.Sprintf("--pods-per-core=%d", k.PodsPerCore))
	}
	flags = append(flags,
		mapFlag("system-reserved", k.SystemReserved, "="),
		mapFlag("kube-reserved", k.KubeReserved, "="),
		mapFlag("eviction-hard", k.EvictionHard, "<"),
		mapFlag("eviction-soft", k.EvictionSoft, "<"),
		mapFlag("eviction-soft-grace-period", durations(k.EvictionSoftGracePeriod), "="))
	number := func(name string, value *int32) {
		if value != nil {
			flags = append(flags, fmt.Sprintf("--%s=%d", name, *value))
		}
	}
	number("eviction-max-pod-grace-period", k.EvictionMaxPodGracePeriod)
	number("image-gc-high-threshold", k.ImageGCHighThresholdPercent)
	number("image-gc-low-threshold", k.ImageGCLowThresholdPercent)
	if k.CPUCFSQuota != nil {
		flags = append(flags, fmt.Sprintf("--cpu-cfs-quota=%t", *k.CPUCFSQuota))
	}
	return strings.Join(slices.DeleteFunc(flags, func(f string) bool { return f == "" }), " ")
}
