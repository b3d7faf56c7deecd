package crds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const minimalNodeClaim = `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: by-hand
spec:
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  requirements: []
`

const minimalNodeOverlay = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata:
  name: discount
spec:
  requirements: []
`

const (
	numericMessage   = "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
	inMessage        = "requirements with operator 'In' must have a value defined"
	minValuesMessage = "requirements with 'minValues' must have at least that many values specified in the 'values' field"
)

// The same items are refused and accepted in NodePools, NodeClaims and NodeOverlays, but for three rules.
func TestRequirements(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		base string
		path string // of the list
	}{
		"NodePool v1":          {minimalNodePool, "spec.template.spec.requirements"},
		"NodeClaim v1":         {minimalNodeClaim, "spec.requirements"},
		"NodeOverlay v1alpha1": {minimalNodeOverlay, "spec.requirements"},
	}
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			with := func(flow string) string {
				if kind == "NodePool v1" {
					return "{spec: {template: {spec: {requirements: [" + flow + "]}}}}"
				}
				return "{spec: {requirements: [" + flow + "]}}"
			}
			cases := map[string]write{
				"CORE-021 key karpenter.sh/foo is refused":                    {patch: with(`{key: karpenter.sh/foo, operator: Exists}`), field: k.path + "[0].key", message: `label domain "karpenter.sh" is restricted`},
				"CORE-021 key sub.karpenter.sh/foo is refused":                {patch: with(`{key: sub.karpenter.sh/foo, operator: Exists}`), field: k.path + "[0].key", message: `label domain "karpenter.sh" is restricted`},
				"CORE-021 key karpenter.sh/capacity-type is accepted":         {patch: with(`{key: karpenter.sh/capacity-type, operator: In, values: [spot]}`)},
				"CORE-021 key kubernetes.io/hostname is refused":              {patch: with(`{key: kubernetes.io/hostname, operator: Exists}`), field: k.path + "[0].key", message: `label "kubernetes.io/hostname" is restricted`},
				"AP-50 key karpenter.k8s.aws/instance-pods is refused":        {patch: with(`{key: karpenter.k8s.aws/instance-pods, operator: Gt, values: ["1"]}`), field: k.path + "[0].key", message: `label domain "karpenter.k8s.aws" is restricted`},
				"AP-50 key karpenter.k8s.aws/instance-category is accepted":   {patch: with(`{key: karpenter.k8s.aws/instance-category, operator: In, values: [m]}`)},
				"a key that is no label key is refused":                       {patch: with(`{key: "a b", operator: Exists}`), field: k.path + "[0].key", message: "should match"},
				"a key of 317 characters is refused":                          {patch: with(`{key: ` + strings.Repeat("a", 317) + `, operator: Exists}`), field: k.path + "[0].key", message: "may not be more than 316"},
				"an unknown operator is refused":                              {patch: with(`{key: a, operator: Near}`), field: k.path + "[0].operator", message: "supported values"},
				"an item without key is refused":                              {patch: with(`{operator: Exists}`), field: k.path + "[0].key", message: "Required value"},
				"an item without operator is refused":                         {patch: with(`{key: a}`), field: k.path + "[0].operator", message: "Required value"},
				"CORE-024 Gt -1 is refused":                                   {patch: with(`{key: a, operator: Gt, values: ["-1"]}`), field: k.path, message: numericMessage},
				"CORE-024 Gt a is refused":                                    {patch: with(`{key: a, operator: Gt, values: ["a"]}`), field: k.path, message: numericMessage},
				"CORE-024 Lt of two values is refused":                        {patch: with(`{key: a, operator: Lt, values: ["1", "2"]}`), field: k.path, message: numericMessage},
				"CORE-024 Gte without values is refused":                      {patch: with(`{key: a, operator: Gte}`), field: k.path, message: numericMessage},
				"CORE-024 Lte 1.5 is refused":                                 {patch: with(`{key: a, operator: Lte, values: ["1.5"]}`), field: k.path, message: numericMessage},
				"CORE-024 Gt beyond 64 bits is refused":                       {patch: with(`{key: a, operator: Gt, values: ["9223372036854775808"]}`), field: k.path, message: numericMessage},
				"CORE-024 the second item is checked too":                     {patch: with(`{key: a, operator: Exists}, {key: a, operator: Gt, values: ["-1"]}`), field: k.path, message: numericMessage},
				"CORE-025 Gte 0 and Lte 0 are accepted":                       {patch: with(`{key: a, operator: Gte, values: ["0"]}, {key: a, operator: Lte, values: ["0"]}`)},
				"CORE-025 Gt and Lt are accepted":                             {patch: with(`{key: a, operator: Gt, values: ["2"]}, {key: a, operator: Lt, values: ["9223372036854775807"]}`)},
				"In without values is refused":                                {patch: with(`{key: a, operator: In}`), field: k.path, message: inMessage},
				"In with an empty list is refused":                            {patch: with(`{key: a, operator: In, values: []}`), field: k.path, message: inMessage},
				"60 values without minValues are accepted":                    {patch: with(`{key: a, operator: In, values: ` + list(60, `"v%d"`) + `}`)},
				"Exists, DoesNotExist and NotIn are accepted":                 {patch: with(`{key: a, operator: Exists}, {key: b, operator: DoesNotExist}, {key: c, operator: NotIn, values: [x]}`)},
				"CORE-029 values with invalid characters are left to runtime": {patch: with(`{key: a, operator: In, values: ["???", "a b"]}`)},
				"CORE-030 an unknown capacity type is left to runtime":        {patch: with(`{key: karpenter.sh/capacity-type, operator: In, values: [foo]}`)},
				"CORE-028 101 requirements are refused":                       {patch: with(strings.Trim(list(101, `{key: k%d, operator: Exists}`), "[]")), field: k.path, message: "must have at most 100 items"},
				"CORE-028 100 requirements are accepted":                      {patch: with(strings.Trim(list(100, `{key: k%d, operator: Exists}`), "[]"))},
			}
			if kind == "NodePool v1" {
				cases["CORE-020 key karpenter.sh/nodepool is refused in a NodePool"] = write{patch: with(`{key: karpenter.sh/nodepool, operator: Exists}`), field: k.path, message: `label "karpenter.sh/nodepool" is restricted`}
			} else {
				cases["CORE-020 key karpenter.sh/nodepool is accepted"] = write{patch: with(`{key: karpenter.sh/nodepool, operator: Exists}`)}
			}
			if kind == "NodeOverlay v1alpha1" {
				cases["NotIn without values is refused"] = write{patch: with(`{key: a, operator: NotIn}`), field: k.path, message: "requirements with operator 'NotIn' must have a value defined"}
				cases["minValues is unknown here"] = write{patch: with(`{key: a, operator: Exists, minValues: 2}`), field: k.path + "[0].minValues", message: "unknown field"}
				cases["labels of a launch are refused"] = write{patch: with(`{key: karpenter.k8s.aws/capacity-reservation-id, operator: Exists}`), field: k.path + "[0].key", message: `label domain "karpenter.k8s.aws" is restricted`}
				cases["tenancy is refused"] = write{patch: with(`{key: karpenter.k8s.aws/instance-tenancy, operator: Exists}`), field: k.path + "[0].key", message: `label domain "karpenter.k8s.aws" is restricted`}
			} else {
				cases["NotIn without values is accepted"] = write{patch: with(`{key: a, operator: NotIn}`)}
				cases["labels of a launch are accepted"] = write{patch: with(`{key: karpenter.k8s.aws/capacity-reservation-id, operator: Exists}`)}
				cases["CORE-026 minValues 3 of 2 values is refused"] = write{patch: with(`{key: a, operator: In, values: [v, w], minValues: 3}`), field: k.path, message: minValuesMessage}
				cases["CORE-026 minValues 2 of 2 values is accepted"] = write{patch: with(`{key: a, operator: In, values: [v, w], minValues: 2}`)}
				cases["CORE-026 minValues with Exists is accepted"] = write{patch: with(`{key: a, operator: Exists, minValues: 5}`)}
				cases["CORE-027 minValues 0 is refused"] = write{patch: with(`{key: a, operator: Exists, minValues: 0}`), field: k.path + "[0].minValues", message: "greater than or equal to 1"}
				cases["CORE-027 minValues 51 is refused"] = write{patch: with(`{key: a, operator: Exists, minValues: 51}`), field: k.path + "[0].minValues", message: "less than or equal to 50"}
			}
			runCreates(t, kind, k.base, cases)
		})
	}
}

func TestNodeClaim(t *testing.T) {
	t.Parallel()
	runCreates(t, "NodeClaim v1", minimalNodeClaim, map[string]write{
		"a claim by hand is accepted":   {patch: `{spec: {resources: {requests: {cpu: 2, memory: 4Gi, pods: "10"}}, taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: b, effect: NoExecute}], expireAfter: Never, terminationGracePeriod: 1h}}`},
		"a request that is no quantity": {patch: `{spec: {resources: {requests: {cpu: "1e.5"}}}}`, field: "spec.resources.requests.cpu", message: "should match"},
	})
	obj, errs := endpointOf(t, "NodeClaim v1").create(t, parse(t, minimalNodeClaim))
	require.Empty(t, errs)
	require.Equal(t, "720h", nested(t, obj, "spec.expireAfter"))
	runUpdates(t, "NodeClaim v1", minimalNodeClaim, map[string]change{
		"CORE-037 expireAfter cannot change":     {old: `{}`, patch: `{spec: {expireAfter: 1h}}`, field: "spec", message: "spec is immutable"},
		"CORE-037 requirements cannot change":    {old: `{}`, patch: `{spec: {requirements: [{key: a, operator: Exists}]}}`, field: "spec", message: "spec is immutable"},
		"CORE-037 taints cannot be added":        {old: `{}`, patch: `{spec: {taints: [{key: a, effect: NoSchedule}]}}`, field: "spec", message: "spec is immutable"},
		"CORE-037 the class cannot change":       {old: `{}`, patch: `{spec: {nodeClassRef: {name: other}}}`, field: "spec", message: "spec is immutable"},
		"CORE-037 requests cannot change":        {old: `{spec: {resources: {requests: {cpu: 1}}}}`, patch: `{spec: {resources: {requests: {cpu: 2}}}}`, field: "spec", message: "spec is immutable"},
		"CORE-037 labels and finalizers can":     {old: `{}`, patch: `{metadata: {labels: {a: b}, finalizers: [karpenter.sh/termination]}}`},
		"CORE-037 an unchanged spec is accepted": {old: `{spec: {expireAfter: Never}}`, patch: `{}`},
	})
}

func TestNodeOverlay(t *testing.T) {
	t.Parallel()
	price := func(text string) string { return `{spec: {price: "` + text + `"}}` }
	adjust := func(text string) string { return `{spec: {priceAdjustment: "` + text + `"}}` }
	capacity := func(name string) string { return `{spec: {capacity: {` + name + `: 1}}}` }
	cases := map[string]write{
		"requirements are required":                 {patch: `{spec: {requirements: null}}`, field: "spec.requirements", message: "Required value"},
		"CORE-048 both prices are refused":          {patch: `{spec: {price: "1", priceAdjustment: "+1"}}`, field: "spec.priceAdjustment", message: "cannot set both 'price' and 'priceAdjustment'"},
		"CORE-049 capacity vendor/dev":              {patch: capacity("vendor/dev")},
		"weight 0 is refused":                       {patch: `{spec: {weight: 0}}`, field: "spec.weight", message: "greater than or equal to 1"},
		"weight 10001 is refused":                   {patch: `{spec: {weight: 10001}}`, field: "spec.weight", message: "less than or equal to 10000"},
		"weight 10000 is accepted":                  {patch: `{spec: {weight: 10000}}`},
		"a capacity that is no quantity is refused": {patch: `{spec: {capacity: {vendor/dev: many}}}`, field: "spec.capacity.vendor/dev", message: "should match"},
	}
	for _, text := range []string{"+4", ".5", "42%", "-1", "1e3", " 1", "1."} {
		cases["CORE-046 price "+text+" is refused"] = write{patch: price(text), field: "spec.price", message: "should match"}
	}
	for _, text := range []string{"4", "0.5", "0", "12.345"} {
		cases["CORE-046 price "+text+" is accepted"] = write{patch: price(text)}
	}
	for _, text := range []string{"10%", "-101%", "5", "-200%", "+", "+1.%", "%"} {
		cases["CORE-047 priceAdjustment "+text+" is refused"] = write{patch: adjust(text), field: "spec.priceAdjustment", message: "should match"}
	}
	for _, text := range []string{"+298%", "-100%", "-1%", "+34.43", "-34.43", "-99%", "+0.5%"} {
		cases["CORE-047 priceAdjustment "+text+" is accepted"] = write{patch: adjust(text)}
	}
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", "pods"} {
		cases["CORE-049 capacity "+name+" is refused"] = write{patch: capacity(name), field: "spec.capacity", message: "invalid resource restricted"}
	}
	runCreates(t, "NodeOverlay v1alpha1", minimalNodeOverlay, cases)
}

const minimalCapacityBuffer = `
metadata: {name: spare, namespace: default}
kind: CapacityBuffer
spec: {}
`

// Both served versions have one schema.
func TestCapacityBuffer(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			base := "apiVersion: autoscaling.x-k8s.io/" + version + minimalCapacityBuffer
			runCreates(t, "CapacityBuffer "+version, base, map[string]write{
				"CORE-050 both refs are refused": {patch: `{spec: {replicas: 1, podTemplateRef: {name: a}, scalableRef: {kind: Deployment, name: b}}}`,
					field: "spec.scalableRef", message: "You must define either PodTemplateRef or ScalableRef, but not both"},
				"CORE-050 a workload alone is accepted":                {patch: `{spec: {percentage: 20, scalableRef: {apiGroup: apps, kind: Deployment, name: b}}}`},
				"CORE-050 neither is left to runtime":                  {patch: `{}`},
				"CORE-051 a template without replicas and limits":      {patch: `{spec: {podTemplateRef: {name: a}}}`, field: "spec.replicas", message: "If podTemplateRef is set, replicas or limits must also be set"},
				"CORE-051 a template with replicas is accepted":        {patch: `{spec: {replicas: 0, podTemplateRef: {name: a}}}`},
				"CORE-051 a template with limits is accepted":          {patch: `{spec: {limits: {cpu: 4}, podTemplateRef: {name: a}}}`},
				"a template without name is refused":                   {patch: `{spec: {replicas: 1, podTemplateRef: {name: ""}}}`, field: "spec.podTemplateRef.name", message: "should be at least 1 chars long"},
				"a workload without kind is refused":                   {patch: `{spec: {scalableRef: {name: b}}}`, field: "spec.scalableRef.kind", message: "Required value"},
				"negative replicas are refused":                        {patch: `{spec: {replicas: -1}}`, field: "spec.replicas", message: "greater than or equal to 0"},
				"negative percentage is refused":                       {patch: `{spec: {percentage: -1}}`, field: "spec.percentage", message: "greater than or equal to 0"},
				"another strategy is accepted, for others to act upon": {patch: `{spec: {provisioningStrategy: example.com/other}}`},
			})
			endpoint := endpointOf(t, "CapacityBuffer "+version)
			obj, errs := endpoint.create(t, parse(t, base))
			if len(errs) != 0 || nested(t, obj, "spec.provisioningStrategy") != "buffer.x-k8s.io/active-capacity" {
				t.Fatalf("default strategy missing: %v %v", obj, errs)
			}
		})
	}
}
