package crds_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/manifests/crds"
)

// strategy is what the API server runs on every write of a custom resource.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// endpoint is one served version of one kind: the API server's own defaulting, pruning and validation
// without the server.
type endpoint struct {
	schema   *structuralschema.Structural
	strategy strategy
	status   rest.RESTUpdateStrategy // of the status subresource
}

// buildEndpoints makes an endpoint for each kind and version, by "Kind version". Compiling the rules
// takes a while and endpoints are stateless, so all tests share them.
var buildEndpoints = sync.OnceValues(func() (map[string]*endpoint, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	endpoints := map[string]*endpoint{}
	for _, crd := range all {
		internal, err := internalCRD(crd)
		if err != nil {
			return nil, err
		}
		for _, version := range internal.Spec.Versions {
			key := internal.Spec.Names.Kind + " " + version.Name
			if endpoints[key], err = newEndpoint(internal, version.Name); err != nil {
				return nil, fmt.Errorf("build endpoint %s: %w", key, err)
			}
		}
	}
	return endpoints, nil
})

func newEndpoint(crd *apiextensions.CustomResourceDefinition, version string) (*endpoint, error) {
	validation, err := apiextensions.GetSchemaForVersion(crd, version)
	if err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(validation.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validator, _, err := apivalidation.NewSchemaValidator(validation.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	status := validation.OpenAPIV3Schema.Properties["status"]
	statusValidator, _, err := apivalidation.NewSchemaValidator(&status)
	if err != nil {
		return nil, err
	}
	subresources, err := apiextensions.GetSubresourcesForVersion(crd, version)
	if err != nil {
		return nil, err
	}
	gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}
	strategy := customresource.NewStrategy(nil, crd.Spec.Scope == apiextensions.NamespaceScoped, gvk, validator, statusValidator,
		structural, subresources.Status, subresources.Scale, nil)
	return &endpoint{schema: structural, strategy: strategy, status: customresource.NewStatusStrategy(strategy)}, nil
}

// endpointOf returns the endpoint of "Kind version".
func endpointOf(t *testing.T, key string) *endpoint {
	t.Helper()
	endpoints, err := buildEndpoints()
	require.NoError(t, err)
	require.Contains(t, endpoints, key)
	return endpoints[key]
}

// decode parses YAML and does what the server does before validation: it drops nulls, sets defaults and
// prunes. The strings are the paths of the fields that were unknown and, like the server with strict
// field validation, are for the caller to refuse.
func (e *endpoint) decode(t *testing.T, obj map[string]any) (*unstructured.Unstructured, []string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(obj)}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, e.schema)
	defaulting.Default(u.Object, e.schema)
	unknown := pruning.PruneWithOptions(u.Object, e.schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	return u, unknown
}

// create returns the object as it is stored, or the errors that the user gets.
func (e *endpoint) create(t *testing.T, obj map[string]any) (*unstructured.Unstructured, field.ErrorList) {
	t.Helper()
	u, unknown := e.decode(t, obj)
	var errs field.ErrorList
	for _, path := range unknown {
		errs = append(errs, field.Invalid(field.NewPath(path), "", "unknown field"))
	}
	e.strategy.PrepareForCreate(t.Context(), u)
	return u, append(errs, e.strategy.Validate(t.Context(), u)...)
}

// update returns the errors that the user gets for a change of a stored object.
func (e *endpoint) update(t *testing.T, stored *unstructured.Unstructured, obj map[string]any) field.ErrorList {
	t.Helper()
	return e.updateWith(t, e.strategy, stored, obj)
}

// updateStatus is update through the status subresource.
func (e *endpoint) updateStatus(t *testing.T, stored *unstructured.Unstructured, obj map[string]any) field.ErrorList {
	t.Helper()
	return e.updateWith(t, e.status, stored, obj)
}

func (e *endpoint) updateWith(t *testing.T, s rest.RESTUpdateStrategy, stored *unstructured.Unstructured, obj map[string]any) field.ErrorList {
	t.Helper()
	old := stored.DeepCopy()
	old.SetResourceVersion("1")
	u, _ := e.decode(t, obj)
	u.SetResourceVersion("1")
	s.PrepareForUpdate(t.Context(), u, old)
	return s.ValidateUpdate(t.Context(), u, old)
}

func internalCRD(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	crd = crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil)
	return internal, err
}

// parse reads one YAML object.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	obj := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &obj), text)
	return normalize(obj).(map[string]any)
}

// normalize gives numbers the types that the API server's decoder gives them.
func normalize(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = normalize(v[key])
		}
	case []any:
		for i := range v {
			v[i] = normalize(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}

// merge applies a JSON merge patch: null removes, maps merge, everything else replaces.
func merge(base, patch map[string]any) map[string]any {
	merged := runtime.DeepCopyJSON(base)
	for key, value := range patch {
		child, isMap := value.(map[string]any)
		old, wasMap := merged[key].(map[string]any)
		switch {
		case value == nil:
			delete(merged, key)
		case isMap && wasMap:
			merged[key] = merge(old, child)
		case isMap:
			merged[key] = merge(map[string]any{}, child)
		default:
			merged[key] = value
		}
	}
	return merged
}

// requireRejected checks that one error is at the field and has the message.
func requireRejected(t *testing.T, errs field.ErrorList, path, message string) {
	t.Helper()
	require.NotEmpty(t, errs, "accepted, want an error at %s", path)
	for _, err := range errs {
		if err.Field == path && strings.Contains(err.Error(), message) {
			return
		}
	}
	require.Fail(t, "no error at the field with the message", "field %s, message %q, got: %v", path, message, errs.ToAggregate())
}

// list returns n items in YAML flow style, made by format with the index.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
