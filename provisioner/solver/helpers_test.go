package solver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

func quantities(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func vector(pairs ...string) resources.Vector { return resources.FromList(quantities(pairs...)) }

// machine makes a type of n CPUs with 4 GiB each, at 0.05 USD per CPU and hour on demand and 40 % of
// that as spot, in zones a, b and c.
func machine(name string, cpus int, options ...func(*catalog.InstanceType)) *catalog.InstanceType {
	family, _, _ := strings.Cut(name, ".")
	it := &catalog.InstanceType{
		Name: name,
		Requirements: requirement.FromLabels(map[string]string{
			corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
			"karpenter.k8s.aws/instance-family": family, "karpenter.k8s.aws/instance-cpu": fmt.Sprint(cpus),
		}),
		Capacity: vector("cpu", fmt.Sprint(cpus), "memory", fmt.Sprintf("%dGi", 4*cpus), "pods", "110"),
	}
	for _, zone := range []string{"a", "b", "c"} {
		for capacityType, factor := range map[string]float64{"on-demand": 1, "spot": 0.4} {
			it.Offerings = append(it.Offerings, catalog.Offering{
				Zone: zone, CapacityType: capacityType, Price: 0.05 * float64(cpus) * factor, Available: true,
				Requirements: requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: zone, karpv1.LabelCapacityType: capacityType}),
			})
		}
	}
	slices.SortFunc(it.Offerings, func(a, b catalog.Offering) int {
		return strings.Compare(a.Zone+a.CapacityType, b.Zone+b.CapacityType)
	})
	for _, option := range options {
		option(it)
	}
	return it
}

func arm(it *catalog.InstanceType) {
	it.Requirements[corev1.LabelArchStable] = requirement.New(corev1.LabelArchStable, corev1.NodeSelectorOpIn, "arm64")
}

func gpus(n string) func(*catalog.InstanceType) {
	return func(it *catalog.InstanceType) { it.Capacity = it.Capacity.Add(vector("nvidia.com/gpu", n)) }
}

func defaultTypes() []*catalog.InstanceType {
	return []*catalog.InstanceType{machine("m.large", 2), machine("m.xlarge", 4), machine("m.2xlarge", 8), machine("m.4xlarge", 16)}
}

// nodePool makes a pool with the default types unless an option replaces them.
func nodePool(name string, options ...func(*solver.Pool)) solver.Pool {
	p := solver.Pool{NodePool: &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}, Types: defaultTypes()}
	p.NodePool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	for _, option := range options {
		option(&p)
	}
	return p
}

func weight(w int32) func(*solver.Pool) {
	return func(p *solver.Pool) { p.NodePool.Spec.Weight = &w }
}

func poolTaint(key string, effect corev1.TaintEffect) func(*solver.Pool) {
	return func(p *solver.Pool) {
		p.NodePool.Spec.Template.Spec.Taints = append(p.NodePool.Spec.Template.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

func startupTaint(key string) func(*solver.Pool) {
	return func(p *solver.Pool) {
		p.NodePool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	}
}

func limit(pairs ...string) func(*solver.Pool) {
	return func(p *solver.Pool) { p.NodePool.Spec.Limits = karpv1.Limits(quantities(pairs...)) }
}

func needs(key string, op corev1.NodeSelectorOperator, values ...string) func(*solver.Pool) {
	return func(p *solver.Pool) {
		p.NodePool.Spec.Template.Spec.Requirements = append(p.NodePool.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
	}
}

func minValues(key string, n int) func(*solver.Pool) {
	return func(p *solver.Pool) {
		p.NodePool.Spec.Template.Spec.Requirements = append(p.NodePool.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpExists, MinValues: &n})
	}
}

func poolLabel(key, value string) func(*solver.Pool) {
	return func(p *solver.Pool) { p.NodePool.Spec.Template.Labels = map[string]string{key: value} }
}

func withTypes(types ...*catalog.InstanceType) func(*solver.Pool) {
	return func(p *solver.Pool) { p.Types = types }
}

type podOption func(*corev1.Pod)

func newPod(name, cpu string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{},
		}}},
	}
	if cpu != "" {
		pod.Spec.Containers[0].Resources.Requests = quantities("cpu", cpu)
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func newPods(n int, name, cpu string, options ...podOption) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("%s-%d", name, i), cpu, options...)
	}
	return pods
}

