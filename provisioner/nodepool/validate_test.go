package nodepool_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/nodepool"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	demand := func(key string, op corev1.NodeSelectorOperator, minValues *int, values ...string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: key, Operator: op, Values: values, MinValues: minValues}}
		}
	}
	label := func(key, value string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Spec.Template.Labels = map[string]string{key: value} }
	}
	taints := func(regular, startup []corev1.Taint) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Taints, p.Spec.Template.Spec.StartupTaints = regular, startup
		}
	}
	const in, gt = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpGt
	a := corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		pool func(*karpv1.NodePool)
		want string // empty means valid
	}{
		"CORE-029 a value with invalid characters":               {pool: demand("team", in, nil, "a b"), want: `value "a b" of key "team"`},
		"CORE-030 no known capacity type":                        {pool: demand(karpv1.LabelCapacityType, in, nil, "foo"), want: `none of the values ["foo"]`},
		"CORE-030 one known capacity type is enough":             {pool: demand(karpv1.LabelCapacityType, in, nil, "foo", "spot")},
		"fewer known capacity types than minValues":              {pool: demand(karpv1.LabelCapacityType, in, new(2), "foo", "spot"), want: "minValues 2"},
		"CORE-031 one taint twice over both lists":               {pool: taints([]corev1.Taint{a}, []corev1.Taint{a}), want: "startupTaints[0]: taint a:NoSchedule is in spec.template.spec.taints[0] already"},
		"one key with two effects is fine":                       {pool: taints([]corev1.Taint{a, {Key: "a", Effect: corev1.TaintEffectNoExecute}}, nil)},
		"a taint key that is no name":                            {pool: taints([]corev1.Taint{{Key: "a b"}}, nil), want: `key "a b"`},
		"a taint with an unknown effect":                         {pool: taints([]corev1.Taint{{Key: "a", Effect: "No"}}, nil), want: `effect "No" is unknown`},
		"the pool's own label":                                   {pool: label(karpv1.LabelNodePool, "x"), want: "restricted"},
		"the hostname":                                           {pool: label(corev1.LabelHostname, "x"), want: "restricted"},
		"a subdomain of a restricted domain":                     {pool: label("x.karpenter.sh/a", "x"), want: "restricted"},
		"a domain that only ends like a restricted one is fine":  {pool: label("foo-karpenter.sh/a", "x")},
		"CORE-023 a label in a Kubernetes domain":                {pool: label("node.kubernetes.io/custom", "x")},
		"a well-known label in a restricted domain":              {pool: label(karpv1.LabelCapacityType, "spot")},
		"a bad label value":                                      {pool: label("team", "-"), want: `value "-"`},
		"a requirement on a restricted key":                      {pool: demand("karpenter.k8s.aws/foo", in, nil, "a"), want: "requirements[0]"},
		"a requirement on the pool's own label":                  {pool: demand(karpv1.LabelNodePool, in, nil, "a"), want: "restricted"},
		"In without values":                                      {pool: demand("team", in, nil), want: "needs a value"},
		"In with minValues above the number of values":           {pool: demand("team", in, new(2), "a"), want: "minValues 2"},
		"Gt with a word":                                         {pool: demand("team", gt, nil, "a"), want: "exactly one value"},
		"Gt with two values":                                     {pool: demand("team", gt, nil, "1", "2"), want: "exactly one value"},
		"Gt with a negative value":                               {pool: demand("team", gt, nil, "-1"), want: "exactly one value"},
		"Gte with a count":                                       {pool: demand("team", karpv1.OperatorGte, nil, "0")},
		"an unknown operator":                                    {pool: demand("team", "Near", nil, "0"), want: `operator "Near"`},
		"NotIn without values behaves as Exists and is no fault": {pool: demand("team", corev1.NodeSelectorOpNotIn, nil)},
		"an alias of a well-known key":                           {pool: demand("beta.kubernetes.io/arch", in, nil, "arm64")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &karpv1.NodePool{}
			tc.pool(pool)
			err := nodepool.Validate(pool)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	pool := &karpv1.NodePool{}
	pool.Spec.Template.Labels = map[string]string{"a b": "x", "team": "-"}
	err := nodepool.Validate(pool)
	require.ErrorContains(t, err, "labels[a b]")
	require.ErrorContains(t, err, "labels[team]")
}
