package gen

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/resources"
)

// widenPool adds demands of several values, labels that must be absent, and more taints.
func (g *generator) widenPool(np *karpv1.NodePool) {
	template := &np.Spec.Template
	defines := func(key string) bool {
		return slices.ContainsFunc(template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return r.Key == key })
	}
	need := func(key string, least int, op corev1.NodeSelectorOperator, values ...string) {
		r := karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
		if least > 0 {
			r.MinValues = &least
		}
		template.Spec.Requirements = append(template.Spec.Requirements, r)
	}
	if g.chance(4) {
		need(pick(g, "karpenter.k8s.aws/instance-family", corev1.LabelInstanceTypeStable), 2+g.rng.IntN(2), corev1.NodeSelectorOpExists)
	}
	if g.chance(8) {
		need(corev1.LabelArchStable, 0, corev1.NodeSelectorOpIn, pick(g, "amd64", "arm64"))
	}
	if g.chance(6) {
		need("karpenter.k8s.aws/instance-gpu-count", 0, corev1.NodeSelectorOpDoesNotExist)
	}
	if g.chance(5) {
		need("karpenter.k8s.aws/instance-cpu", 0, pick(g, karpv1.OperatorGte, corev1.NodeSelectorOpGt), pick(g, "1", "2"))
		need("karpenter.k8s.aws/instance-cpu", 0, pick(g, karpv1.OperatorLte, corev1.NodeSelectorOpLt), pick(g, "8", "16"))
	}
	if g.chance(2) {
		need("rack", 0, corev1.NodeSelectorOpIn, []string{"r1", "r2", "r3"}[:1+g.rng.IntN(3)]...)
	}
	if g.chance(6) && !defines("team") {
		need("team", 0, corev1.NodeSelectorOpNotIn, "b")
	}
	if g.chance(6) {
		template.Spec.Taints = append(template.Spec.Taints, corev1.Taint{Key: "dedicated", Value: pick(g, "x", "y"), Effect: pick(g, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule)})
	}
	if g.chance(8) {
		np.Spec.Limits = karpv1.Limits(quantities("cpu", pick(g, "16", "64"), "nodes", pick(g, "2", "5"), GPU, "1"))
	}
}

// widenPod adds the rarer rules: what counts as a request beside the containers', tolerations of every
// form, wishes, and relations by any label.
func (g *generator) widenPod(p *corev1.Pod) {
	g.widenRequests(p)
	switch g.rng.IntN(8) {
	case 0:
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	case 1:
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "x"})
	case 2:
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if g.chance(12) {
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector["rack"] = pick(g, "r1", "r2")
	}
	if g.chance(10) {
		node := affinity(p)
		if node.NodeAffinity == nil {
			node.NodeAffinity = &corev1.NodeAffinity{}
		}
		terms := make([]corev1.NodeSelectorTerm, 1+g.rng.IntN(3))
		for i := range terms {
			for range 1 + g.rng.IntN(3) {
				terms[i].MatchExpressions = append(terms[i].MatchExpressions, g.wideExpression())
			}
		}
		node.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
	if !g.options.Plain {
		g.widenRelations(p)
	}
	mergeKeys(p)
}

func (g *generator) widenRequests(p *corev1.Pod) {
	requests := func(pairs ...string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: quantities(pairs...)}
	}
	if g.chance(4) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init", Resources: requests("cpu", pick(g, "100m", "2", "3"), "memory", pick(g, "64Mi", "3Gi"))})
	}
	if g.chance(4) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: requests("cpu", pick(g, "50m", "500m"), "memory", "64Mi"),
		})
		if g.chance(2) { // runs beside the sidecar
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "late", Resources: requests("cpu", pick(g, "1", "2"))})
		}
	}
	if g.chance(5) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "second", Resources: requests("cpu", "200m", "ephemeral-storage", pick(g, "1Gi", "9Gi"))})
	}
	if g.chance(6) {
		p.Spec.Overhead = quantities("cpu", "250m", "memory", "120Mi")
	}
	if cpu := p.Spec.Containers[0].Resources.Requests.Cpu(); g.chance(8) && cpu.Value() <= 3 { // must cover the containers'
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", pick(g, "4", "6"), "memory", "8Gi")}
	}
	if g.chance(12) {
		p.Spec.Containers[0].Resources.Requests = nil
	}
}

func (g *generator) wideExpression() corev1.NodeSelectorRequirement {
	e := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	return pick(g, g.expression(),
		e("rack", corev1.NodeSelectorOpIn, "r1", "r3"),
		e("rack", corev1.NodeSelectorOpNotIn, "r2"),
		e("rack", corev1.NodeSelectorOpExists),
		e("rack", corev1.NodeSelectorOpDoesNotExist),
		e("team", corev1.NodeSelectorOpIn, "a", "b"),
		e("team", corev1.NodeSelectorOpDoesNotExist),
		e("karpenter.k8s.aws/instance-gpu-count", corev1.NodeSelectorOpExists),
		e(karpv1.LabelCapacityType, corev1.NodeSelectorOpNotIn, karpv1.CapacityTypeSpot),
		e(karpv1.LabelNodePool, corev1.NodeSelectorOpIn, "pool-0", "pool-1"),
		e(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, "n-0"),
		e(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux"),
		e(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpNotIn, "c.2", "m.4"),
	)
}

// topologyKeys are what pods can be spread by and kept together or apart by.
var topologyKeys = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelHostname, corev1.LabelHostname,
	karpv1.LabelCapacityType, "rack", "team", corev1.LabelArchStable, corev1.LabelInstanceTypeStable,
}

