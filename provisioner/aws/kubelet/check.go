package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	sigsjson "sigs.k8s.io/json"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

var (
	signals = []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"pid.available"}
	reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}
	// portable are the settings that every family with generated user data passes on.
	portable = []string{"maxPods", "podsPerCore", "kubeReserved", "systemReserved", "evictionHard", "clusterDNS", "evictionSoft",
		"evictionSoftGracePeriod", "evictionMaxPodGracePeriod", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
		"cpuCFSQuota"}
)

// Problem is why the settings cannot be used: a condition reason and a message for the operator.
type Problem struct{ Reason, Message string }

// Check returns the first kind of mistake in the settings of a class of the family, nil when there is
// none. All mistakes of one kind are in one message.
func Check(raw *runtime.RawExtension, family string) *Problem {
	if raw == nil || len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil
	}
	if errs := invalid(raw.Raw); len(errs) > 0 {
		return &Problem{Reason: ec2v1.ReasonInvalidKubeletConfiguration, Message: strings.Join(errs, "; ")}
	}
	c, err := Parse(raw)
	if err != nil {
		return &Problem{Reason: ec2v1.ReasonInvalidKubeletConfiguration, Message: err.Error()}
	}
	if len(c.Expressions) > 0 {
		return &Problem{Reason: ec2v1.ReasonKubeletExpressionsDisabled,
			Message: "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled"}
	}
	return unsupported(c, family)
}

// unsupported finds settings that the family's bootstrap would silently drop.
func unsupported(c Config, family string) *Problem {
	if family == ec2v1.AMIFamilyAL2023 || family == ec2v1.AMIFamilyCustom {
		return nil
	}
	var dropped []string
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		if !slices.Contains(portable, name) || (name == "podsPerCore" && family == ec2v1.AMIFamilyBottlerocket) {
			dropped = append(dropped, name)
		}
	}
	var messages []string
	if len(dropped) > 0 {
		messages = append(messages, fmt.Sprintf("spec.kubelet has fields not applied by the %s AMI family that would be silently dropped: %s",
			family, strings.Join(dropped, ", ")))
	}
	if n := len(c.ClusterDNS); n > 1 {
		messages = append(messages, fmt.Sprintf("spec.kubelet.clusterDNS: the %s AMI family doesn't accept multiple entries, only one, but %d were set", family, n))
	}
	if len(messages) == 0 {
		return nil
	}
	return &Problem{Reason: ec2v1.ReasonUnsupportedKubeletConfiguration, Message: strings.Join(messages, "; ")}
}

// invalid returns everything that the kubelet would refuse or misread.
func invalid(data []byte) []string {
	k, errs := decode(data)
	if k == nil {
		return errs
	}
	if k.RegisterWithTaints != nil {
		errs = append(errs, "spec.kubelet.registerWithTaints: can't be set, use the taints of the NodePool")
	}
	for _, field := range []struct {
		name   string
		values map[string]string
	}{{"evictionHard", k.EvictionHard}, {"evictionSoft", k.EvictionSoft}, {"evictionMinimumReclaim", k.EvictionMinimumReclaim}} {
		errs = append(errs, signalKeys(field.name, field.values)...)
		for _, key := range sortedKeys(field.values) {
			errs = append(errs, threshold("spec.kubelet."+field.name+"["+key+"]", field.values[key])...)
		}
	}
	errs = append(errs, signalKeys("evictionSoftGracePeriod", k.EvictionSoftGracePeriod)...)
	errs = append(errs, gracePeriods(k.EvictionSoft, k.EvictionSoftGracePeriod)...)
	errs = append(errs, reserved("kubeReserved", k.KubeReserved)...)
	errs = append(errs, reserved("systemReserved", k.SystemReserved)...)
	return append(errs, ranges(k)...)
}

func decode(data []byte) (*kubeletv1beta1.KubeletConfiguration, []string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, []string{"spec.kubelet: " + err.Error()}
	}
	if isString(fields["maxPods"]) { // an expression; it is looked at later
		fields["maxPods"] = json.RawMessage("0")
		replaced, err := json.Marshal(fields)
		if err != nil {
			return nil, []string{"spec.kubelet: " + err.Error()}
		}
		data = replaced
	}
	k := &kubeletv1beta1.KubeletConfiguration{}
	strict, err := sigsjson.UnmarshalStrict(data, k)
	if err != nil {
		return nil, []string{"spec.kubelet: " + err.Error()}
	}
	var errs []string
	for _, e := range strict {
		errs = append(errs, "spec.kubelet: "+e.Error())
	}
	return k, errs
}

