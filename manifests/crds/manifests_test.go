package crds_test

import (
	"bytes"
	"embed"
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	autoscalingv1alpha1 "github.com/berth-dev/berth/provisioner/api/autoscaling/v1alpha1"
	autoscalingv1beta1 "github.com/berth-dev/berth/provisioner/api/autoscaling/v1beta1"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	karpv1alpha1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
)

//go:embed testdata/*.yaml
var testdata embed.FS

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		karpv1.AddToScheme, karpv1alpha1.AddToScheme, ec2v1.AddToScheme, autoscalingv1beta1.AddToScheme, autoscalingv1alpha1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

// manifests returns the documents of testdata by "Kind version", as they were written.
func manifests(t *testing.T) map[string][]map[string]any {
	t.Helper()
	names, err := fs.Glob(testdata, "testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	byKind := map[string][]map[string]any{}
	for _, name := range names {
		data, err := testdata.ReadFile(name)
		require.NoError(t, err)
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			obj := parse(t, string(document))
			u := unstructured.Unstructured{Object: obj}
			key := u.GetKind() + " " + u.GroupVersionKind().Version
			byKind[key] = append(byKind[key], obj)
		}
	}
	return byKind
}

// What people have applied must be accepted, decode without unknown fields, and come back from the Go
// types unchanged: controllers write objects back and GitOps tools compare them.
func TestManifestsRoundTrip(t *testing.T) {
	t.Parallel()
	scheme := newScheme(t)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for kind, objs := range manifests(t) {
		endpoint := endpointOf(t, kind)
		for _, obj := range objs {
			name := (&unstructured.Unstructured{Object: obj}).GetName()
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				stored, errs := endpoint.create(t, obj)
				require.Empty(t, errs)
				if _, ok := obj["status"]; ok {
					require.Empty(t, endpoint.updateStatus(t, stored, obj))
				}

				written, err := yaml.Marshal(obj)
				require.NoError(t, err)
				_, _, err = decoder.Decode(written, nil, nil)
				require.NoError(t, err, "as written")

				full, unknown := endpoint.decode(t, obj)
				require.Empty(t, unknown)
				data, err := full.MarshalJSON()
				require.NoError(t, err)
				typed, _, err := decoder.Decode(data, nil, nil)
				require.NoError(t, err, "as stored")
				data, err = json.Marshal(typed)
				require.NoError(t, err)
				back := map[string]any{}
				require.NoError(t, json.Unmarshal(data, &back))
				if _, ok := obj["status"]; !ok {
					delete(back, "status") // zero counters
				}
				dropEmpty(back)
				dropEmpty(full.Object)
				require.Equal(t, full.Object, normalize(back))

				// and again through a copy, so that deepcopy keeps every field.
				copied, err := json.Marshal(typed.DeepCopyObject())
				require.NoError(t, err)
				require.JSONEq(t, string(data), string(copied))
			})
		}
	}
}

// dropEmpty removes empty maps, which Go's encoder leaves where a struct is not a pointer, and nulls.
func dropEmpty(obj map[string]any) {
	for key, value := range obj {
		if child, ok := value.(map[string]any); ok {
			dropEmpty(child)
			if len(child) == 0 {
				delete(obj, key)
			}
		}
		if list, ok := value.([]any); ok {
			for _, item := range list {
				if child, ok := item.(map[string]any); ok {
					dropEmpty(child)
				}
			}
		}
		if value == nil {
			delete(obj, key)
		}
	}
}

// A manifest for every field: a field that is new in the types must get one in testdata.
func TestManifestsHaveEveryField(t *testing.T) {
	t.Parallel()
	for kind, objs := range manifests(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			seen := map[string]bool{}
			for _, obj := range objs {
				collect("", obj, seen)
			}
			var missing []string
			for _, path := range slices.Sorted(maps.Keys(fields("", endpointOf(t, kind).schema))) {
				if !seen[path] {
					missing = append(missing, path)
				}
			}
			require.Empty(t, missing)
		})
	}
}

// fields lists the paths of a schema's properties; list items have the path of their list.
func fields(path string, s *structuralschema.Structural) map[string]bool {
	paths := map[string]bool{}
	for name, child := range s.Properties {
		paths[path+"."+name] = true
		maps.Copy(paths, fields(path+"."+name, &child))
	}
	if s.Items != nil {
		maps.Copy(paths, fields(path, s.Items))
	}
	return paths
}

func collect(path string, value any, seen map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			seen[path+"."+name] = true
			collect(path+"."+name, child, seen)
		}
	case []any:
		for _, child := range v {
			collect(path, child, seen)
		}
	}
}

func TestStrictDecodingNamesTheUnknownField(t *testing.T) {
	t.Parallel()
	decoder := serializer.NewCodecFactory(newScheme(t), serializer.EnableStrict).UniversalDeserializer()
	data, err := utilyaml.ToJSON([]byte(minimalNodePool + "  replica: 3\n"))
	require.NoError(t, err)
	_, _, err = decoder.Decode(data, nil, nil)
	require.ErrorContains(t, err, `unknown field "spec.replica"`)
}