func (g *generator) widenRelations(p *corev1.Pod) {
	policies := []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore}
	if g.chance(7) {
		c := g.spread(pick(g, topologyKeys...), p.Labels["app"])
		c.MaxSkew = int32(1 + g.rng.IntN(3)) //nolint:gosec // small
		taken := func(x corev1.TopologySpreadConstraint) bool {
			return x.TopologyKey == c.TopologyKey && x.WhenUnsatisfiable == c.WhenUnsatisfiable
		}
		if g.chance(4) {
			c.WhenUnsatisfiable = corev1.ScheduleAnyway
		}
		if g.chance(3) {
			c.MatchLabelKeys = []string{"rev"}
		}
		if g.chance(3) && c.WhenUnsatisfiable == corev1.DoNotSchedule {
			c.MinDomains = new(int32(1 + g.rng.IntN(4)))
		}
		if g.chance(2) {
			c.NodeTaintsPolicy = new(pick(g, policies...))
		}
		if g.chance(2) {
			c.NodeAffinityPolicy = new(pick(g, policies...))
		}
		if g.chance(4) {
			c.LabelSelector = g.selector()
		}
		if !slices.ContainsFunc(p.Spec.TopologySpreadConstraints, taken) {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
	}
	if g.chance(10) {
		if affinity(p).PodAntiAffinity == nil {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		terms := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, g.wideTerm())
	}
	if g.chance(12) {
		if affinity(p).PodAffinity == nil {
			p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
		}
		terms := &p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, g.wideTerm())
	}
	if g.chance(8) {
		wish := []corev1.WeightedPodAffinityTerm{{Weight: 10, PodAffinityTerm: g.wideTerm()}}
		if affinity(p).PodAntiAffinity == nil {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = wish
	}
	if g.chance(10) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{
			HostPort: pick(g, int32(8080), int32(9100)), ContainerPort: 80, Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP), HostIP: pick(g, "", "10.0.0.1", "127.0.0.1"),
		}}
	}
}

func (g *generator) selector() *metav1.LabelSelector {
	return pick(g,
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"c"}}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rev", Operator: metav1.LabelSelectorOpExists}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "batch", Operator: metav1.LabelSelectorOpDoesNotExist}}},
		&metav1.LabelSelector{}, // all pods
		nil,                     // none
	)
}

func (g *generator) wideTerm() corev1.PodAffinityTerm {
	t := g.near(pick(g, topologyKeys...))
	switch g.rng.IntN(6) {
	case 0:
		t.MatchLabelKeys = []string{"rev"}
	case 1:
		t.MismatchLabelKeys = []string{"rev"}
	case 2:
		if n := t.NamespaceSelector; n == nil || len(n.MatchLabels) > 0 { // else it could match daemons, which the algebra does not count
			t.LabelSelector = g.selector()
		}
	case 3:
		t.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"y"}}}}
	}
	return t
}

// mergeKeys does what the API server does when a pod is created: label keys end up in the selectors.
func mergeKeys(p *corev1.Pod) {
	merge := func(s *metav1.LabelSelector, op metav1.LabelSelectorOperator, keys []string) {
		for _, key := range keys {
			if value, ok := p.Labels[key]; ok && s != nil {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
			}
		}
	}
	term := func(t *corev1.PodAffinityTerm) {
		if t.LabelSelector == nil { // the API server refuses keys without a selector
			t.MatchLabelKeys, t.MismatchLabelKeys = nil, nil
		}
		merge(t.LabelSelector, metav1.LabelSelectorOpIn, t.MatchLabelKeys)
		merge(t.LabelSelector, metav1.LabelSelectorOpNotIn, t.MismatchLabelKeys)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.LabelSelector == nil {
			c.MatchLabelKeys = nil
		}
		merge(c.LabelSelector, metav1.LabelSelectorOpIn, c.MatchLabelKeys)
	}
	if p.Spec.Affinity == nil {
		return
	}
	if a := p.Spec.Affinity.PodAffinity; a != nil {
		for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			term(&a.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
	}
	if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
		for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			term(&a.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
		for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			term(&a.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
		}
	}
}

// widenDaemon gives the daemon init containers and alternatives.
func (g *generator) widenDaemon(d *corev1.Pod) {
	if g.chance(3) {
		d.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "300m")}}}
	}
	if g.chance(3) {
		affinity(d).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{g.expression()}}, {MatchExpressions: []corev1.NodeSelectorRequirement{g.expression()}},
		}}}
	}
}

// widenNode adds custom labels, more taints, and the state between registration and initialization, in
// which startup taints are there and do not count.
func (g *generator) widenNode(n *cluster.Node) {
	if g.chance(3) {
		n.Labels["rack"] = pick(g, "r1", "r2", "r3")
	}
	if g.chance(4) {
		n.Labels["team"] = pick(g, "a", "b")
	}
	if g.chance(6) {
		n.Taints = append(n.Taints, corev1.Taint{Key: "dedicated", Value: "x", Effect: pick(g, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)})
	}
	if n.Node == nil {
		return
	}
	n.Node.Spec.Taints = n.Taints
	if n.Pool != "" && g.chance(4) {
		n.Initialized, n.Ready = false, false
		n.Node.Spec.Taints = append(slices.Clone(n.Taints), corev1.Taint{Key: "cni", Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	}
}

// leave makes pods on the node end, so that they take room and no longer count for spreads.
func (g *generator) leave(n *cluster.Node) {
	for _, p := range n.Pods {
		if g.chance(5) && len(p.OwnerReferences) == 0 {
			p.DeletionTimestamp = new(metav1.Unix(0, 0))
		}
	}
	if g.chance(6) && n.Node != nil { // room that nobody has left
		n.Allocatable = n.Allocatable.Sub(resources.Vector{MilliCPU: min(n.Allocatable.MilliCPU, 500)})
		n.Node.Status.Allocatable = n.Allocatable.ToList()
	}
}
