package solver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// nodePlace is a node of the snapshot with what is left of it.
type nodePlace struct {
	*nodeSite
	index int
	free  resources.Vector
	ports []hostPort
}

func newNodePlace(site *nodeSite, daemons []*corev1.Pod) *nodePlace {
	node := site.node
	p := &nodePlace{nodeSite: site, free: node.Allocatable}
	running := map[string]bool{}
	for _, pods := range [][]*corev1.Pod{node.Pods, node.Promised} {
		for _, pod := range pods {
			p.free = p.free.Sub(resources.PodRequests(pod))
			p.ports = append(p.ports, hostPorts(pod)...)
			for _, owner := range pod.OwnerReferences {
				running[string(owner.UID)] = true
			}
		}
	}
	// Daemons that will come but have not yet: only on nodes that are not settled, since a daemon that
	// is missing from a settled node is not coming.
	if node.Initialized {
		return p
	}
	labels := withSimulated(node.Requirements)
	for _, d := range daemons {
		owned := len(d.OwnerReferences) > 0 && running[string(d.OwnerReferences[0].UID)]
		if !owned && untolerated(d, node.Taints) == nil && compatibleWithAny(labels, nodeTerms(d), openFor(node)) {
			p.free = p.free.Sub(resources.PodRequests(d))
			p.ports = append(p.ports, hostPorts(d)...)
		}
	}
	return p
}

// openFor lets well-known keys be undecided on nodes that are not launched yet.
func openFor(node *cluster.Node) func(string) bool {
	if undecided(node) {
		return requirement.IsWellKnown
	}
	return nil
}

// undecided reports whether the node may still get labels: until it is known which type was launched.
func undecided(node *cluster.Node) bool {
	_, launched := node.Labels[corev1.LabelInstanceTypeStable]
	return node.Node == nil && !launched
}

func (n *nodePlace) passes(f *nodeFilter) bool { return f.passesNode(n.node) }

// admits reports whether the class could run on the node as far as labels and taints go.
func (n *nodePlace) admits(c *class) bool {
	return untolerated(c.pod, n.node.Taints) == nil && compatibleWithAny(n.node.Requirements, c.terms, openFor(n.node))
}

func (n *nodePlace) take(c *class, count int) {
	n.free = n.free.Sub(c.requests.Scale(int64(count)))
	n.ports = append(n.ports, c.ports...)
}

// openClaim is a node that this solve opens.
type openClaim struct {
	id       string
	shape    *shape
	chosen   *candidate
	allowed  bitset // the types that may be launched as far as limits go
	requests resources.Vector
	free     resources.Vector // of the chosen type
	ports    []hostPort       // of the pods
	pods     []*corev1.Pod
}

func (o *openClaim) domain(key string) (string, bool) {
	if key == corev1.LabelHostname {
		return o.id, true
	}
	return o.shape.domain(key)
}

func (o *openClaim) passes(f *nodeFilter) bool { return f.passesShape(o.shape) }

// price of the claim as it was planned, +Inf never: the chosen type can be had.
func (o *openClaim) price(sh *shape) float64 {
	if best := o.chosen.best(sh.kinds); best != nil {
		return best.Price
	}
	return 0
}

// add puts pods of the class on the claim, under the shape that their placement asks for.
func (o *openClaim) add(c *class, sh *shape, pods []*corev1.Pod) {
	o.shape = sh
	amount := c.requests.Scale(int64(len(pods)))
	o.requests, o.free = o.requests.Add(amount), o.free.Sub(amount)
	o.ports = append(o.ports, c.ports...)
	o.pods = append(o.pods, pods...)
}

// step is one decision, in the order in which they were made: pods for a node of the snapshot or a claim.
type step struct {
	class *class
	pods  []*corev1.Pod
	node  *nodePlace
	claim *openClaim
}

func (s *solve) put(c *class, pods []*corev1.Pod, node *nodePlace, claim *openClaim) {
	s.steps = append(s.steps, step{c, pods, node, claim})
	if node != nil {
		s.topology.place(c, len(pods), node)
		return
	}
	s.topology.place(c, len(pods), claim)
}

// freeOf reports whether the host ports leave room for the class.
func freeOf(ports []hostPort, c *class) bool {
	return len(c.ports) == 0 || !portsConflict(ports, c.ports)
}

