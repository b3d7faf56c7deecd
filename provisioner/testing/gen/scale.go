package gen

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Catalogue makes up to n machines in the shape of a real region: families of nine sizes in three ratios of
// memory to CPU, three zones, on demand and spot at about a third of the price.
func Catalogue(n int) []*catalog.InstanceType {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible sequence is wanted
	sizes := []int{1, 2, 4, 8, 16, 32, 48, 64, 96}
	out := make([]*catalog.InstanceType, 0, n)
	for family := 0; ; family++ {
		category := []string{"c", "m", "r"}[family%3]
		perCPU := []int{2, 4, 8}[family%3]
		arch := "amd64"
		if family%4 == 3 {
			arch = "arm64"
		}
		base := 0.034 + 0.0035*float64(perCPU) + 0.01*rng.Float64()
		for _, cpus := range sizes {
			if len(out) == n {
				return out
			}
			name := fmt.Sprintf("%s%d.%d", category, family/3+5, cpus)
			it := &catalog.InstanceType{
				Name: name,
				Requirements: requirement.FromLabels(map[string]string{
					corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux",
					"karpenter.k8s.aws/instance-category": category, "karpenter.k8s.aws/instance-cpu": fmt.Sprint(cpus),
					"karpenter.k8s.aws/instance-family": fmt.Sprintf("%s%d", category, family/3+5), "karpenter.k8s.aws/instance-generation": fmt.Sprint(family/3 + 5),
				}),
				Capacity: vector("cpu", fmt.Sprint(cpus), "memory", fmt.Sprintf("%dGi", cpus*perCPU), "pods", fmt.Sprint(min(8*cpus+10, 737))),
				Overhead: vector("cpu", "70m", "memory", fmt.Sprintf("%dMi", 400+30*cpus)),
			}
			for _, zone := range Zones {
				for capacityType, factor := range map[string]float64{karpv1.CapacityTypeOnDemand: 1, karpv1.CapacityTypeSpot: 0.35} {
					it.Offerings = append(it.Offerings, catalog.Offering{
						Zone: zone, CapacityType: capacityType, Price: base * float64(cpus) * factor, Available: true,
						Requirements: requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: zone, karpv1.LabelCapacityType: capacityType}),
					})
				}
			}
			out = append(out, it)
		}
	}
}

// Scale makes a problem of many deployments: classes of equal pods with log-like requests, a third spread
// over zones, a tenth with anti-affinity between hosts, some with selectors; five daemons.
func Scale(pods, classes, machines int) solver.Problem {
	rng := rand.New(rand.NewPCG(uint64(pods), uint64(classes))) //nolint:gosec // a reproducible sequence is wanted
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	p := solver.Problem{NodeCost: 0.005, Snapshot: &cluster.Snapshot{}, Pools: []solver.Pool{{NodePool: np, Types: Catalogue(machines)}}}
	for i := range 5 {
		d := pod(fmt.Sprintf("daemon-%d", i), "50m", "100Mi")
		d.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: d.Name, UID: types.UID(d.Name)}}
		p.Snapshot.Daemons = append(p.Snapshot.Daemons, d)
	}
	for i := range classes {
		proto := pod("", fmt.Sprintf("%dm", 20*(1<<rng.IntN(7))+rng.IntN(100)), fmt.Sprintf("%dMi", 64<<rng.IntN(7)))
		app := map[string]string{"app": fmt.Sprintf("app-%d", i)}
		proto.Labels = app
		switch rng.IntN(10) {
		case 0, 1, 2:
			proto.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: app},
			}}
		case 3:
			affinity(proto).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: app},
			}}}
		case 4, 5, 6:
			proto.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"}
		case 7:
			proto.Spec.NodeSelector = map[string]string{karpv1.LabelCapacityType: karpv1.CapacityTypeOnDemand}
		}
		first, last := i*pods/classes, (i+1)*pods/classes
		for n := first; n < last; n++ {
			x := *proto // equal pods share what does not differ, as copies from an informer would not
			x.Name = fmt.Sprintf("app-%d-%d", i, n)
			x.UID = types.UID(x.Name)
			p.Pods = append(p.Pods, &x)
		}
	}
	return p
}

// Fill adds n ready nodes that run pods already, count on each.
func Fill(p *solver.Problem, n, count int) {
	machines := p.Pools[0].Types
	for i := range n {
		it := machines[(i*7)%len(machines)]
		name := fmt.Sprintf("node-%05d", i)
		labels := it.Requirements.Labels()
		labels[corev1.LabelHostname], labels[corev1.LabelTopologyZone] = name, Zones[i%len(Zones)]
		labels[karpv1.LabelCapacityType], labels[karpv1.LabelNodePool] = karpv1.CapacityTypeSpot, "general"
		node := &cluster.Node{
			Name: name, ClaimName: name, Pool: "general", Labels: labels, Requirements: requirement.FromLabels(labels),
			Node:        &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
			Allocatable: it.Allocatable(), Capacity: it.Capacity, Registered: true, Initialized: true, Ready: true,
		}
		room := it.Allocatable()
		for j := range count {
			x := pod(fmt.Sprintf("old-%d-%d", i, j), "100m", "200Mi")
			x.Labels = map[string]string{"app": fmt.Sprintf("old-%d", j)}
			x.Spec.NodeName = name
			if r := resources.PodRequests(x); r.Fits(room) {
				room = room.Sub(r)
				node.Pods = append(node.Pods, x)
			}
		}
		p.Snapshot.Nodes = append(p.Snapshot.Nodes, node)
	}
}

// Equal makes n equal pods without any rule.
func Equal(n int, cpu, memory string) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("equal-%d", i), cpu, memory)
	}
	return pods
}
