package class

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

// HashVersion names the algorithm of Hash. It differs from every version of other programs, so that
// objects hashed by them are stamped anew instead of looking drifted.
const HashVersion = "berth-v1"

// Hash returns the decimal hash of everything in the class whose change must replace nodes. Selectors
// are left out: what they resolve to is compared with the instance itself. Lists are sets and zero
// values count as unset, so reordering or writing a default out does not replace anything.
func Hash(nc *ec2v1.EC2NodeClass, caBundle string) (string, error) {
	spec := nc.Spec.DeepCopy()
	spec.SubnetSelectorTerms, spec.SecurityGroupSelectorTerms = nil, nil
	spec.CapacityReservationSelectorTerms, spec.AMISelectorTerms = nil, nil
	spec.IPPrefixCount, spec.AMIFamily, spec.Kubelet = nil, nil, nil
	fields, err := toFields(spec)
	if err != nil {
		return "", err
	}
	var kubelet any // unlike elsewhere, a zero in it means something
	if raw := nc.Spec.Kubelet; raw != nil && len(raw.Raw) > 0 {
		if err := json.Unmarshal(raw.Raw, &kubelet); err != nil {
			return "", fmt.Errorf("decode kubelet settings of class %s for hashing: %w", nc.Name, err)
		}
	}
	if m, ok := kubelet.(map[string]any); ok && len(m) == 0 {
		kubelet = nil
	}
	input, err := json.Marshal(map[string]any{"spec": normalize(fields), "family": Family(nc), "ca": caBundle, "kubelet": kubelet})
	if err != nil {
		return "", fmt.Errorf("encode class %s for hashing: %w", nc.Name, err)
	}
	h := fnv.New64a()
	_, _ = h.Write(input) // a hash never fails to write
	return strconv.FormatUint(h.Sum64(), 10), nil
}

func toFields(spec *ec2v1.EC2NodeClassSpec) (map[string]any, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode class spec for hashing: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, fmt.Errorf("decode class spec for hashing: %w", err)
	}
	return fields, nil
}

// normalize drops zero values and puts lists in one order. Maps need nothing: they encode sorted.
func normalize(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			if n := normalize(item); n != nil {
				out[key] = n
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		return normalizeList(v)
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	case float64:
		if v == 0 {
			return nil
		}
	}
	return value
}

func normalizeList(list []any) any {
	texts := make([]string, 0, len(list))
	for _, item := range list {
		encoded, err := json.Marshal(normalize(item))
		if err != nil { // cannot be: it was decoded from JSON
			continue
		}
		texts = append(texts, string(encoded))
	}
	if len(texts) == 0 {
		return nil
	}
	slices.Sort(texts)
	return texts
}
