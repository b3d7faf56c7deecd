package gen

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

func pod(name, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers:    []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", cpu, "memory", memory)}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// kind returns a maker of equal pods.
func (g *generator) kind() func(name string) *corev1.Pod {
	cpu, memory := pick(g, "100m", "500m", "1", "1500m", "3", "30"), pick(g, "128Mi", "1Gi", "4Gi")
	if cpu == "30" && !g.chance(3) {
		cpu = "250m" // pods that fit nowhere are rare
	}
	proto := pod("", cpu, memory)
	proto.Labels = map[string]string{"app": pick(g, "a", "b", "c"), "rev": pick(g, "1", "2")}
	if g.chance(5) {
		proto.Namespace = "other"
	}
	if g.chance(3) {
		proto.Spec.Priority = new(int32(g.rng.IntN(3)))
	}
	if g.chance(8) {
		proto.Spec.Containers[0].Resources.Requests[GPU] = quantities(GPU, "1")[GPU]
	}
	if g.chance(3) {
		proto.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	}
	g.selects(proto)
	if !g.options.Plain {
		g.relates(proto)
	}
	if g.options.Wide {
		g.widenPod(proto)
	}
	return func(name string) *corev1.Pod {
		p := proto.DeepCopy()
		p.Name, p.UID = name, types.UID("uid-"+name)
		return p
	}
}

// selects adds demands on the node.
func (g *generator) selects(p *corev1.Pod) {
	if g.chance(4) {
		p.Spec.NodeSelector = map[string]string{}
		switch g.rng.IntN(5) {
		case 0:
			p.Spec.NodeSelector[corev1.LabelTopologyZone] = pick(g, Zones...)
		case 1:
			p.Spec.NodeSelector[karpv1.LabelCapacityType] = karpv1.CapacityTypeOnDemand
		case 2:
			p.Spec.NodeSelector["disk"] = "ssd"
		case 3:
			p.Spec.NodeSelector["team"] = "a"
		default:
			p.Spec.NodeSelector[corev1.LabelArchStable] = pick(g, "amd64", "arm64")
		}
	}
	if g.chance(3) {
		terms := make([]corev1.NodeSelectorTerm, 1+g.rng.IntN(2))
		for i := range terms {
			terms[i].MatchExpressions = []corev1.NodeSelectorRequirement{g.expression()}
			if g.chance(3) {
				terms[i].MatchExpressions = append(terms[i].MatchExpressions, g.expression())
			}
		}
		affinity(p).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	if g.chance(4) {
		node := affinity(p)
		if node.NodeAffinity == nil {
			node.NodeAffinity = &corev1.NodeAffinity{}
		}
		node.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{
			Weight: int32(1 + g.rng.IntN(100)), Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{g.expression()}}, //nolint:gosec // small
		}}
	}
}

func (g *generator) expression() corev1.NodeSelectorRequirement {
	e := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	return pick(g,
		e(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "z1", "z3"),
		e(corev1.LabelTopologyZone, corev1.NodeSelectorOpNotIn, "z2"),
		e("karpenter.k8s.aws/instance-cpu", corev1.NodeSelectorOpGt, "2"),
		e("karpenter.k8s.aws/instance-cpu", corev1.NodeSelectorOpLt, "16"),
		e("karpenter.k8s.aws/instance-family", corev1.NodeSelectorOpNotIn, "c"),
		e("karpenter.k8s.aws/instance-gpu-count", corev1.NodeSelectorOpDoesNotExist),
		e("disk", corev1.NodeSelectorOpExists),
		e("disk", corev1.NodeSelectorOpDoesNotExist),
		e("team", corev1.NodeSelectorOpNotIn, "b"),
	)
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

// relates adds demands on the neighbours.
func (g *generator) relates(p *corev1.Pod) {
	keys := []string{corev1.LabelTopologyZone, corev1.LabelHostname}
	if g.chance(3) {
		c := g.spread(pick(g, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelHostname, karpv1.LabelCapacityType), p.Labels["app"])
		if g.chance(4) {
			c.MatchLabelKeys = []string{"rev"}
		}
		if g.chance(5) {
			c.MinDomains = new(int32(1 + g.rng.IntN(3)))
		}
		if g.chance(5) {
			c.NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor)
		}
		if g.chance(6) {
			c.NodeAffinityPolicy = new(corev1.NodeInclusionPolicyIgnore)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	if g.chance(6) && len(p.Spec.TopologySpreadConstraints) == 0 {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			g.spread(corev1.LabelTopologyZone, p.Labels["app"]), g.spread(corev1.LabelHostname, p.Labels["app"]),
		}
	}
	if g.chance(5) {
		affinity(p).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{g.near(pick(g, keys...))}}
	}
	if g.chance(6) {
		affinity(p).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{g.near(pick(g, keys...))}}
		if g.chance(3) {
			terms := &p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			*terms = append(*terms, g.near(pick(g, keys...)))
		}
	}
	if g.chance(8) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: pick(g, int32(8080), int32(9100)), ContainerPort: 80}}
	}
}

func (g *generator) spread(key, app string) corev1.TopologySpreadConstraint {
	if g.chance(5) {
		app = pick(g, "a", "b", "c")
	}
	return corev1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: int32(1 + g.rng.IntN(2)), WhenUnsatisfiable: corev1.DoNotSchedule, //nolint:gosec // small
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
}

func (g *generator) near(key string) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, "a", "b", "c")}}}
	switch g.rng.IntN(6) {
	case 0:
		t.NamespaceSelector = &metav1.LabelSelector{}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "y"}}
	case 2:
		t.Namespaces = []string{"default", "other"}
	}
	return t
}
