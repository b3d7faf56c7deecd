package poolhash_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/poolhash"
)

func makePool() *karpv1.NodePool {
	pool := &karpv1.NodePool{}
	spec := &pool.Spec.Template.Spec
	pool.Spec.Template.Labels = map[string]string{"team": "a"}
	spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "b", Effect: corev1.TaintEffectNoExecute}}
	spec.ExpireAfter = karpv1.DurationOf(24 * time.Hour)
	return pool
}

func TestHashFollowsTheTemplate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*karpv1.NodePool)
		same   bool
	}{
		"DISR-045 a label":              {change: func(p *karpv1.NodePool) { p.Spec.Template.Labels["team"] = "b" }},
		"an annotation":                 {change: func(p *karpv1.NodePool) { p.Spec.Template.Annotations = map[string]string{"a": "b"} }},
		"the class":                     {change: func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "other" }},
		"a taint":                       {change: func(p *karpv1.NodePool) { p.Spec.Template.Spec.Taints[0].Value = "x" }},
		"a taint that moves to startup": {change: func(p *karpv1.NodePool) { s := &p.Spec.Template.Spec; s.StartupTaints, s.Taints = s.Taints, nil }},
		"expiry":                        {change: func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter = karpv1.DurationOf(time.Hour) }},
		"expiry at once is not never":   {change: func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter = karpv1.DurationOf(0) }},
		"the grace period":              {change: func(p *karpv1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 1} }},
		"DISR-048 weight, limits, budgets": {same: true, change: func(p *karpv1.NodePool) {
			weight := int32(7)
			p.Spec.Weight, p.Spec.Limits, p.Spec.Disruption.Budgets = &weight, karpv1.Limits{"cpu": {}}, []karpv1.Budget{{Nodes: "1"}}
		}},
		"DISR-046 requirements": {same: true, change: func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "k", Operator: corev1.NodeSelectorOpExists}}
		}},
		"another text for the same time": {same: true, change: func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter.Raw = "1440m" }},
		"empty for absent":               {same: true, change: func(p *karpv1.NodePool) { p.Spec.Template.Annotations = map[string]string{} }},
		"the order of taints": {same: true, change: func(p *karpv1.NodePool) {
			taints := p.Spec.Template.Spec.Taints
			taints[0], taints[1] = taints[1], taints[0]
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := makePool()
			tc.change(changed)
			if tc.same {
				require.Equal(t, poolhash.Hash(makePool()), poolhash.Hash(changed))
				return
			}
			require.NotEqual(t, poolhash.Hash(makePool()), poolhash.Hash(changed))
		})
	}
}

func TestHashIsStableAcrossReleases(t *testing.T) {
	t.Parallel()
	require.Equal(t, "6660719083855269233", poolhash.Hash(makePool()), "another sum needs another HashVersion")
}
