package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

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

// Zones of every problem.
var Zones = []string{"z1", "z2", "z3"}

// GPU is the extended resource that some machines have.
const GPU = "nvidia.com/gpu"

// Options say what a problem may contain; the zero value is the mix that most clusters have.
type Options struct {
	// MaxPods bounds the pending pods; 0 means 40.
	MaxPods int
	// Plain leaves out rules between pods (spread, affinity, host ports).
	Plain bool
	// Empty leaves out nodes.
	Empty bool
	// Wide adds the rarer kinds of rules. Without it a seed gives the problem that it always gave.
	Wide bool
}

// Problem makes the problem of a seed.
func Problem(seed uint64, o Options) solver.Problem {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x6265727468)), options: o} //nolint:gosec // a reproducible sequence is wanted
	if o.MaxPods == 0 {
		g.options.MaxPods = 40
	}
	p := solver.Problem{NodeCost: 0.005, Snapshot: &cluster.Snapshot{Generation: seed, PoolUsage: map[string]resources.Vector{}}}
	p.Snapshot.NamespaceLabels = map[string]map[string]string{"default": {"team": "x"}, "other": {"team": "y"}}
	machines := g.machines()
	for i := range 1 + g.rng.IntN(3) {
		p.Pools = append(p.Pools, g.pool(i, machines))
	}
	for i := range g.rng.IntN(3) {
		p.Snapshot.Daemons = append(p.Snapshot.Daemons, g.daemon(i))
	}
	kinds := make([]func(name string) *corev1.Pod, 1+g.rng.IntN(6))
	for i := range kinds {
		kinds[i] = g.kind()
	}
	if !o.Empty {
		for i := range g.rng.IntN(7) {
			node := g.node(i, machines, p.Snapshot.Daemons, kinds)
			p.Snapshot.Nodes = append(p.Snapshot.Nodes, node)
			if node.Pool != "" && !node.Deleting {
				usage := p.Snapshot.PoolUsage[node.Pool].Add(node.Capacity)
				p.Snapshot.PoolUsage[node.Pool] = usage.With(karpv1.ResourceNodes, usage.Get(karpv1.ResourceNodes)+1)
			}
		}
	}
	slices.SortStableFunc(p.Snapshot.Nodes, func(a, b *cluster.Node) int {
		if a.Initialized != b.Initialized {
			if a.Initialized {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Key(), b.Key())
	})
	for i := range 1 + g.rng.IntN(g.options.MaxPods) {
		p.Pods = append(p.Pods, pick(g, kinds...)(fmt.Sprintf("p-%03d", i)))
	}
	return p
}

type generator struct {
	rng     *rand.Rand
	options Options
}

func pick[T any](g *generator, values ...T) T { return values[g.rng.IntN(len(values))] }

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.rng.IntN(n) == 0 }

func quantities(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func vector(pairs ...string) resources.Vector { return resources.FromList(quantities(pairs...)) }

// machines are a few families of a few sizes; prices differ a little by zone.
func (g *generator) machines() []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for _, family := range []string{"c", "m", "r", "ma", "g"}[:2+g.rng.IntN(4)] {
		perCPU := map[string]int{"c": 2, "m": 4, "r": 8, "ma": 4, "g": 4}[family]
		for _, cpus := range []int{1, 2, 4, 8, 16} {
			if g.chance(4) {
				continue
			}
			out = append(out, g.machine(family, cpus, perCPU))
		}
	}
	if len(out) == 0 {
		out = append(out, g.machine("m", 4, 4))
	}
	return out
}

func (g *generator) machine(family string, cpus, perCPU int) *catalog.InstanceType {
	arch := "amd64"
	if family == "ma" {
		arch = "arm64"
	}
	name := fmt.Sprintf("%s.%d", family, cpus)
	it := &catalog.InstanceType{
		Name: name,
		Requirements: requirement.FromLabels(map[string]string{
			corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux",
			"karpenter.k8s.aws/instance-family": family, "karpenter.k8s.aws/instance-cpu": fmt.Sprint(cpus),
		}),
		Capacity: vector("cpu", fmt.Sprint(cpus), "memory", fmt.Sprintf("%dGi", cpus*perCPU), "pods", fmt.Sprint(8*cpus+4), "ephemeral-storage", "20Gi"),
		Overhead: vector("cpu", "70m", "memory", "300Mi", "ephemeral-storage", "3Gi"),
	}
	price := 0.01*float64(cpus) + 0.003*float64(cpus*perCPU)
	if family == "g" {
		it.Capacity = it.Capacity.With(GPU, int64(max(cpus/4, 1)))
		it.Requirements.Add(requirement.New("karpenter.k8s.aws/instance-gpu-count", corev1.NodeSelectorOpIn, fmt.Sprint(max(cpus/4, 1))))
		price += 0.4 * float64(max(cpus/4, 1))
	}
	for i, zone := range Zones {
		for _, capacityType := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
			factor := 1.0
			if capacityType == karpv1.CapacityTypeSpot {
				factor = 0.3 + 0.02*float64(i)
			}
			it.Offerings = append(it.Offerings, catalog.Offering{
				Zone: zone, CapacityType: capacityType, Price: price * factor, Available: !g.chance(8),
				Requirements: requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: zone, karpv1.LabelCapacityType: capacityType}),
			})
		}
	}
	return it
}