func signalKeys(field string, values map[string]string) []string {
	var errs []string
	for _, key := range sortedKeys(values) {
		if !slices.Contains(signals, key) {
			errs = append(errs, fmt.Sprintf("spec.kubelet.%s: %q isn't a valid eviction signal, must be one of %s", field, key, strings.Join(signals, ", ")))
		}
	}
	return errs
}

func threshold(path, value string) []string {
	if number, ok := strings.CutSuffix(value, "%"); ok {
		if n, err := strconv.ParseFloat(number, 64); err != nil || n < 0 || n > 100 {
			return []string{fmt.Sprintf("%s: %q must be a percentage or a resource quantity", path, value)}
		}
		return nil
	}
	q, err := resource.ParseQuantity(value)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s: %q must be a percentage or a resource quantity", path, value)}
	case q.Sign() < 0:
		return []string{fmt.Sprintf("%s: %q can't be a negative resource quantity", path, value)}
	}
	return nil
}

func gracePeriods(soft, periods map[string]string) []string {
	var errs []string
	for _, key := range sortedKeys(periods) {
		path := "spec.kubelet.evictionSoftGracePeriod[" + key + "]"
		if d, err := time.ParseDuration(periods[key]); err != nil {
			errs = append(errs, fmt.Sprintf("%s: %q must be a duration", path, periods[key]))
		} else if d < 0 {
			errs = append(errs, fmt.Sprintf("%s: %q can't be a negative duration", path, periods[key]))
		}
		if _, ok := soft[key]; !ok {
			errs = append(errs, path+": has no matching evictionSoft")
		}
	}
	for _, key := range sortedKeys(soft) {
		if _, ok := periods[key]; !ok {
			errs = append(errs, "spec.kubelet.evictionSoft["+key+"]: has no matching evictionSoftGracePeriod")
		}
	}
	return errs
}

func reserved(field string, values map[string]string) []string {
	var errs []string
	for _, key := range sortedKeys(values) {
		if !slices.Contains(reservable, key) {
			errs = append(errs, fmt.Sprintf("spec.kubelet.%s: %q isn't a reservable resource, must be one of %s", field, key, strings.Join(reservable, ", ")))
		}
		if strings.HasPrefix(values[key], "-") {
			errs = append(errs, fmt.Sprintf("spec.kubelet.%s[%s]: %q can't be a negative resource quantity", field, key, values[key]))
		}
	}
	return errs
}

func ranges(k *kubeletv1beta1.KubeletConfiguration) []string {
	var errs []string
	high, low := k.ImageGCHighThresholdPercent, k.ImageGCLowThresholdPercent
	percent := func(name string, value *int32) {
		if value != nil && (*value < 0 || *value > 100) {
			errs = append(errs, fmt.Sprintf("spec.kubelet.%s: %d must be between 0 and 100", name, *value))
		}
	}
	percent("imageGCHighThresholdPercent", high)
	percent("imageGCLowThresholdPercent", low)
	natural := func(name string, value int32) {
		if value < 0 {
			errs = append(errs, fmt.Sprintf("spec.kubelet.%s: %d can't be negative", name, value))
		}
	}
	natural("maxPods", k.MaxPods)
	natural("podsPerCore", k.PodsPerCore)
	natural("evictionMaxPodGracePeriod", k.EvictionMaxPodGracePeriod)
	if high != nil && low != nil && *high <= *low {
		errs = append(errs, fmt.Sprintf("spec.kubelet: imageGCHighThresholdPercent (%d) must be greater than imageGCLowThresholdPercent (%d)", *high, *low))
	}
	return errs
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Reserved parses the amounts of kubeReserved or systemReserved.
func Reserved(values map[string]string) (map[string]resource.Quantity, error) {
	out := make(map[string]resource.Quantity, len(values))
	var errs []error
	for key, value := range values {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("amount %q of %s: %w", value, key, err))
			continue
		}
		out[key] = q
	}
	return out, errors.Join(errs...)
}
