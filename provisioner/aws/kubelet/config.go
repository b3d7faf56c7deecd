package kubelet

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Config has the settings that the provisioner reads itself, and all of them as they were written.
type Config struct {
	MaxPods     *int32
	PodsPerCore int32
	// KubeReserved and SystemReserved have amounts by resource name.
	KubeReserved, SystemReserved map[string]string
	// EvictionHard and EvictionSoft have thresholds by signal.
	EvictionHard, EvictionSoft, EvictionSoftGracePeriod map[string]string
	EvictionMaxPodGracePeriod                           *int32
	ImageGCHighThresholdPercent                         *int32
	ImageGCLowThresholdPercent                          *int32
	CPUCFSQuota                                         *bool
	ClusterDNS                                          []string

	// Expressions names the fields that hold an expression instead of a value. They are not in the
	// fields above.
	Expressions []string
	// Fields has every setting as JSON, by name.
	Fields map[string]json.RawMessage
}

// Parse reads what it can of the settings and leaves mistakes to Check; only text that is no JSON
// object, or a managed field of the wrong type, is an error.
func Parse(raw *runtime.RawExtension) (Config, error) {
	var c Config
	if raw == nil || len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return c, nil
	}
	if err := json.Unmarshal(raw.Raw, &c.Fields); err != nil {
		return Config{}, fmt.Errorf("spec.kubelet: %w", err)
	}
	if isString(c.Fields["maxPods"]) {
		c.Expressions = append(c.Expressions, "maxPods")
	} else if err := c.read("maxPods", &c.MaxPods); err != nil {
		return Config{}, err
	}
	for name, target := range map[string]any{
		"podsPerCore": &c.PodsPerCore, "kubeReserved": &c.KubeReserved, "systemReserved": &c.SystemReserved,
		"evictionHard": &c.EvictionHard, "evictionSoft": &c.EvictionSoft,
		"evictionSoftGracePeriod": &c.EvictionSoftGracePeriod, "evictionMaxPodGracePeriod": &c.EvictionMaxPodGracePeriod,
		"imageGCHighThresholdPercent": &c.ImageGCHighThresholdPercent,
		"imageGCLowThresholdPercent":  &c.ImageGCLowThresholdPercent,
		"cpuCFSQuota":                 &c.CPUCFSQuota, "clusterDNS": &c.ClusterDNS,
	} {
		if err := c.read(name, target); err != nil {
			return Config{}, err
		}
	}
	c.takeExpressions("kubeReserved", c.KubeReserved)
	c.takeExpressions("systemReserved", c.SystemReserved)
	return c, nil
}

func (c *Config) read(name string, target any) error {
	value, ok := c.Fields[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(value, target); err != nil {
		return fmt.Errorf("spec.kubelet.%s: %w", name, err)
	}
	return nil
}

// takeExpressions moves values that are no quantities out of the map.
func (c *Config) takeExpressions(name string, reserved map[string]string) {
	for _, key := range sortedKeys(reserved) {
		if _, err := resource.ParseQuantity(reserved[key]); err != nil {
			c.Expressions = append(c.Expressions, name+"["+key+"]")
			delete(reserved, key)
		}
	}
}

func isString(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }
