package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// explain says which field a decoder refused, with its value. Decoders of the API types do not tell the
// path, so the values are left out one by one until the rest can be decoded.
func explain(raw []byte, decode func([]byte) error, cause error) error {
	text := strings.TrimPrefix(cause.Error(), "error unmarshaling JSON: while decoding JSON: ")
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return cause
	}
	var content any
	if err := json.Unmarshal(asJSON, &content); err != nil {
		return cause
	}
	path, value, found := culprit(content, "", func() bool {
		rest, err := json.Marshal(content)
		return err == nil && decode(rest) == nil
	})
	if !found {
		return fmt.Errorf("%s", text)
	}
	shown, err := json.Marshal(value)
	if err != nil || len(shown) > 80 {
		shown = []byte("given")
	}
	return fmt.Errorf("%s: is %s: %s", path, shown, text)
}

// culprit finds the deepest value without which the whole can be decoded.
func culprit(at any, path string, decodes func() bool) (where string, value any, found bool) {
	without := func(key string, child any, set func(any)) (string, any, bool) {
		set(nil)
		good := decodes()
		set(child)
		if !good {
			return "", nil, false
		}
		if where, value, found := culprit(child, key, decodes); found {
			return where, value, true
		}
		return key, child, true
	}
	switch node := at.(type) {
	case map[string]any:
		for _, name := range sortedKeys(node) {
			key := strings.TrimPrefix(path+"."+name, ".")
			if where, value, found := without(key, node[name], func(v any) { node[name] = v }); found {
				return where, value, true
			}
		}
	case []any:
		for i := range slices.Clone(node) {
			if where, value, found := without(path+"["+strconv.Itoa(i)+"]", node[i], func(v any) { node[i] = v }); found {
				return where, value, true
			}
		}
	}
	return "", nil, false
}
