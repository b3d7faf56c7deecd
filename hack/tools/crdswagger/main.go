// Command crdswagger turns CRDs into the OpenAPI v2 document that applyconfiguration-gen reads, so that
// apply configurations and the fake clientset merge lists and maps as the API server does.
//
// Place in the flow: hack/update-codegen.sh runs it after controller-gen. Arguments: the folder of the
// CRDs, then one GROUP/VERSION=GO-PACKAGE for each version that has a client.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kube-openapi/pkg/util"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crdswagger:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want a folder and at least one GROUP/VERSION=GO-PACKAGE, got %q", args)
	}
	packages := map[string]string{}
	for _, arg := range args[1:] {
		groupVersion, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("argument %q: want GROUP/VERSION=GO-PACKAGE", arg)
		}
		packages[groupVersion] = path
	}
	names, err := filepath.Glob(filepath.Join(args[0], "*.yaml"))
	if err != nil {
		return err
	}
	definitions := map[string]any{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
		for _, version := range crd.Spec.Versions {
			path, ok := packages[crd.Spec.Group+"/"+version.Name]
			if !ok {
				continue
			}
			root := convert(version.Schema.OpenAPIV3Schema)
			root["x-kubernetes-group-version-kind"] = []any{map[string]any{
				"group": crd.Spec.Group, "version": version.Name, "kind": crd.Spec.Names.Kind,
			}}
			definitions[util.ToRESTFriendlyName(path+"."+crd.Spec.Names.Kind)] = root
		}
	}
	if len(definitions) < len(packages) {
		return fmt.Errorf("%d packages but only %d kinds in %s: %v", len(packages), len(definitions), args[0], slices.Sorted(maps.Keys(definitions)))
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "berth", "version": "v1"}, "paths": map[string]any{}, "definitions": definitions,
	})
}

// convert keeps what merging needs: types, and how lists and maps merge.
func convert(s *apiextensionsv1.JSONSchemaProps) map[string]any {
	out := map[string]any{}
	if s.XIntOrString {
		return out
	}
	if s.Type != "" {
		out["type"] = s.Type
	}
	if len(s.Properties) > 0 {
		properties := map[string]any{}
		for name, property := range s.Properties {
			properties[name] = convert(&property)
		}
		out["properties"] = properties
	}
	if s.Items != nil && s.Items.Schema != nil {
		out["items"] = convert(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out["additionalProperties"] = convert(s.AdditionalProperties.Schema)
	}
	if s.XListType != nil {
		out["x-kubernetes-list-type"] = *s.XListType
	}
	if len(s.XListMapKeys) > 0 {
		out["x-kubernetes-list-map-keys"] = s.XListMapKeys
	}
	if s.XMapType != nil {
		out["x-kubernetes-map-type"] = *s.XMapType
	}
	if s.XPreserveUnknownFields != nil {
		out["x-kubernetes-preserve-unknown-fields"] = *s.XPreserveUnknownFields
	}
	return out
}
