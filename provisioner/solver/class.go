package solver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// class is a set of pods that are equal in everything that scheduling looks at.
type class struct {
	key      string
	pods     []*corev1.Pod // by creation time, then UID; those not placed yet from next on
	next     int
	pod      *corev1.Pod // the first one stands for all
	requests resources.Vector
	// own are the alternatives of nodeSelector and required node affinity; terms are those together with
	// what the volumes demand.
	own, terms []term
	// preferred are the preferred node affinity terms, heaviest first.
	preferred []term
	// wishes are its preferences about topology.
	wishes []wish
	ports  []hostPort
	rules  []*rule // required spread and pod affinity of the pods themselves
	// counted are the groups that count the pods of the class; repels are its own anti-affinity terms,
	// repelledBy those that keep it away, selfRepelled says that they have one in common.
	counted            []*group
	repels, repelledBy []*repulsion
	selfRepelled       bool
	keys               []string // topology keys whose domain must be decided when a pod is placed
	// unitPrice is the least share of a machine's price that one pod of the class takes anywhere.
	unitPrice float64
	order     int // in planning order
	// mostPerNode is how many of its pods one host may have.
	mostPerNode int
}

func (c *class) left() int { return len(c.pods) - c.next }

// hostPort is a port that only one pod of a node can have.
type hostPort struct {
	port     int32
	protocol corev1.Protocol
	ip       string
}

func (p hostPort) conflicts(o hostPort) bool {
	return p.port == o.port && p.protocol == o.protocol && (p.ip == o.ip || p.ip == anyIP || o.ip == anyIP)
}

const anyIP = "0.0.0.0"

func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range list {
			for _, p := range container.Ports {
				if p.HostPort != 0 {
					ports = append(ports, hostPort{p.HostPort, cmp.Or(p.Protocol, corev1.ProtocolTCP), cmp.Or(p.HostIP, anyIP)})
				}
			}
		}
	}
	return ports
}

func portsConflict(a, b []hostPort) bool {
	return slices.ContainsFunc(a, func(p hostPort) bool { return slices.ContainsFunc(b, p.conflicts) })
}

// classify groups the pods; classes come in planning order: higher priority first, then larger pods.
func classify(p Problem) []*class {
	byKey := map[string]*class{}
	for _, pod := range p.Pods {
		key := classKey(pod, p.VolumeRequirements[pod.UID], p.Attachments[pod.UID])
		c := byKey[key]
		if c == nil {
			c = &class{key: key, pod: pod}
			byKey[key] = c
		}
		c.pods = append(c.pods, pod)
	}
	classes := make([]*class, 0, len(byKey))
	for _, c := range byKey {
		slices.SortFunc(c.pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID),
				strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		c.pod = c.pods[0]
		c.requests, c.ports = resources.PodRequests(c.pod).Add(p.Attachments[c.pod.UID]), hostPorts(c.pod)
		c.own, c.preferred = nodeTerms(c.pod), preferredTerms(c.pod)
		c.terms = withVolumes(c.own, p.VolumeRequirements[c.pod.UID])
		classes = append(classes, c)
	}
	slices.SortFunc(classes, func(a, b *class) int {
		return cmp.Or(
			cmp.Compare(priorityOf(b.pod), priorityOf(a.pod)),
			cmp.Compare(b.requests.MilliCPU, a.requests.MilliCPU),
			cmp.Compare(b.requests.Memory, a.requests.Memory),
			a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
			strings.Compare(a.pod.Namespace, b.pod.Namespace), strings.Compare(a.pod.Name, b.pod.Name), strings.Compare(a.key, b.key))
	})
	return classes
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// classKey hashes what scheduling looks at. Names and owners do not matter.
func classKey(pod *corev1.Pod, volumes []requirement.Set, attaches resources.Vector) string {
	spec := &pod.Spec
	b := make([]byte, 0, 512)
	text := func(s string) { b = append(strconv.AppendInt(b, int64(len(s)), 10), ':'); b = append(b, s...) }
	number := func(n int64) { b = append(strconv.AppendInt(b, n, 10), ',') }
	pairs := func(m map[string]string) {
		number(int64(len(m)))
		for _, key := range slices.Sorted(maps.Keys(m)) {
			text(key)
			text(m[key])
		}
	}
	text(pod.Namespace)
	text(spec.SchedulerName)
	pairs(pod.Labels)
	pairs(spec.NodeSelector)
	number(int64(priorityOf(pod)))
	r := resources.PodRequests(pod).Add(attaches)
	for _, n := range [...]int64{r.MilliCPU, r.Memory, r.EphemeralStorage, r.Pods, int64(len(r.Extended)), int64(len(spec.Tolerations))} {
		number(n)
	}
	for _, a := range r.Extended {
		text(string(a.Name))
		number(a.Value)
	}
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		for _, part := range [...]string{t.Key, string(t.Operator), t.Value, string(t.Effect)} {
			text(part)
		}
		if t.TolerationSeconds != nil {
			number(*t.TolerationSeconds)
		}
	}
	for _, set := range volumes {
		text(set.Signature())
	}
	// The rest is rare, or too rich to be written out here.
	if spec.Affinity != nil || len(spec.TopologySpreadConstraints)+len(spec.ResourceClaims) > 0 || hasPorts(pod) || hasPlacedVolumes(pod) {
		raw, err := json.Marshal(struct {
			Affinity *corev1.Affinity
			Spread   []corev1.TopologySpreadConstraint
			Ports    []hostPortKey
			Volumes  []corev1.Volume
			Claims   []corev1.PodResourceClaim
		}{spec.Affinity, spec.TopologySpreadConstraints, portKeys(pod), placedVolumes(pod), spec.ResourceClaims})
		if err != nil {
			return string(pod.UID) // a class of its own is always right
		}
		b = append(b, raw...)
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

func hasPorts(pod *corev1.Pod) bool {
	has := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, has) || slices.ContainsFunc(pod.Spec.Containers, has)
}

func hasPlacedVolumes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, isPlaced)
}

