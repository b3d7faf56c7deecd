package fit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/plugins/schedulertest"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/fit"
	"github.com/berth-dev/berth/provisioner/resources"
)

const plainConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
`

// build makes a Fit over the profile of a real scheduler; objects are what its informers show.
func build(tb testing.TB, objects ...runtime.Object) (*fit.Fit, *schedulertest.Scheduler) {
	tb.Helper()
	ctx := tb.Context()
	s, err := schedulertest.New(ctx, schedulertest.NewClient(objects...), []byte(plainConfig), nil)
	require.NoError(tb, err)
	f, err := fit.New(ctx, options(s))
	require.NoError(tb, err)
	return f, s
}

func options(s *schedulertest.Scheduler) fit.Options {
	o := fit.Options{Registry: s.Registry, Exclude: []string{"NodeProvision"}}
	for _, p := range s.Profiles {
		o.Profiles = append(o.Profiles, fit.Profile{Config: p, Running: s.Scheduler.Profiles[p.SchedulerName]})
	}
	return o
}

func startInformers(ctx context.Context, s *schedulertest.Scheduler) {
	s.Informers.Start(ctx.Done())
	s.Informers.WaitForCacheSync(ctx.Done())
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
}

func node(name, zone, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	allocatable := list(cpu, "16Gi")
	allocatable[corev1.ResourcePods] = resource.MustParse("110")
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelInstanceTypeStable: "m5.large",
		}},
		Status: corev1.NodeStatus{Allocatable: allocatable, Capacity: allocatable},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: list(cpu, "64Mi")},
				VolumeMounts: []corev1.VolumeMount{{Name: "token-" + name}},
			}},
			// Every pod of a real cluster has such a volume, and its name is random.
			Volumes: []corev1.Volume{{Name: "token-" + name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func spread(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}},
		})
	}
}

func antiAffinity(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}}
	}
}

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

// existing describes a node in use with the pods on it.
func existing(n *corev1.Node, pods ...*corev1.Pod) *cluster.Node {
	return &cluster.Node{
		Name: n.Name, Node: n, Labels: n.Labels, Taints: n.Spec.Taints, Pods: pods,
		Allocatable: resources.FromList(n.Status.Allocatable), Capacity: resources.FromList(n.Status.Capacity),
		Registered: true, Initialized: true, Ready: true,
	}
}

// inFlight describes the same node before it exists.
func inFlight(n *corev1.Node, promised ...*corev1.Pod) *cluster.Node {
	return &cluster.Node{
		Name: n.Name, ClaimName: "claim-" + n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Promised: promised,
		Allocatable: resources.FromList(n.Status.Allocatable), Capacity: resources.FromList(n.Status.Capacity),
	}
}

func snapshot(nodes ...*cluster.Node) *cluster.Snapshot {
	return &cluster.Snapshot{Generation: 1, Nodes: nodes}
}

func series(n int, f func(i int) *corev1.Pod) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = f(i)
	}
	return pods
}

func name(prefix string, i int) string { return fmt.Sprintf("%s-%03d", prefix, i) }
