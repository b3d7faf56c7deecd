package crds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const minimalNodePool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
`

// write is one attempt to write an object: a base, a JSON merge patch on it in YAML, and what the user
// gets. An empty field means that the write is accepted.
type write struct {
	patch   string
	field   string
	message string
}

// runCreates creates base with each patch.
func runCreates(t *testing.T, kind, base string, cases map[string]write) {
	t.Helper()
	endpoint := endpointOf(t, kind)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := endpoint.create(t, merge(parse(t, base), parse(t, tc.patch)))
			if tc.field == "" {
				require.Empty(t, errs)
				return
			}
			requireRejected(t, errs, tc.field, tc.message)
		})
	}
}

// change is an update of an object that was created from a base and the patch old.
type change struct {
	old     string
	patch   string
	field   string
	message string
}

func runUpdates(t *testing.T, kind, base string, cases map[string]change) {
	t.Helper()
	endpoint := endpointOf(t, kind)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, errs := endpoint.create(t, merge(parse(t, base), parse(t, tc.old)))
			require.Empty(t, errs)
			errs = endpoint.update(t, stored, merge(stored.Object, parse(t, tc.patch)))
			if tc.field == "" {
				require.Empty(t, errs)
				return
			}
			requireRejected(t, errs, tc.field, tc.message)
		})
	}
}

func nested(t *testing.T, obj *unstructured.Unstructured, path string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(obj.Object, strings.Split(path, ".")...)
	require.NoError(t, err)
	require.True(t, found, "no field %s", path)
	return value
}

func TestNodePoolDefaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		patch string
		want  map[string]any
	}{
		"CORE-001 a minimal pool shows all defaults": {patch: `{}`, want: map[string]any{
			"spec.template.spec.expireAfter":      "720h",
			"spec.disruption.consolidateAfter":    "0s",
			"spec.disruption.consolidationPolicy": "WhenEmptyOrUnderutilized",
			"spec.disruption.budgets":             []any{map[string]any{"nodes": "10%"}},
		}},
		"CORE-002 an absent disruption block is filled in": {patch: `{spec: {disruption: null}}`, want: map[string]any{
			"spec.disruption": map[string]any{
				"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": []any{map[string]any{"nodes": "10%"}},
			},
		}},
		"CORE-003 expireAfter Never stays": {patch: `{spec: {template: {spec: {expireAfter: Never}}}}`, want: map[string]any{
			"spec.template.spec.expireAfter": "Never",
		}},
		"CORE-004 durations stay as written": {patch: `{spec: {template: {spec: {expireAfter: 24h, terminationGracePeriod: 48h}}, disruption: {consolidateAfter: 90s}}}`, want: map[string]any{
			"spec.template.spec.expireAfter":            "24h",
			"spec.template.spec.terminationGracePeriod": "48h",
			"spec.disruption.consolidateAfter":          "90s",
		}},
		"CORE-002 a disruption block without consolidateAfter gets it": {patch: `{spec: {disruption: {consolidationPolicy: WhenEmpty}}}`, want: map[string]any{
			"spec.disruption.consolidateAfter": "0s",
		}},
		"an empty list of budgets is not defaulted": {patch: `{spec: {disruption: {budgets: []}}}`, want: map[string]any{
			"spec.disruption.budgets": []any{},
		}},
		"a budget without nodes gets 10%": {patch: `{spec: {disruption: {budgets: [{reasons: [Empty]}]}}}`, want: map[string]any{
			"spec.disruption.budgets": []any{map[string]any{"nodes": "10%", "reasons": []any{"Empty"}}},
		}},
		"other metadata of the template is pruned": {patch: `{spec: {template: {metadata: {name: x, labels: {a: b}}}}}`, want: map[string]any{
			"spec.template.metadata": map[string]any{"labels": map[string]any{"a": "b"}},
		}},
	}
	endpoint := endpointOf(t, "NodePool v1")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj, _ := endpoint.create(t, merge(parse(t, minimalNodePool), parse(t, tc.patch)))
			for path, want := range tc.want {
				require.Equal(t, want, nested(t, obj, path), path)
			}
		})
	}
	t.Run("CORE-001 status counts no nodes", func(t *testing.T) {
		t.Parallel()
		obj, _ := endpoint.decode(t, merge(parse(t, minimalNodePool), parse(t, `{status: {}}`)))
		require.Equal(t, int64(0), nested(t, obj, "status.nodes"))
	})
}

func TestNodePoolDisruption(t *testing.T) {
	t.Parallel()
	const budgets = "spec.disruption.budgets"
	budget := func(flow string) string { return "{spec: {disruption: {budgets: [" + flow + "]}}}" }
	runCreates(t, "NodePool v1", minimalNodePool, map[string]write{
		// Differs: the reference refuses the older name; it is accepted here and acts as WhenEmptyOrUnderutilized.
		"CORE-006 differs: policy WhenUnderutilized is accepted": {patch: `{spec: {disruption: {consolidationPolicy: WhenUnderutilized}}}`},
		"CORE-006 an unknown policy is refused":                  {patch: `{spec: {disruption: {consolidationPolicy: Always}}}`, field: "spec.disruption.consolidationPolicy", message: `supported values: "WhenEmpty"`},
		"CORE-007 policy Balanced is accepted":                   {patch: `{spec: {disruption: {consolidationPolicy: Balanced}}}`},
		"CORE-007 policy WhenEmpty with consolidateAfter Never":  {patch: `{spec: {disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}}}`},
		"consolidateAfter takes no days":                         {patch: `{spec: {disruption: {consolidateAfter: 1d}}}`, field: "spec.disruption.consolidateAfter", message: "should match"},

		"CORE-008 a schedule without duration is refused": {patch: budget(`{nodes: "1", schedule: "@daily"}`), field: budgets, message: "'schedule' must be set with 'duration'"},
		"CORE-008 a duration without schedule is refused": {patch: budget(`{nodes: "1", duration: 1h}`), field: budgets, message: "'schedule' must be set with 'duration'"},
		"CORE-008 both together are accepted":             {patch: budget(`{nodes: "0", schedule: "0 9 * * mon-fri", duration: 8h}`)},
		"CORE-009 a duration in seconds is refused":       {patch: budget(`{nodes: "1", schedule: "@daily", duration: 30s}`), field: budgets + "[0].duration", message: "should match"},
		"CORE-009 a re-rendered duration is accepted":     {patch: budget(`{nodes: "1", schedule: "@daily", duration: 1h30m0s}`)},
		"a duration of a million years is refused":        {patch: budget(`{nodes: "1", schedule: "@daily", duration: 8760000000h}`), field: budgets + "[0].duration", message: "must be shorter than 292 years"},
		"CORE-010 nodes 101% is refused":                  {patch: budget(`{nodes: "101%"}`), field: budgets + "[0].nodes", message: "should match"},
		"CORE-010 nodes -1 is refused":                    {patch: budget(`{nodes: "-1"}`), field: budgets + "[0].nodes", message: "should match"},
		"CORE-010 nodes 1000% is refused":                 {patch: budget(`{nodes: "1000%"}`), field: budgets + "[0].nodes", message: "should match"},
		"CORE-010 nodes as a number is refused":           {patch: budget(`{nodes: 5}`), field: budgets + "[0].nodes", message: "must be of type string"},
		"CORE-010 nodes 100% is accepted":                 {patch: budget(`{nodes: "100%"}`)},
		"CORE-010 nodes 0 is accepted":                    {patch: budget(`{nodes: "0"}`)},
		"CORE-011 reason Expired is refused":              {patch: budget(`{nodes: "1", reasons: [Expired]}`), field: budgets + "[0].reasons[0]", message: `supported values: "Underutilized", "Empty", "Drifted"`},
		"CORE-011 a reason twice is refused":              {patch: budget(`{nodes: "1", reasons: [Empty, Empty]}`), field: budgets + "[0].reasons[1]", message: "Duplicate value"},
		"CORE-011 the three reasons are accepted":         {patch: budget(`{nodes: "1", reasons: [Underutilized, Empty, Drifted]}`)},
		"51 reasons are refused":                          {patch: budget(`{nodes: "1", reasons: ` + list(51, "R%d") + `}`), field: budgets + "[0].reasons", message: "must have at most 50 items"},
		"a duration as a novel is refused":                {patch: budget(`{nodes: "1", schedule: "@daily", duration: ` + strings.Repeat("0", 32) + `1h}`), field: budgets + "[0].duration", message: "may not be more than 32"},
		"CORE-012 a schedule of four fields is refused":   {patch: budget(`{nodes: "1", schedule: "* * * *", duration: 1h}`), field: budgets + "[0].schedule", message: "should match"},
		"CORE-012 an unknown nickname is refused":         {patch: budget(`{nodes: "1", schedule: "@sometimes", duration: 1h}`), field: budgets + "[0].schedule", message: "should match"},
		"CORE-013 51 budgets are refused":                 {patch: budget(strings.Trim(list(51, `{nodes: "%d"}`), "[]")), field: budgets, message: "must have at most 50 items"},
		"CORE-013 50 budgets are accepted":                {patch: budget(strings.Trim(list(50, `{nodes: "%d"}`), "[]"))},
	})
}

func TestNodePoolModes(t *testing.T) {
	t.Parallel()
	runCreates(t, "NodePool v1", minimalNodePool, map[string]write{
		"CORE-014 weight 0 is refused":                      {patch: `{spec: {weight: 0}}`, field: "spec.weight", message: "greater than or equal to 1"},
		"CORE-014 weight 101 is refused":                    {patch: `{spec: {weight: 101}}`, field: "spec.weight", message: "less than or equal to 100"},
		"CORE-014 weight 100 is accepted":                   {patch: `{spec: {weight: 100}}`},
		"CORE-016 a static pool with weight is refused":     {patch: `{spec: {replicas: 3, weight: 10}}`, field: "spec.weight", message: "'weight' is not supported on static NodePools"},
		"CORE-017 a static pool with a cpu limit":           {patch: `{spec: {replicas: 3, limits: {cpu: 10}}}`, field: "spec.limits", message: "only 'limits.nodes' is supported on static NodePools"},
		"CORE-017 a static pool with cpu and nodes limits":  {patch: `{spec: {replicas: 3, limits: {cpu: 10, nodes: 5}}}`, field: "spec.limits", message: "only 'limits.nodes' is supported on static NodePools"},
		"CORE-017 a static pool with a nodes limit":         {patch: `{spec: {replicas: 3, limits: {nodes: 5}}}`},
		"CORE-017 a static pool with empty limits":          {patch: `{spec: {replicas: 3, limits: {}}}`},
		"negative replicas are refused":                     {patch: `{spec: {replicas: -1}}`, field: "spec.replicas", message: "greater than or equal to 0"},
		"a static pool may have a policy that does nothing": {patch: `{spec: {replicas: 0, disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}}}`},
		"limits as numbers and strings are accepted":        {patch: `{spec: {limits: {cpu: 1000, memory: 1000Gi, nodes: "10", nvidia.com/gpu: 1e3}}}`},
		"a limit that is no quantity is refused":            {patch: `{spec: {limits: {cpu: lots}}}`, field: "spec.limits.cpu", message: "should match"},
		"a limit that no client can parse is refused":       {patch: `{spec: {limits: {cpu: "1e1.5"}}}`, field: "spec.limits.cpu", message: "should match"},
		"a limit that is a boolean is refused":              {patch: `{spec: {limits: {cpu: true}}}`, field: "spec.limits.cpu", message: "must be of type"},
	})
	runUpdates(t, "NodePool v1", minimalNodePool, map[string]change{
		"CORE-015 replicas cannot be added": {old: `{}`, patch: `{spec: {replicas: 3}}`, field: "spec.replicas",
			message: "cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes"},
		"CORE-015 replicas cannot be removed": {old: `{spec: {replicas: 3}}`, patch: `{spec: {replicas: null}}`, field: "spec.replicas",
			message: "cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes"},
		"CORE-018 a static pool can be scaled": {old: `{spec: {replicas: 3}}`, patch: `{spec: {replicas: 5}}`},
		"CORE-019 the class's kind cannot change": {old: `{}`, patch: `{spec: {template: {spec: {nodeClassRef: {kind: Other}}}}}`,
			field: "spec.template.spec.nodeClassRef.kind", message: "nodeClassRef.kind is immutable"},
		"CORE-019 the class's group cannot change": {old: `{}`, patch: `{spec: {template: {spec: {nodeClassRef: {group: example.com}}}}}`,
			field: "spec.template.spec.nodeClassRef.group", message: "nodeClassRef.group is immutable"},
		"CORE-019 the class's name can change": {old: `{}`, patch: `{spec: {template: {spec: {nodeClassRef: {name: other}}}}}`},
		"everything else can change": {old: `{spec: {weight: 1, limits: {cpu: 1}}}`,
			patch: `{spec: {weight: 2, limits: {cpu: 2}, template: {metadata: {labels: {a: b}}, spec: {expireAfter: Never, taints: [{key: a, effect: NoSchedule}]}}}}`},
	})
}

func TestNodePoolTemplate(t *testing.T) {
	t.Parallel()
	const spec = "spec.template.spec."
	in := func(flow string) string { return "{spec: {template: {spec: {" + flow + "}}}}" }
	labels := func(flow string) string { return "{spec: {template: {metadata: {labels: {" + flow + "}}}}}" }
	const at = "spec.template.metadata.labels"
	runCreates(t, "NodePool v1", minimalNodePool, map[string]write{
		"a template without spec is refused": {patch: `{spec: {template: {spec: null}}}`, field: "spec.template.spec", message: "Required value"},
		"a pool without template is refused": {patch: `{spec: {template: null}}`, field: "spec.template", message: "Required value"},
		"resources are unknown here":         {patch: in(`resources: {requests: {cpu: 1}}`), field: spec + "resources", message: "unknown field"},
		"a kubelet block is unknown here":    {patch: in(`kubelet: {maxPods: 10}`), field: spec + "kubelet", message: "unknown field"},

		"CORE-022 label kubernetes.io/hostname is refused":       {patch: labels(`kubernetes.io/hostname: a`), field: at, message: `label "kubernetes.io/hostname" is restricted`},
		"CORE-022 label karpenter.sh/nodepool is refused":        {patch: labels(`karpenter.sh/nodepool: a`), field: at, message: `label "karpenter.sh/nodepool" is restricted`},
		"CORE-022 label karpenter.sh/foo is refused":             {patch: labels(`karpenter.sh/foo: a`), field: at, message: `label domain "karpenter.sh" is restricted`},
		"CORE-022 a domain that ends so is refused":              {patch: labels(`foo-karpenter.sh/x: a`), field: at, message: `label domain "karpenter.sh" is restricted`},
		"CORE-022 a key without domain that ends so is refused":  {patch: labels(`karpenter.sh: a`), field: at, message: `label domain "karpenter.sh" is restricted`},
		"CORE-022 label karpenter.sh/capacity-type is accepted":  {patch: labels(`karpenter.sh/capacity-type: spot`)},
		"CORE-023 label node.kubernetes.io/custom is accepted":   {patch: labels(`node.kubernetes.io/custom: a, kops.k8s.io/x: b, team: ""`)},
		"AP-50 label karpenter.k8s.aws/instance-pods is refused": {patch: labels(`karpenter.k8s.aws/instance-pods: "1"`), field: at, message: `label domain "karpenter.k8s.aws" is restricted`},
		"label karpenter.k8s.aws/instance-family is accepted":    {patch: labels(`karpenter.k8s.aws/instance-family: m5`)},
		"a label value of 64 characters is refused":              {patch: labels(`a: ` + strings.Repeat("x", 64)), field: at + ".a", message: "63"},
		"a label value with a space is refused":                  {patch: labels(`a: "b c"`), field: at + ".a", message: "should match"},
		"101 labels are refused":                                 {patch: labels(strings.Trim(list(101, "l%d: x"), "[]")), field: at, message: "must have at most 100"},
	})
}
