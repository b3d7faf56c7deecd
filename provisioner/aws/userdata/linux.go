package userdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// durations rewrites durations the way Go prints them, so that 90s and 1m30s give one text.
func durations(values map[string]string) map[string]string {
	out := make(map[string]string, len(values))
	for key, value := range values {
		if d, err := time.ParseDuration(value); err == nil {
			value = d.String()
		}
		out[key] = value
	}
	return out
}

// al2 runs the user's parts and then the image's bootstrap script.
func al2(in Input) (string, error) {
	var parts []part
	switch {
	case strings.TrimSpace(in.Custom) == "":
	case isMIME(in.Custom):
		users, err := readMIME(in.Custom)
		if err != nil {
			return "", err
		}
		parts = users
	default:
		parts = []part{{contentType: shellType, body: in.Custom}}
	}
	return writeMIME(append(parts, part{contentType: shellType, body: bootstrapScript(&in)})), nil
}

func bootstrapScript(in *Input) string {
	command := fmt.Sprintf("/etc/eks/bootstrap.sh '%s' --apiserver-endpoint '%s'", in.ClusterName, in.ClusterEndpoint)
	if in.CABundle != "" {
		command += fmt.Sprintf(" --b64-cluster-ca '%s'", in.CABundle)
	}
	var lines []string
	if dns := in.dns(); dns != "" {
		if isIPv6(dns) {
			lines = append(lines, "--ip-family ipv6")
		}
		lines = append(lines, fmt.Sprintf("--dns-cluster-ip '%s'", dns))
	}
	lines = append(lines, "--use-max-pods false", fmt.Sprintf("--kubelet-extra-args '%s'", in.kubeletFlags()))
	if in.RAID0 {
		lines = append(lines, "--local-disks raid0")
	}
	return "#!/bin/bash -xe\n" +
		"exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1\n" +
		strings.Join(append([]string{command}, lines...), " \\\n") + "\n"
}

// al2023 gives nodeadm the user's parts first, so that generated settings win where both speak.
func al2023(in Input) (string, error) {
	var parts []part
	switch {
	case strings.TrimSpace(in.Custom) == "":
	case isMIME(in.Custom):
		users, err := readMIME(in.Custom)
		if err != nil {
			return "", err
		}
		for _, p := range users {
			parts = append(parts, part{contentType: p.contentType, body: p.body})
		}
	case isMapping(in.Custom):
		parts = []part{{contentType: nodeConfigType, body: in.Custom}}
	default:
		parts = []part{{contentType: shellType, body: in.Custom}}
	}
	config, err := nodeConfig(&in)
	if err != nil {
		return "", err
	}
	return writeMIME(append(parts, part{contentType: nodeConfigType, body: config})), nil
}

func isMapping(text string) bool {
	var fields map[string]any
	return yaml.Unmarshal([]byte(text), &fields) == nil && fields != nil
}

type taint struct {
	Effect corev1.TaintEffect `json:"effect"`
	Key    string             `json:"key"`
	Value  string             `json:"value,omitempty"`
}

func nodeConfig(in *Input) (string, error) {
	if in.ClusterCIDR == "" {
		return "", errors.New("the service CIDR of the cluster is not known yet, and AL2023 needs it")
	}
	config := map[string]any{}
	for name, value := range in.Kubelet.Fields {
		var decoded any
		if err := json.Unmarshal(value, &decoded); err != nil {
			return "", fmt.Errorf("decode spec.kubelet.%s: %w", name, err)
		}
		config[name] = decoded
	}
	config["maxPods"] = in.MaxPods
	if dns := in.allDNS(); len(dns) > 0 {
		config["clusterDNS"] = dns
	}
	taints := make([]taint, len(in.Taints))
	for i, t := range in.Taints {
		taints[i] = taint{Effect: t.Effect, Key: t.Key, Value: t.Value}
	}
	config["registerWithTaints"] = taints
	kubeletSpec := map[string]any{"config": config}
	if flag := in.labelFlag(); flag != "" {
		kubeletSpec["flags"] = []string{flag}
	}
	storage := map[string]any{}
	if in.RAID0 {
		storage["strategy"] = "RAID0"
	}
	document, err := yaml.Marshal(map[string]any{
		"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "metadata": map[string]any{},
		"spec": map[string]any{
			"cluster": map[string]any{"name": in.ClusterName, "apiServerEndpoint": in.ClusterEndpoint,
				"certificateAuthority": in.CABundle, "cidr": in.ClusterCIDR},
			"containerd": map[string]any{},
			"instance":   map[string]any{"localStorage": storage},
			"kubelet":    kubeletSpec,
		},
	})
	if err != nil {
		return "", fmt.Errorf("encode NodeConfig: %w", err)
	}
	return "# Written by the node provisioner; it is merged over the parts before it.\n" + string(document), nil
}

// windows runs the user's commands and then the image's bootstrap script.
func windows(in Input) string {
	var b strings.Builder
	b.WriteString("<powershell>\n")
	if in.Custom != "" {
		b.WriteString(in.Custom + "\n")
	}
	b.WriteString(`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"` + "\n")
	fmt.Fprintf(&b, `& $EKSBootstrapScriptFile -EKSClusterName '%s' -APIServerEndpoint '%s'`, in.ClusterName, in.ClusterEndpoint)
	if in.CABundle != "" {
		fmt.Fprintf(&b, ` -Base64ClusterCA '%s'`, in.CABundle)
	}
	if flags := in.kubeletFlags(); flags != "" {
		fmt.Fprintf(&b, ` -KubeletExtraArgs '%s'`, flags)
	}
	if dns := in.dns(); dns != "" {
		fmt.Fprintf(&b, ` -DNSClusterIP '%s'`, dns)
	}
	b.WriteString("\n</powershell>")
	return b.String()
}