func requests(pairs ...string) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities(pairs...) }
}

func podLabel(key, value string) podOption {
	return func(p *corev1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[key] = value
	}
}

func nodeSelector(key, value string) podOption {
	return func(p *corev1.Pod) {
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[key] = value
	}
}

func tolerate(key string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
}

func priority(n int32) podOption { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func hostPort(port int32) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, ContainerPort: port}}
	}
}

func term(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func nodeAffinity(terms ...corev1.NodeSelectorTerm) podOption {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
}

func prefers(t corev1.NodeSelectorTerm) podOption {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: t}}}
	}
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func spread(key string, maxSkew int32, options ...func(*corev1.TopologySpreadConstraint)) podOption {
	return func(p *corev1.Pod) {
		podLabel("app", "spread")(p)
		c := corev1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: maxSkew, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector("app", "spread")}
		for _, option := range options {
			option(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func antiAffinity(key string, s *metav1.LabelSelector) podOption {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: s}}}
	}
}

func podAffinity(key string, s *metav1.LabelSelector) podOption {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: s}}}
	}
}

// node makes a ready, initialized node of the default pool.
func node(name, cpu, zone string, pods ...*corev1.Pod) *cluster.Node {
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, karpv1.LabelNodePool: "default"}
	return &cluster.Node{
		Name: name, ClaimName: name, Pool: "default", Labels: labels, Requirements: requirement.FromLabels(labels),
		Node:        &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
		Allocatable: vector("cpu", cpu, "memory", "64Gi", "pods", "110"), Capacity: vector("cpu", cpu, "memory", "64Gi", "pods", "110"),
		Pods: pods, Registered: true, Initialized: true, Ready: true,
	}
}

func daemon(name, cpu string, options ...podOption) *corev1.Pod {
	d := newPod(name, cpu, options...)
	d.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: name, UID: types.UID(name)}}
	return d
}

func problem(pods []*corev1.Pod, pools ...solver.Pool) solver.Problem {
	return solver.Problem{Snapshot: &cluster.Snapshot{}, Pools: pools, Pods: pods, NodeCost: 0.005}
}

// summary is a plan in a form that tests can name: "pool type zone capacityType: pods" for claims,
// "node: pods" for existing ones, "pod: reasons" for the rest.
func summary(plan solver.Plan) (claims, existing, unfit []string) {
	for _, c := range plan.Claims {
		claims = append(claims, fmt.Sprintf("%s %s: %d", c.Pool, c.Cheapest.Type, len(c.Pods)))
	}
	byNode := map[string]int{}
	for _, p := range plan.Existing {
		byNode[p.Node.Key()]++
	}
	for name, n := range byNode {
		existing = append(existing, fmt.Sprintf("%s: %d", name, n))
	}
	for _, u := range plan.Unfit {
		var reasons []string
		for _, r := range u.Reasons {
			reasons = append(reasons, r.Pool+": "+r.Reason)
		}
		unfit = append(unfit, u.Pod.Name+" "+strings.Join(reasons, "; "))
	}
	slices.Sort(claims)
	slices.Sort(existing)
	slices.Sort(unfit)
	return claims, existing, unfit
}

func solve(t *testing.T, p solver.Problem) solver.Plan {
	t.Helper()
	return solver.Solve(t.Context(), p, nil)
}

// zonesOf counts the pods of new claims by the zone that the claim is pinned to.
func zonesOf(plan solver.Plan) map[string]int {
	zones := map[string]int{}
	for _, c := range plan.Claims {
		zone, ok := c.Requirements.Get(corev1.LabelTopologyZone).Single()
		if !ok {
			zone = "open"
		}
		zones[zone] += len(c.Pods)
	}
	return zones
}

// refusing is a Fit that refuses what its function names.
type refusing func(pod *corev1.Pod, node string) bool

func (r refusing) Open(context.Context, *cluster.Snapshot) (solver.Trial, error) { return r, nil }
func (r refusing) AddNode(context.Context, *corev1.Node, []*corev1.Pod) error    { return nil }
func (r refusing) RemoveNode(string)                                             {}
func (r refusing) Close()                                                        {}
func (r refusing) Place(_ context.Context, pod *corev1.Pod, node string) (solver.Verdict, error) {
	if r(pod, node) {
		return solver.Verdict{Plugin: "Custom", Reason: "not here"}, nil
	}
	return solver.Verdict{}, nil
}