// isPlaced reports whether a volume may tie the pod to places.
func isPlaced(v corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
}

type hostPortKey struct {
	Port     int32
	Protocol corev1.Protocol
	IP       string
}

func portKeys(pod *corev1.Pod) []hostPortKey {
	var keys []hostPortKey
	for _, p := range hostPorts(pod) {
		keys = append(keys, hostPortKey{p.port, p.protocol, p.ip})
	}
	return keys
}

// placedVolumes are the volumes that tie a pod to places; the others differ between equal pods (their
// token mounts have random names).
func placedVolumes(pod *corev1.Pod) []corev1.Volume {
	return slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool { return !isPlaced(v) })
}

// nodeTerms returns the alternatives of nodeSelector and required node affinity. Terms of one pod are
// ORed; a term with matchFields matches no node that does not exist, so it is left out.
func nodeTerms(pod *corev1.Pod) []term {
	base := requirement.FromLabels(pod.Spec.NodeSelector)
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return []term{newTerm(base)}
	}
	var terms []term
	for _, t := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(t.MatchFields) > 0 || len(t.MatchExpressions) == 0 {
			continue // an empty term matches nothing
		}
		set := base.Clone()
		if set == nil {
			set = requirement.Set{}
		}
		set.Merge(requirement.FromNodeSelector(t.MatchExpressions))
		if !contradicts(base, t.MatchExpressions, set) {
			terms = append(terms, newTerm(set))
		}
	}
	return terms
}

// withVolumes narrows the pod's own terms by the alternatives of its volumes; without any they stay.
func withVolumes(own []term, volumes []requirement.Set) []term {
	if len(volumes) == 0 {
		return own
	}
	sets := make([]requirement.Set, len(own))
	for i, t := range own {
		sets[i] = t.set
	}
	var terms []term
	for _, set := range requirement.Product(sets, volumes) {
		terms = append(terms, newTerm(set))
	}
	return terms
}

// contradicts reports whether the conjunction leaves nothing for a key that must be present. The algebra
// alone cannot tell that from a key that must be absent.
func contradicts(base requirement.Set, rs []corev1.NodeSelectorRequirement, merged requirement.Set) bool {
	return slices.ContainsFunc(rs, func(r corev1.NodeSelectorRequirement) bool {
		demand := requirement.New(r.Key, r.Operator, r.Values...)
		_, selected := base[demand.Key()]
		return merged[demand.Key()].IsEmpty() && (selected || !demand.AllowsAbsence())
	})
}

func preferredTerms(pod *corev1.Pod) []term {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	weighted := slices.Clone(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	slices.SortStableFunc(weighted, func(a, b corev1.PreferredSchedulingTerm) int { return cmp.Compare(b.Weight, a.Weight) })
	var terms []term
	for _, w := range weighted {
		if len(w.Preference.MatchFields) == 0 {
			terms = append(terms, newTerm(requirement.FromNodeSelector(w.Preference.MatchExpressions)))
		}
	}
	return terms
}