func (g *generator) pool(i int, machines []*catalog.InstanceType) solver.Pool {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool-%d", i)}}
	template := &np.Spec.Template
	template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	need := func(key string, op corev1.NodeSelectorOperator, values ...string) {
		template.Spec.Requirements = append(template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
	}
	if g.chance(2) {
		np.Spec.Weight = new(int32(1 + g.rng.IntN(3)))
	}
	if g.chance(3) {
		need(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, Zones[:1+g.rng.IntN(2)]...)
	}
	if g.chance(3) {
		need(karpv1.LabelCapacityType, corev1.NodeSelectorOpIn, pick(g, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot))
	}
	if g.chance(4) {
		need("karpenter.k8s.aws/instance-cpu", pick(g, corev1.NodeSelectorOpGt, karpv1.OperatorGte, corev1.NodeSelectorOpLt, karpv1.OperatorLte), pick(g, "2", "4"))
	}
	if g.chance(4) {
		need("karpenter.k8s.aws/instance-family", corev1.NodeSelectorOpNotIn, "r")
	}
	if g.chance(3) {
		need("team", pick(g, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpIn), "a", "b")
	}
	if last := len(template.Spec.Requirements) - 1; last >= 0 && template.Spec.Requirements[last].Operator == corev1.NodeSelectorOpExists {
		template.Spec.Requirements[last].Values = nil
	}
	if g.chance(4) {
		template.Labels = map[string]string{"disk": "ssd"}
	}
	if g.chance(4) {
		template.Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)}}
	}
	if g.chance(4) {
		template.Spec.StartupTaints = []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoSchedule}}
	}
	switch g.rng.IntN(4) {
	case 0:
		np.Spec.Limits = karpv1.Limits(quantities("cpu", pick(g, "8", "24"), "memory", "200Gi"))
	case 1:
		np.Spec.Limits = karpv1.Limits(quantities("nodes", pick(g, "1", "3")))
	}
	if g.options.Wide {
		g.widenPool(np)
	}
	return solver.Pool{NodePool: np, Types: machines}
}

func (g *generator) daemon(i int) *corev1.Pod {
	d := pod(fmt.Sprintf("daemon-%d", i), pick(g, "50m", "200m"), "100Mi")
	d.Namespace = "kube-system"
	d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: d.Name, UID: types.UID(d.Name), Controller: new(true)}}
	if g.chance(2) {
		d.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	switch g.rng.IntN(4) {
	case 0:
		d.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"}
	case 1:
		d.Spec.NodeSelector = map[string]string{karpv1.LabelInitialized: "true"}
	}
	if g.chance(3) && !g.options.Plain {
		d.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 9100, ContainerPort: 9100}}
	}
	if g.options.Wide {
		g.widenDaemon(d)
	}
	return d
}

// node is one that exists, or (once in three times) one that is still in flight. Nodes of no pool and
// nodes that are going are among them.
func (g *generator) node(i int, machines []*catalog.InstanceType, daemons []*corev1.Pod, kinds []func(string) *corev1.Pod) *cluster.Node {
	it := pick(g, machines...)
	name := fmt.Sprintf("n-%d", i)
	labels := it.Requirements.Labels()
	labels[corev1.LabelHostname], labels[corev1.LabelTopologyZone] = name, pick(g, Zones...)
	labels[karpv1.LabelCapacityType] = pick(g, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	n := &cluster.Node{
		Name: name, ClaimName: "claim-" + name, Pool: "pool-0", Labels: labels,
		Allocatable: it.Allocatable(), Capacity: it.Capacity, Registered: true, Initialized: true, Ready: true,
	}
	if g.chance(5) {
		n.Pool, n.ClaimName = "", ""
	} else {
		labels[karpv1.LabelNodePool] = n.Pool
	}
	if g.chance(5) {
		n.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	}
	if g.chance(6) {
		labels["disk"] = "ssd"
	}
	n.Node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: n.Taints},
		Status: corev1.NodeStatus{Allocatable: n.Allocatable.ToList(), Capacity: n.Capacity.ToList()},
	}
	if n.Pool != "" && g.chance(3) {
		n.Node, n.Registered, n.Initialized, n.Ready = nil, false, false, false
	}
	n.Deleting = g.chance(8)
	if g.options.Wide {
		g.widenNode(n)
	}
	n.Requirements = requirement.FromLabels(labels)
	g.load(n, daemons, kinds)
	if g.options.Wide {
		g.leave(n)
	}
	return n
}

// load puts daemons and a few pods on the node, as far as they may be there.
func (g *generator) load(n *cluster.Node, daemons []*corev1.Pod, kinds []func(string) *corev1.Pod) {
	room := n.Allocatable
	put := func(p *corev1.Pod) {
		if !resources.PodRequests(p).Fits(room) {
			return
		}
		room = room.Sub(resources.PodRequests(p))
		if n.Node == nil {
			n.Promised = append(n.Promised, p)
			return
		}
		p.Spec.NodeName = n.Name
		n.Pods = append(n.Pods, p)
	}
	if n.Node != nil {
		for _, d := range daemons {
			if d.Spec.Affinity != nil || len(d.Spec.NodeSelector) > 0 || len(n.Taints) > 0 && len(d.Spec.Tolerations) == 0 {
				continue
			}
			p := d.DeepCopy()
			p.Name += "-" + n.Name
			p.UID = types.UID(p.Name)
			put(p)
		}
	}
	for i := range g.rng.IntN(4) {
		p := pick(g, kinds...)(fmt.Sprintf("old-%s-%d", n.Name, i))
		// What runs here was allowed here once; what it demands of nodes and neighbours is left out,
		// except that it may still repel others.
		p.Spec.NodeSelector, p.Spec.TopologySpreadConstraints = nil, nil
		p.Spec.Containers[0].Ports = nil
		if p.Spec.Affinity != nil {
			p.Spec.Affinity.NodeAffinity, p.Spec.Affinity.PodAffinity = nil, nil
			if i > 0 {
				p.Spec.Affinity = nil
			}
		}
		put(p)
	}
}
