package resources_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/berth-dev/berth/provisioner/resources"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func vector(pairs ...string) resources.Vector { return resources.FromList(list(pairs...)) }

func TestVectorArithmetic(t *testing.T) {
	t.Parallel()
	a := vector("cpu", "1500m", "memory", "1Gi", "nvidia.com/gpu", "2", "x/a", "1")
	b := vector("cpu", "500m", "pods", "3", "nvidia.com/gpu", "2", "x/b", "4")
	require.Equal(t, vector("cpu", "2", "memory", "1Gi", "pods", "3", "nvidia.com/gpu", "4", "x/a", "1", "x/b", "4"), a.Add(b))
	require.Equal(t, vector("cpu", "1", "memory", "1Gi", "pods", "-3", "x/a", "1", "x/b", "-4"), a.Sub(b))
	require.Equal(t, vector("cpu", "500m", "nvidia.com/gpu", "2"), a.Min(b))
	require.Equal(t, vector("cpu", "1500m", "memory", "1Gi", "pods", "3", "nvidia.com/gpu", "2", "x/a", "1", "x/b", "4"), a.Max(b))
	require.Equal(t, a.Add(a).Add(a), a.Scale(3))
	require.True(t, a.Sub(a).IsZero())
	require.True(t, a.Sub(b).NonNegative().Equal(vector("cpu", "1", "memory", "1Gi", "x/a", "1")))
	require.Equal(t, vector("cpu", "1"), resources.Vector{}.With(corev1.ResourceCPU, 1000))
	require.Equal(t, vector("x/a", "5"), vector("x/a", "2").With("x/a", 5))
	require.Equal(t, "cpu 1500m, memory 1Gi, nvidia.com/gpu 2, x/a 1", a.String())
	require.True(t, list("cpu", "1500m", "memory", "1Gi", "nvidia.com/gpu", "2", "x/a", "1")["cpu"].Equal(a.ToList()["cpu"]))
}

func TestFits(t *testing.T) {
	t.Parallel()
	free := vector("cpu", "2", "memory", "4Gi", "pods", "10", "x/a", "1")
	tests := map[string]struct {
		want    resources.Vector
		exceeds []corev1.ResourceName
		times   int64
	}{
		"all of it":                   {want: free, times: 1},
		"half of it":                  {want: vector("cpu", "1", "pods", "1"), times: 2},
		"one milli too much":          {want: vector("cpu", "2001m"), exceeds: []corev1.ResourceName{"cpu"}},
		"a resource that isn't there": {want: vector("x/b", "1"), exceeds: []corev1.ResourceName{"x/b"}},
		"nothing":                     {want: vector(), times: 1<<31 - 1},
		"several":                     {want: vector("memory", "5Gi", "x/a", "2"), exceeds: []corev1.ResourceName{"memory", "x/a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.exceeds == nil, tc.want.Fits(free))
			require.Equal(t, tc.exceeds, tc.want.Exceeds(free))
			require.Equal(t, tc.times, tc.want.Times(free))
		})
	}
	require.False(t, vector("cpu", "1").Fits(vector("cpu", "-1")), "a negative total never fits")
}

func TestPodRequests(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	container := func(pairs ...string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(pairs...)}}
	}
	sidecar := container("cpu", "100m")
	sidecar.RestartPolicy = &always
	tests := map[string]struct {
		pod  corev1.Pod
		want resources.Vector
	}{
		"containers add up":               {pod: corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1"), container("cpu", "2")}}}, want: vector("cpu", "3", "pods", "1")},
		"the largest init container wins": {pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{container("cpu", "4"), container("cpu", "1")}, Containers: []corev1.Container{container("cpu", "2")}}}, want: vector("cpu", "4", "pods", "1")},
		"sidecars run beside":             {pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container("cpu", "2")}}}, want: vector("cpu", "2100m", "pods", "1")},
		"PROV-079 a container that shrinks": {
			pod: corev1.Pod{
				Spec:   corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1")}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{AllocatedResources: list("cpu", "3")}}},
			},
			want: vector("cpu", "3", "pods", "1"),
		},
		"PROV-079 a pod that shrinks as a whole": {
			pod: corev1.Pod{
				Spec:   corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1")}, Containers: []corev1.Container{{}}},
				Status: corev1.PodStatus{AllocatedResources: list("cpu", "3"), Resources: &corev1.ResourceRequirements{Requests: list("cpu", "3")}},
			},
			want: vector("cpu", "3", "pods", "1"),
		},
		"overhead counts": {pod: corev1.Pod{Spec: corev1.PodSpec{Overhead: list("memory", "1Mi"), Containers: []corev1.Container{container("cpu", "2")}}}, want: vector("cpu", "2", "memory", "1Mi", "pods", "1")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, resources.PodRequests(&tc.pod))
		})
	}
}

// Pods that are counted the quick way come out as upstream's helper counts them.
func TestPlainPodsCountAsUpstreamCounts(t *testing.T) {
	t.Parallel()
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("cpu", "500m", "memory", "1Gi", "ephemeral-storage", "2Gi")}},
			{Name: "b", Resources: corev1.ResourceRequirements{Requests: list("cpu", "250m")}},
		}}}
		change(p)
		return p
	}
	told := func(name, cpu string, allocated bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			status := corev1.ContainerStatus{Name: name, Resources: &corev1.ResourceRequirements{Requests: list("cpu", cpu)}}
			if allocated {
				status.Resources, status.AllocatedResources = nil, list("cpu", cpu)
			}
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
		}
	}
	tests := map[string]*corev1.Pod{
		"plain":                       pod(func(*corev1.Pod) {}),
		"the kubelet tells the same":  pod(told("a", "500m", false)),
		"PROV-079 shrinking":          pod(told("a", "2", false)),
		"PROV-079 shrinking, by room": pod(told("a", "2", true)),
		"growing":                     pod(told("a", "100m", false)),
		"an extended resource":        pod(func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Requests = list("x/a", "2") }),
		"infeasible": pod(func(p *corev1.Pod) {
			told("a", "100m", true)(p)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
		}),
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := resources.FromList(helpers.PodRequests(p, helpers.PodResourcesOptions{UseStatusResources: true}))
			want.Pods++
			require.Equal(t, want, resources.PodRequests(p))
		})
	}
}

func TestShareIsTheScarcestPart(t *testing.T) {
	t.Parallel()
	free := vector("cpu", "4", "memory", "8Gi", "pods", "10", "x/a", "2")
	require.InDelta(t, 0.5, vector("cpu", "1", "memory", "4Gi").Share(free), 1e-9)
	require.InDelta(t, 1, vector("cpu", "1", "x/a", "2").Share(free), 1e-9)
	require.InDelta(t, 0.25, vector("cpu", "1", "x/b", "9").Share(free), 1e-9, "what free does not have has no share")
	require.InDelta(t, 0, vector().Share(free), 1e-9)
}

func BenchmarkFits(b *testing.B) {
	want, free := vector("cpu", "1", "memory", "1Gi", "pods", "1"), vector("cpu", "4", "memory", "8Gi", "pods", "29", "x/a", "1")
	for b.Loop() {
		if !want.Fits(free) {
			b.Fatal("does not fit")
		}
	}
}
