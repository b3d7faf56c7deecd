package check_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/cmd/berth/check"
)

func run(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := check.NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetArgs(append([]string{"-f", "-"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

const class = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
status: {subnets: [{id: subnet-1, zone: us-east-1a, zoneID: use1-az1}]}
---
`

// pool has more in its spec, and these requirements.
func pool(spec, requirements string) string {
	return class + `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec:
  ` + spec + `
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [` + requirements + `]
`
}

func TestFindings(t *testing.T) {
	t.Parallel()
	const onDemand = `{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}`
	tests := map[string]struct {
		input string
		fails bool
		want  []string
	}{
		"nothing to say":              {pool("weight: 10", onDemand), false, []string{"2 objects checked, 0 errors, 0 warnings"}},
		"what the API server refuses": {pool("weight: 1000", onDemand), true, []string{"ERROR  -, document 2 (NodePool p): spec.weight: Invalid value: 1000"}},
		"a rule of the definition":    {strings.Replace(class, "role: node", "role: node\n  instanceProfile: x", 1), true, []string{"ERROR", "EC2NodeClass default"}},
		"an unknown field":            {pool("wieght: 10", onDemand), false, []string{"WARN   -, document 2 (NodePool p): spec.wieght: unknown field"}},
		"an unknown version":          {strings.Replace(pool("weight: 1", onDemand), "karpenter.sh/v1", "karpenter.sh/v1beta1", 1), true, []string{"karpenter.sh/v1beta1"}},
		"a label that is not allowed": {pool("weight: 1", `{key: karpenter.sh/other, operator: Exists}`), true, []string{"ERROR", "karpenter.sh/other"}},
		"requirements that nobody meets": {pool("weight: 1", `{key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}, {key: kubernetes.io/arch, operator: In, values: [arm64]}`), true,
			[]string{"no instance type of us-east-1 meets all of them; without the one on karpenter.k8s.aws/instance-family there would be some"}},
		"minValues out of reach": {pool("weight: 1", onDemand+`, {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5, m6i], minValues: 2}, {key: karpenter.k8s.aws/instance-size, operator: In, values: [metal-48xl, metal]}, {key: karpenter.k8s.aws/instance-generation, operator: In, values: ["5"]}`), true,
			[]string{"has minValues 2, and the types that meet all requirements have 1 values"}},
		"a zone without a subnet":       {pool("weight: 1", onDemand+`, {key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a, us-east-1b]}`), false, []string{"WARN   NodePool p: spec.template.spec.requirements: zone us-east-1b has no matching subnet"}},
		"few types for spot":            {pool("weight: 1", `{key: karpenter.k8s.aws/instance-family, operator: In, values: [t3]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}`), false, []string{"WARN", "15 or more"}},
		"a budget that blocks for ever": {pool(`disruption: {budgets: [{nodes: "0"}]}`, onDemand), false, []string{"at no hour of the week may a node go for reason Empty"}},
		"the older name of a policy":    {pool("disruption: {consolidationPolicy: WhenUnderutilized, consolidateAfter: 30s}", onDemand), false, []string{"WARN", "older name"}},
		"a class that is not there":     {strings.SplitN(pool("weight: 1", onDemand), "---\n", 2)[1], false, []string{`EC2NodeClass "default" is not in the files`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, tc.input)
			said := out
			if err != nil {
				said += err.Error()
			}
			require.Equal(t, tc.fails, err != nil, said)
			for _, want := range tc.want {
				require.Contains(t, said, want)
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	_, err := run(t, "", "--region", "moon-1")
	require.ErrorContains(t, err, "--region")
	_, err = run(t, "", "-f", "other")
	require.ErrorContains(t, err, "--filename (-f): is given 2 times")
}
