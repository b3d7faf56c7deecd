package check

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/manifests/crds"
)

// admission is the API server's own judgement of custom resources, without the server.
type admission map[schema.GroupVersionKind]endpoint

type endpoint struct {
	schema   *structuralschema.Structural
	strategy rest.RESTCreateStrategy
}

// newAdmission prepares every served version of the kinds that Berth defines.
func newAdmission() (admission, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := admission{}
	for _, crd := range all {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
			return nil, fmt.Errorf("read definition of %s: %w", crd.Name, err)
		}
		for _, v := range internal.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: internal.Spec.Group, Version: v.Name, Kind: internal.Spec.Names.Kind}
			if out[gvk], err = newEndpoint(internal, gvk); err != nil {
				return nil, fmt.Errorf("read definition of %s: %w", crd.Name, err)
			}
		}
	}
	return out, nil
}

func newEndpoint(crd *apiextensions.CustomResourceDefinition, gvk schema.GroupVersionKind) (endpoint, error) {
	validation, err := apiextensions.GetSchemaForVersion(crd, gvk.Version)
	if err != nil {
		return endpoint{}, err
	}
	structural, err := structuralschema.NewStructural(validation.OpenAPIV3Schema)
	if err != nil {
		return endpoint{}, err
	}
	validator, _, err := apivalidation.NewSchemaValidator(validation.OpenAPIV3Schema)
	if err != nil {
		return endpoint{}, err
	}
	strategy := customresource.NewStrategy(nil, crd.Spec.Scope == apiextensions.NamespaceScoped, gvk, validator, nil, structural, nil, nil, nil)
	return endpoint{structural, strategy}, nil
}

// faults are what the API server would refuse, and, apart, the fields that it would drop.
func (a admission) faults(ctx context.Context, gvk schema.GroupVersionKind, raw []byte) (refused, dropped []string) {
	e, known := a[gvk]
	if !known {
		return []string{fmt.Sprintf("apiVersion: there is no %s in %s", gvk.Kind, gvk.GroupVersion())}, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	asJSON, err := yaml.YAMLToJSON(raw)
	if err == nil {
		err = u.UnmarshalJSON(asJSON)
	}
	if err != nil {
		return []string{err.Error()}, nil
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, e.schema)
	defaulting.Default(u.Object, e.schema)
	dropped = pruning.PruneWithOptions(u.Object, e.schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	e.strategy.PrepareForCreate(ctx, u)
	for _, fault := range e.strategy.Validate(ctx, u) {
		refused = append(refused, strings.TrimSpace(fault.Error()))
	}
	return refused, dropped
}
