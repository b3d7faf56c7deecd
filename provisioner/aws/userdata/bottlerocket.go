package userdata

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/userdata/toml"
)

// bottlerocketKeys are the settings.kubernetes that the image knows. A value says which keys a table
// below it may have at its second level, nil for anything.
var bottlerocketKeys = map[string][]string{
	"api-server": nil, "cloud-provider": nil, "cluster-certificate": nil, "cluster-name": nil, "cluster-dns-ip": nil,
	"node-labels": nil, "node-taints": nil, "max-pods": nil, "eviction-hard": nil, "eviction-soft": nil,
	"eviction-soft-grace-period": nil, "eviction-max-pod-grace-period": nil, "kube-reserved": nil, "system-reserved": nil,
	"allowed-unsafe-sysctls": nil, "server-tls-bootstrap": nil, "registry-qps": nil, "registry-burst": nil, "event-qps": nil,
	"event-burst": nil, "kube-api-qps": nil, "kube-api-burst": nil, "container-log-max-size": nil, "container-log-max-files": nil,
	"container-log-max-workers": nil, "container-log-monitor-interval": nil, "cpu-manager-policy": nil,
	"cpu-manager-policy-options": nil, "cpu-manager-reconcile-period": nil, "memory-manager-policy": nil,
	"topology-manager-scope": nil, "topology-manager-policy": nil, "image-gc-high-threshold-percent": nil,
	"image-gc-low-threshold-percent": nil, "ids-per-pod": nil, "cpu-cfs-quota-enforced": nil, "shutdown-grace-period": nil,
	"shutdown-grace-period-for-critical-pods": nil, "cluster-domain": nil, "seccomp-default": nil, "pod-pids-limit": nil,
	"device-ownership-from-security-context": nil, "single-process-oom-kill": nil, "hostname-override-source": nil, "log-level": nil,

	"credential-providers":            {"enabled", "cache-duration", "image-patterns", "environment"},
	"static-pods":                     {"enabled", "manifest"},
	"memory-manager-reserved-memory":  {"enabled", "memory", "hugepages-2Mi", "hugepages-1Gi"},
	"topology-manager-policy-options": nil,
}

var topologyOptions = []string{"prefer-closest-numa-nodes", "max-allowable-numa-nodes"}

// bottlerocket writes the generated settings over the user's TOML.
func bottlerocket(in Input) (string, error) {
	document, err := toml.Parse(in.Custom)
	if err != nil {
		return "", fmt.Errorf("parse spec.userData as TOML: %w", err)
	}
	settings, err := document.Table("settings")
	if err != nil {
		return "", fmt.Errorf("read spec.userData: %w", err)
	}
	kubernetes, err := settings.Table("kubernetes")
	if err != nil {
		return "", fmt.Errorf("read spec.userData: %w", err)
	}
	keepKnown(kubernetes)
	if err := in.overwrite(kubernetes); err != nil {
		return "", fmt.Errorf("read spec.userData: %w", err)
	}
	if in.RAID0 {
		commands, err := settings.Table("bootstrap-commands")
		if err != nil {
			return "", fmt.Errorf("read spec.userData: %w", err)
		}
		commands["000-mount-instance-storage"] = mountInstanceStorage(in.ImageVersion)
	}
	return toml.Format(document), nil
}

// keepKnown drops what the image would refuse: one unknown key there keeps it from booting.
func keepKnown(kubernetes toml.Table) {
	maps.DeleteFunc(kubernetes, func(key string, _ any) bool {
		_, known := bottlerocketKeys[key]
		return !known
	})
	for key, members := range bottlerocketKeys {
		table, ok := kubernetes[key].(toml.Table)
		switch {
		case !ok:
		case key == "topology-manager-policy-options":
			maps.DeleteFunc(table, func(member string, _ any) bool { return !slices.Contains(topologyOptions, member) })
		case members != nil:
			for _, item := range table {
				if fields, ok := item.(toml.Table); ok {
					maps.DeleteFunc(fields, func(member string, _ any) bool { return !slices.Contains(members, member) })
				}
			}
		}
	}
}

func (in *Input) overwrite(kubernetes toml.Table) error {
	k := &in.Kubelet
	kubernetes["cluster-name"], kubernetes["api-server"] = in.ClusterName, in.ClusterEndpoint
	kubernetes["max-pods"] = toml.Int(in.MaxPods)
	if in.CABundle != "" {
		kubernetes["cluster-certificate"] = in.CABundle
	}
	if dns := in.dns(); dns != "" {
		kubernetes["cluster-dns-ip"] = dns
	}
	for key, values := range map[string]map[string]string{
		"system-reserved": k.SystemReserved, "kube-reserved": k.KubeReserved, "eviction-hard": k.EvictionHard,
		"eviction-soft": k.EvictionSoft, "eviction-soft-grace-period": durations(k.EvictionSoftGracePeriod),
	} {
		if len(values) > 0 {
			kubernetes[key] = toml.Strings(values)
		}
	}
	if k.EvictionMaxPodGracePeriod != nil {
		kubernetes["eviction-max-pod-grace-period"] = toml.Int(int64(*k.EvictionMaxPodGracePeriod))
	}
	if k.ImageGCHighThresholdPercent != nil {
		kubernetes["image-gc-high-threshold-percent"] = strconv.Itoa(int(*k.ImageGCHighThresholdPercent))
	}
	if k.ImageGCLowThresholdPercent != nil {
		kubernetes["image-gc-low-threshold-percent"] = strconv.Itoa(int(*k.ImageGCLowThresholdPercent))
	}
	if k.CPUCFSQuota != nil {
		kubernetes["cpu-cfs-quota-enforced"] = *k.CPUCFSQuota
	}
	labels, err := kubernetes.Table("node-labels")
	if err != nil {
		return err
	}
	maps.Copy(labels, toml.Strings(in.Labels))
	taints := toml.Table{}
	for _, t := range in.Taints {
		list, _ := taints[t.Key].([]any)
		taints[t.Key] = append(list, t.Value+":"+string(t.Effect))
	}
	kubernetes["node-taints"] = taints
	return nil
}

// mountInstanceStorage joins the disks at every boot. Images from 1.46 on know which directories to put
// there; older ones are told.
func mountInstanceStorage(version string) toml.Table {
	bind := []any{"apiclient", "ephemeral-storage", "bind"}
	if !knowsDirectories(version) {
		bind = append(bind, "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
	}
	return toml.Table{
		"mode": "always", "essential": true,
		"commands": []any{[]any{"apiclient", "ephemeral-storage", "init"}, bind},
	}
}

func knowsDirectories(version string) bool {
	if version == class.LatestVersion {
		return true
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	return err == nil && (major > 1 || (major == 1 && minor >= 46))
}
