package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

// A checker that finds nothing proves nothing: each way to break a good plan must be noticed.
func TestBrokenPlansAreNoticed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaks func(p *solver.Problem, plan *solver.Plan)
		want   string
	}{
		"a pod is lost": {func(_ *solver.Problem, plan *solver.Plan) { plan.Claims[0].Pods = plan.Claims[0].Pods[1:] }, "appears 0 times"},
		"a pod is placed twice": {func(_ *solver.Problem, plan *solver.Plan) {
			plan.Claims[0].Pods = append(plan.Claims[0].Pods, plan.Claims[1].Pods[0])
		}, "appears 2 times"},
		"a claim has no type":      {func(_ *solver.Problem, plan *solver.Plan) { plan.Claims[0].Types = nil }, "0 types"},
		"a price that is not true": {func(_ *solver.Problem, plan *solver.Plan) { plan.Claims[0].Cheapest.Price /= 2 }, "cheapest offering is stated"},
		"a type that is too small": {func(p *solver.Problem, plan *solver.Plan) { plan.Claims[0].Types = p.Pools[0].Types[:1] }, "exceeds the allocatable"},
		"an unfit pod, no reason": {func(_ *solver.Problem, plan *solver.Plan) {
			plan.Unfit = append(plan.Unfit, solver.Unfit{Pod: &corev1.Pod{}})
		}, "without a reason"},
		"a pool that does not exist": {func(_ *solver.Problem, plan *solver.Plan) { plan.Claims[0].Pool = "x" }, "no such pool"},
		"limits": {func(p *solver.Problem, _ *solver.Plan) {
			p.Pools[0].NodePool.Spec.Limits = karpv1.Limits{karpv1.ResourceNodes: resource.MustParse("1")}
		}, "exceeds the limit"},
		"a taint": {func(p *solver.Problem, _ *solver.Plan) {
			p.Pools[0].NodePool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		}, "has taint"},
		"a selector": {func(p *solver.Problem, _ *solver.Plan) {
			p.Pods[0].Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "nowhere"}
		}, "does not match the selector"},
		"host ports": {func(p *solver.Problem, _ *solver.Plan) {
			for _, pod := range p.Pods {
				pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
			}
		}, "host port 80"},
		"anti-affinity": {func(p *solver.Problem, _ *solver.Plan) {
			for _, pod := range p.Pods {
				pod.Labels = map[string]string{"app": "x"}
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}}
			}
		}, "may not share"},
		"affinity": {func(p *solver.Problem, _ *solver.Plan) {
			p.Pods[0].Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}}
		}, "for its affinity"},
		"spread": {func(p *solver.Problem, plan *solver.Plan) {
			for _, pod := range p.Pods {
				pod.Labels = map[string]string{"app": "x"}
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: term()[0].LabelSelector,
				}}
			}
		}, "maxSkew is 1"},
		"a zone that is not sold": {func(_ *solver.Problem, plan *solver.Plan) {
			plan.Claims[0].Requirements = requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: "nowhere"})
		}, "has no offering"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gen.Scale(0, 0, 45)
			p.Pods = gen.Equal(100, "3", "6Gi")
			plan := solver.Solve(t.Context(), p, nil)
			require.Empty(t, check.Plan(p, plan))
			require.Greater(t, len(plan.Claims), 1)
			tc.breaks(&p, &plan)
			require.Contains(t, strings.Join(check.Plan(p, plan), "\n"), tc.want)
		})
	}
}

func term() []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
	}}
}