// onNode puts pods on an existing node; false when none can take any. With whole, only a node that can
// take all pods of the class counts.
func (s *solve) onNode(c *class, w *walk, d domains, whole bool) bool {
	for i := 0; i < len(w.nodes); i++ {
		n := w.nodes[i]
		times := int(c.requests.Times(n.free))
		if times < 1 || !freeOf(n.ports, c) || s.hostClosed(c, n) {
			w.nodes[i] = nil // for this class the node is full for good
			continue
		}
		if whole && times < c.left() || !s.lets(c, d, n, undecided(n.node)) {
			continue
		}
		pods := c.take(min(s.batchOf(c, n), times))
		n.take(c, len(pods))
		s.put(c, pods, n, nil)
		w.nodes = slices.DeleteFunc(w.nodes, func(n *nodePlace) bool { return n == nil })
		return true
	}
	w.nodes = slices.DeleteFunc(w.nodes, func(n *nodePlace) bool { return n == nil })
	return false
}

// onOpenClaim fills what the chosen type of an open claim has left.
func (s *solve) onOpenClaim(c *class, w *walk, d domains, whole bool) bool {
	kept := w.claims[:0]
	placed := false
	for i, o := range w.claims {
		times := int(c.requests.Times(o.free))
		if times < 1 || !freeOf(o.ports, c) || !freeOf(o.chosen.ports, c) || s.hostClosed(c, o) {
			continue
		}
		kept = append(kept, o)
		if whole && times < c.left() {
			continue
		}
		if sh := s.slot(c, o, d); sh != nil {
			pods := c.take(o.flexible(c, sh, min(s.batchOf(c, o), times)))
			narrowed := sh != o.shape
			o.add(c, sh, pods)
			if narrowed {
				s.topology.open(o)
			}
			s.put(c, pods, nil, o)
			kept = append(kept, w.claims[i+1:]...)
			placed = true
			break
		}
	}
	w.claims = kept
	return placed
}

// slot returns the shape under which the claim takes the class, nil when it does not.
func (s *solve) slot(c *class, o *openClaim, d domains) *shape {
	limit := o.price(o.shape) * narrowingSlack
	for _, t := range c.terms {
		sh := o.shape.with(t)
		if sh == nil || !sh.can(o.chosen) || o.price(sh) > limit {
			continue
		}
		for _, v := range s.inDomains(sh, d) {
			if !v.can(o.chosen) || o.price(v) > limit {
				continue
			}
			v = v.pinned(o.chosen, c.keys).settled(o.chosen, c.counted)
			if o.flexible(c, v, 1) == 0 {
				continue
			}
			if s.denied(c, o.chosen, v) || s.adopts(o, v) || !s.lets(c, d, shapePlace{v, o.id}, true) {
				continue
			}
			return v
		}
	}
	return nil
}

// adopts reports whether pods on the claim, which did not count for some rule because the claim lacked a
// custom label, would count under the shape, which has the label: they would tilt the rule after the fact.
func (s *solve) adopts(o *openClaim, sh *shape) bool {
	return sh != o.shape && (s.topology.labels(o.shape, sh) || slices.ContainsFunc(s.topology.spreads, func(g *group) bool {
		return g.filter.ofShape(sh) != never && g.filter.ofShape(o.shape) == never && slices.ContainsFunc(o.pods, g.matches)
	}))
}

// labels reports whether the narrower shape has a custom label that rules between pods look at and that
// the wider one lacks.
func (t *topology) labels(wide, narrow *shape) bool {
	return slices.ContainsFunc(t.custom, func(key string) bool {
		_, had := wide.reqs[key]
		r, has := narrow.reqs[key]
		return !had && has && !r.IsEmpty()
	})
}

// narrowingSlack is how much dearer an open claim may get because a later pod needs, say, one zone.
// Zones differ by little; what costs more than that is better bought apart.
const narrowingSlack = 1.05

// able are the types that could take what is on the claim under the shape.
func (o *openClaim) able(sh *shape) []*candidate {
	var out []*candidate
	for i := range sh.types.all() {
		if c := sh.pool.candidates[i]; o.allowed.has(i) && c.best(sh.kinds) != nil && c.fits(o.requests, o.ports) {
			out = append(out, c)
		}
	}
	return out
}

// shapePlace is a place that a claim could become.
type shapePlace struct {
	*shape
	host string
}

func (p shapePlace) domain(key string) (string, bool) {
	if key == corev1.LabelHostname {
		return p.host, true
	}
	return p.shape.domain(key)
}

func (p shapePlace) passes(f *nodeFilter) bool { return f.passesShape(p.shape) }
