package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

const (
	schedulerName = "berth"
	className     = "default"
	image         = "registry.k8s.io/pause:3.10"
)

// object is a manifest under construction; JSON is YAML.
type object = map[string]any

func manifest(o object) (string, error) {
	raw, err := json.Marshal(o)
	return string(raw), err
}

// classManifest selects exactly the subnets of the account: it has no others.
func classManifest() object {
	tags := []object{{"tags": object{"karpenter.sh/discovery": allinone.ClusterName}}}
	return object{
		"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": object{"name": className},
		"spec": object{
			"amiSelectorTerms": []object{{"alias": "al2023@latest"}}, "role": "KarpenterNodeRole-" + allinone.ClusterName,
			"subnetSelectorTerms": tags, "securityGroupSelectorTerms": tags,
		},
	}
}

// poolManifest is the NodePool as the case tells it; what it doesn't tell is left to the API's defaults.
func poolManifest(p pool) object {
	requirements := []object{}
	for _, r := range p.Requirements {
		out := object{"key": r.Key, "operator": r.Operator}
		if r.Values != nil {
			out["values"] = values(r)
		}
		if r.MinValues != nil {
			out["minValues"] = *r.MinValues
		}
		requirements = append(requirements, out)
	}
	node := object{
		"nodeClassRef": object{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": className},
		"requirements": requirements,
	}
	optional(node, "taints", p.Taints, len(p.Taints) > 0)
	optional(node, "expireAfter", p.ExpireAfter, p.ExpireAfter != "")
	optional(node, "terminationGracePeriod", p.TerminationGracePeriod, p.TerminationGracePeriod != "")
	template := object{"spec": node}
	optional(template, "metadata", object{"labels": p.Labels}, len(p.Labels) > 0)
	spec := object{"template": template}
	optional(spec, "limits", p.Limits, len(p.Limits) > 0)
	optional(spec, "disruption", p.Disruption, len(p.Disruption) > 0)
	optional(spec, "weight", p.Weight, p.Weight != nil)
	return object{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": object{"name": p.Name}, "spec": spec}
}

func optional(o object, key string, value any, set bool) {
	if set {
		o[key] = value
	}
}

func values(r requirement) []string {
	out := slices.Clone(r.Values)
	if r.Key == corev1.LabelTopologyZone {
		for i := range out {
			out[i] = toZone(out[i])
		}
	}
	return out
}

// podSpecOf turns an entry into what a user would have written for this scheduler.
func podSpecOf(p podSpec) corev1.PodSpec {
	spec := corev1.PodSpec{
		SchedulerName: schedulerName, TerminationGracePeriodSeconds: new(int64), Tolerations: p.Tolerations,
		RestartPolicy: corev1.RestartPolicy(p.RestartPolicy), NodeSelector: map[string]string{},
		Containers: []corev1.Container{{Name: "app", Image: image, Resources: corev1.ResourceRequirements{Requests: p.Requests, Limits: whole(p.Requests)}}},
	}
	for key, value := range p.NodeSelector {
		if key == corev1.LabelTopologyZone {
			value = toZone(value)
		}
		spec.NodeSelector[key] = value
	}
	for _, port := range p.HostPorts {
		spec.Containers[0].Ports = append(spec.Containers[0].Ports, corev1.ContainerPort{
			HostPort: port.Port, ContainerPort: port.Port, Protocol: corev1.Protocol(port.Protocol),
		})
	}
	for _, s := range p.TopologySpread {
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			TopologyKey: s.Key, MaxSkew: s.MaxSkew, MinDomains: s.MinDomains, MatchLabelKeys: s.MatchLabelKeys,
			WhenUnsatisfiable: corev1.UnsatisfiableConstraintAction(s.WhenUnsatisfiable), LabelSelector: selector(s.MatchLabels),
		})
	}
	spec.Affinity = affinityOf(p)
	return spec
}

// whole are the limits that the API demands: extended resources must be limited to their request.
func whole(requests corev1.ResourceList) corev1.ResourceList {
	limits := corev1.ResourceList{}
	for name, amount := range requests {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
			limits[name] = amount
		}
	}
	return limits
}

func selector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

func affinityOf(p podSpec) *corev1.Affinity {
	out := &corev1.Affinity{}
	if len(p.NodeAffinityTerms) > 0 {
		required := &corev1.NodeSelector{}
		for _, term := range p.NodeAffinityTerms {
			var expressions []corev1.NodeSelectorRequirement
			for _, r := range term {
				expressions = append(expressions, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOperator(r.Operator), Values: values(r)})
			}
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: expressions})
		}
		out.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	}
	if len(p.PodAntiAffinity) > 0 {
		out.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(p.PodAntiAffinity)}
	}
	if len(p.PodAffinity) > 0 {
		out.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(p.PodAffinity)}
	}
	return out
}

func terms(list []affinity) []corev1.PodAffinityTerm {
	var out []corev1.PodAffinityTerm
	for _, a := range list {
		out = append(out, corev1.PodAffinityTerm{TopologyKey: a.Key, LabelSelector: selector(a.MatchLabels)})
	}
	return out
}

func podOf(p podSpec, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, Labels: p.Labels, Annotations: p.Annotations},
		Spec:       podSpecOf(p),
	}
}

func daemonSetOf(p podSpec) *appsv1.DaemonSet {
	labels := map[string]string{"daemon": p.Name}
	maps.Copy(labels, p.Labels)
	p.RestartPolicy = ""
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector: selector(map[string]string{"daemon": p.Name}),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: p.Annotations}, Spec: podSpecOf(p)},
		},
	}
}

// seedOf is a pod that only a node like the given one can run: the way to get that node. Two seeds never
// share a node.
func seedOf(n node) *corev1.Pod {
	p := podSpec{
		Labels:          map[string]string{"seed": "true"},
		NodeSelector:    map[string]string{karpv1.LabelNodePool: n.NodePool, corev1.LabelInstanceTypeStable: n.InstanceType},
		PodAntiAffinity: []affinity{{Required: true, Key: corev1.LabelHostname, MatchLabels: map[string]string{"seed": "true"}}},
		Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	if n.Zone != "" {
		p.NodeSelector[corev1.LabelTopologyZone] = n.Zone
	}
	if n.CapacityType != "" {
		p.NodeSelector[karpv1.LabelCapacityType] = n.CapacityType
	}
	return podOf(p, fmt.Sprintf("seed-%s", n.Name))
}
