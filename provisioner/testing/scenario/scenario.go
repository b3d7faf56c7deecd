package scenario

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Scenario is one file. Unknown fields are ignored.
type Scenario struct {
	Name              string             `json:"name"`
	InstanceTypesFile string             `json:"instanceTypesFile,omitempty"`
	InstanceTypes     []InstanceType     `json:"instanceTypes,omitempty"`
	NodePools         []*karpv1.NodePool `json:"nodePools"`
	DaemonSets        []Group            `json:"daemonSets,omitempty"`
	Nodes             []Nodes            `json:"nodes,omitempty"`
	Pods              []Group            `json:"pods"`
}

// Group is count equal pods, named name-0 and so on.
type Group struct {
	Name     string                 `json:"name"`
	Count    int                    `json:"count"`
	Template corev1.PodTemplateSpec `json:"template"`
}

// InstanceType is a machine. Allocatable is what pods may use; the rest of the capacity is overhead.
type InstanceType struct {
	Name        string              `json:"name"`
	Arch        string              `json:"arch"`
	OS          []string            `json:"os"`
	CPU         resource.Quantity   `json:"cpu"`
	Memory      resource.Quantity   `json:"memory"`
	Pods        int64               `json:"pods"`
	GPUs        corev1.ResourceList `json:"gpus,omitempty"`
	Labels      map[string]string   `json:"labels,omitempty"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Offerings   []Offering          `json:"offerings"`
}

// Offering is a zone, a capacity type and a price in dollars an hour.
type Offering struct {
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
	Available    bool    `json:"available"`
}

// Nodes is count equal nodes that exist, with the pods that run on each.
type Nodes struct {
	Name         string            `json:"name"`
	Count        int               `json:"count"`
	NodePool     string            `json:"nodePool"`
	InstanceType string            `json:"instanceType"`
	Zone         string            `json:"zone"`
	CapacityType string            `json:"capacityType"`
	Labels       map[string]string `json:"labels,omitempty"`
	Taints       []corev1.Taint    `json:"taints,omitempty"`
	Pods         []Group           `json:"pods,omitempty"`
}

// Load reads a scenario and the instance types that it refers to.
func Load(path string) (*Scenario, error) {
	s := &Scenario{}
	if err := read(path, s); err != nil {
		return nil, err
	}
	if s.InstanceTypesFile != "" {
		if err := read(filepath.Join(filepath.Dir(path), s.InstanceTypesFile), &s.InstanceTypes); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func read(path string, into any) error {
	raw, err := os.ReadFile(path) //nolint:gosec // a test names the file
	if err != nil {
		return fmt.Errorf("read scenario: %w", err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("parse scenario %s: %w", path, err)
	}
	return nil
}

// Problem builds what the solver is asked. Every call makes new objects.
func (s *Scenario) Problem() (solver.Problem, error) {
	machines := make([]*catalog.InstanceType, len(s.InstanceTypes))
	byName := map[string]*catalog.InstanceType{}
	for i := range s.InstanceTypes {
		machines[i] = s.InstanceTypes[i].Machine()
		byName[machines[i].Name] = machines[i]
	}
	p := solver.Problem{NodeCost: 0.005, Snapshot: &cluster.Snapshot{PoolUsage: map[string]resources.Vector{}}}
	for _, np := range s.NodePools {
		p.Pools = append(p.Pools, solver.Pool{NodePool: np.DeepCopy(), Types: machines})
	}
	for _, g := range s.DaemonSets {
		p.Snapshot.Daemons = append(p.Snapshot.Daemons, daemon(g))
	}
	for _, n := range s.Nodes {
		it := byName[n.InstanceType]
		if it == nil {
			return p, fmt.Errorf("scenario %s: node %s has unknown instance type %q", s.Name, n.Name, n.InstanceType)
		}
		for i := range max(n.Count, 1) {
			node := n.build(i, it, p.Snapshot.Daemons)
			p.Snapshot.Nodes = append(p.Snapshot.Nodes, node)
			p.Snapshot.PoolUsage[n.NodePool] = p.Snapshot.PoolUsage[n.NodePool].Add(it.Capacity).Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
		}
	}
	slices.SortFunc(p.Snapshot.Nodes, func(a, b *cluster.Node) int { return strings.Compare(a.Key(), b.Key()) })
	for _, g := range s.Pods {
		p.Pods = append(p.Pods, g.build("")...)
	}
	return p, nil
}

// Machine is the type as the solver's catalogue has it.
func (t *InstanceType) Machine() *catalog.InstanceType {
	labels := map[string]string{corev1.LabelInstanceTypeStable: t.Name, corev1.LabelArchStable: t.Arch}
	maps.Copy(labels, t.Labels)
	it := &catalog.InstanceType{Name: t.Name, Requirements: requirement.FromLabels(labels)}
	it.Requirements.Add(requirement.New(corev1.LabelOSStable, corev1.NodeSelectorOpIn, t.OS...))
	allocatable := resources.FromList(t.Allocatable)
	it.Capacity = allocatable.Max(resources.FromList(t.GPUs)).Max(resources.Vector{
		MilliCPU: t.CPU.MilliValue(), Memory: t.Memory.Value(), Pods: t.Pods,
	})
	it.Overhead = it.Capacity.Sub(allocatable)
	for _, o := range t.Offerings {
		it.Offerings = append(it.Offerings, catalog.Offering{
			Zone: o.Zone, CapacityType: o.CapacityType, Price: o.Price, Available: o.Available,
			Requirements: requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: o.Zone, karpv1.LabelCapacityType: o.CapacityType}),
		})
	}
	return it
}

func (n Nodes) build(i int, it *catalog.InstanceType, daemons []*corev1.Pod) *cluster.Node {
	name := n.Name
	if n.Count > 1 {
		name += "-" + strconv.Itoa(i)
	}
	labels := it.Requirements.Labels()
	maps.Copy(labels, n.Labels)
	labels[corev1.LabelHostname], labels[corev1.LabelTopologyZone] = name, n.Zone
	labels[karpv1.LabelCapacityType], labels[karpv1.LabelNodePool] = n.CapacityType, n.NodePool
	node := &cluster.Node{
		Name: name, ClaimName: name, Pool: n.NodePool, Labels: labels, Requirements: requirement.FromLabels(labels), Taints: n.Taints,
		Allocatable: it.Allocatable(), Capacity: it.Capacity, Registered: true, Initialized: true, Ready: true,
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: n.Taints},
			Status: corev1.NodeStatus{Allocatable: it.Allocatable().ToList(), Capacity: it.Capacity.ToList()},
		},
	}
	for _, d := range daemons {
		pod := d.DeepCopy()
		pod.Name += "-" + name
		pod.UID = types.UID(pod.Name)
		node.Pods = append(node.Pods, pod)
	}
	for _, g := range n.Pods {
		node.Pods = append(node.Pods, g.build("-"+name)...)
	}
	for _, pod := range node.Pods {
		pod.Spec.NodeName = name
	}
	return node
}

func (g Group) build(suffix string) []*corev1.Pod {
	pods := make([]*corev1.Pod, max(g.Count, 1))
	for i := range pods {
		pod := &corev1.Pod{ObjectMeta: *g.Template.ObjectMeta.DeepCopy(), Spec: *g.Template.Spec.DeepCopy()}
		pod.Name = fmt.Sprintf("%s-%d%s", g.Name, i, suffix)
		if pod.Namespace == "" {
			pod.Namespace = corev1.NamespaceDefault
		}
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
		if pod.Spec.SchedulerName == "" {
			pod.Spec.SchedulerName = corev1.DefaultSchedulerName
		}
		pods[i] = pod
	}
	return pods
}

func daemon(g Group) *corev1.Pod {
	pod := Group{Name: g.Name, Count: 1, Template: g.Template}.build("")[0]
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: g.Name, UID: types.UID(g.Name), Controller: new(true)}}
	return pod
}
