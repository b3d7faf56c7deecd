package brute

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// world is the cluster with everything that can be bought.
type world struct {
	problem  solver.Problem
	total    int
	kinds    []*kind
	nodes    []*node
	machines []*machine
	free     bool // no rules between pods
}

// node is one that exists or was bought in this state.
type node struct {
	name    string
	labels  map[string]string
	taints  []corev1.Taint
	free    map[corev1.ResourceName]int64
	pods    []*corev1.Pod // those that rules between pods see
	daemons []*corev1.Pod // expected, on nodes that are not settled
	closed  bool
	machine *machine // nil: it exists
	claimed *claimed // of a plan; then it has no machine
	added   []count
	selects []bool // by kind
	bears   []bool // its taints, by kind
}

// claimed is what a claim of a plan takes from its pool's limits.
type claimed struct {
	pool string
	most resources.Vector
}

// adopt places what the plan places.
func (w *world) adopt(plan solver.Plan) {
	put := func(pod *corev1.Pod, n *node) {
		for _, k := range w.kinds {
			if i := slices.Index(k.left, pod); i >= 0 {
				k.left = append(slices.Delete(k.left, i, i+1), pod)
				k.put(n)
				return
			}
		}
		panic("the plan has a pod that the problem has not")
	}
	for _, placement := range plan.Existing {
		i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == placement.Node.Key() })
		put(placement.Pod, w.nodes[i])
	}
	for i, claim := range plan.Claims {
		n := w.become(claim)
		n.name = fmt.Sprintf("claim-%d", i)
		w.nodes = append(w.nodes, n)
		for _, pod := range claim.Pods {
			put(pod, n)
		}
	}
}

// become is the node that the claim's cheapest offering would give.
func (w *world) become(claim solver.Claim) *node {
	for _, pool := range w.problem.Pools {
		if pool.NodePool.Name != claim.Pool {
			continue
		}
		it, most := claim.Types[0], resources.Vector{}
		for _, t := range claim.Types {
			most = most.Max(t.Capacity)
		}
		labels := it.Requirements.Labels()
		for key, r := range claim.Requirements {
			if value, ok := r.Any(0); ok && !requirement.IsWellKnown(key) {
				labels[key] = value
			}
		}
		maps.Copy(labels, w.labelsOf(pool.NodePool, labels))
		labels[corev1.LabelTopologyZone], labels[karpv1.LabelCapacityType] = claim.Cheapest.Zone, claim.Cheapest.CapacityType
		taints := pool.NodePool.Spec.Template.Spec.Taints
		n := &node{labels: labels, taints: taints, free: amounts(it.Allocatable().ToList()), daemons: w.daemonsFor(labels, taints), claimed: &claimed{claim.Pool, most}}
		n.reserve()
		w.judge(n)
		return n
	}
	panic("the plan has a claim of a pool that does not exist")
}

// labelsOf adds what every node of the pool has.
func (w *world) labelsOf(pool *karpv1.NodePool, labels map[string]string) map[string]string {
	maps.Copy(labels, pool.Spec.Template.Labels)
	labels[karpv1.LabelNodePool] = pool.Name
	labels["karpenter.k8s.aws/ec2nodeclass"] = "default"
	labels[karpv1.LabelRegistered], labels[karpv1.LabelInitialized] = "true", "true"
	return labels
}

type count struct {
	kind  *kind
	count int
}

func (n *node) note(k *kind, by int) {
	for i := range n.added {
		if n.added[i].kind == k {
			n.added[i].count += by
			return
		}
	}
	n.added = append(n.added, count{k, by})
}

func (n *node) contents() string {
	var parts []string
	for _, c := range n.added {
		if c.count > 0 {
			parts = append(parts, fmt.Sprint(c.kind.index, "*", c.count))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// machine is one way to buy a node: a pool, a type, an offering and the values of custom labels.
type machine struct {
	index, bought int
	text          string
	pool          *karpv1.NodePool
	it            *catalog.InstanceType
	labels        map[string]string
	price         float64
	daemons       []*corev1.Pod
	proto         *node
	takes         []bool // by kind, alone
}

func amounts(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	for name, q := range list {
		if name == corev1.ResourceCPU {
			out[name] = q.MilliValue()
		} else {
			out[name] = q.Value()
		}
	}
	return out
}

func requests(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	out := amounts(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	out[corev1.ResourcePods] = 1
	return out
}

func (m *machine) node(name string) *node {
	n := *m.proto
	n.name, n.free = name, maps.Clone(n.free)
	return &n
}

// judge notes what about the node does not change.
func (w *world) judge(n *node) {
	for _, k := range w.kinds {
		n.selects, n.bears = append(n.selects, selects(k.pod, n.labels)), append(n.bears, tolerates(k.pod, n.taints))
	}
}

// reserve takes the room of the daemons that will come.
func (n *node) reserve() {
	for _, d := range n.daemons {
		for resource, amount := range requests(d) {
			n.free[resource] -= amount
		}
	}
}

func newWorld(p solver.Problem) *world {
	w := &world{problem: p, total: len(p.Pods), kinds: kindsOf(p.Pods)}
	for _, n := range p.Snapshot.Nodes {
		w.nodes = append(w.nodes, w.existing(n))
	}
	for _, pool := range p.Pools {
		for _, it := range pool.Types {
			for _, o := range it.Offerings {
				if o.Available {
					w.sell(pool.NodePool, it, o)
				}
			}
		}
	}
	for _, n := range w.nodes {
		w.judge(n)
	}
	w.dropDominated()
	for i, m := range w.machines {
		m.index = i
		for _, k := range w.kinds {
			takes := m.proto.selects[k.index] && m.proto.bears[k.index] && m.proto.holds(k)
			m.takes = append(m.takes, takes)
			k.hopeful = k.hopeful || takes
		}
	}
	w.free = len(w.keys()) == 0
	for _, k := range w.kinds {
		for _, n := range w.nodes {
			k.hopeful = k.hopeful || !n.closed && n.selects[k.index] && n.bears[k.index]
		}
		k.eligible = map[string][]string{}
		for _, m := range w.machines {
			for key, value := range m.labels {
				if m.takes[k.index] && !slices.Contains(k.eligible[key], value) {
					k.eligible[key] = append(k.eligible[key], value)
				}
			}
		}
	}
	return w
}

// keys are the topology keys that rules between pods name.
func (w *world) keys() []string {
	var keys []string
	add := func(pod *corev1.Pod) {
		for _, c := range pod.Spec.TopologySpreadConstraints {
			keys = append(keys, c.TopologyKey)
		}
		if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
			for _, t := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				keys = append(keys, t.TopologyKey)
			}
		}
		for _, t := range repelling(pod) {
			keys = append(keys, t.TopologyKey)
		}
	}
	for _, k := range w.kinds {
		add(k.pod)
	}
	for _, n := range w.nodes {
		for _, pod := range n.pods {
			add(pod)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// dropDominated leaves out machines that another one beats: as good for every pod and in every domain,
// no smaller, no dearer, and no heavier on the limits.
func (w *world) dropDominated() {
	keys := w.keys()
	alike := func(a, b *machine) bool {
		return a.pool == b.pool && slices.Equal(a.proto.selects, b.proto.selects) && slices.Equal(a.proto.bears, b.proto.bears) &&
			!slices.ContainsFunc(keys, func(key string) bool {
				x, has := a.labels[key]
				y, also := b.labels[key]
				return has != also || x != y
			})
	}
	roomier := func(a, b map[corev1.ResourceName]int64) bool {
		for name, amount := range b {
			if a[name] < amount {
				return false
			}
		}
		return true
	}
	beats := func(a, b *machine) bool {
		limited := false
		for name := range a.pool.Spec.Limits {
			limited = limited || a.it.Capacity.Get(name) > b.it.Capacity.Get(name)
		}
		return alike(a, b) && !limited && a.price <= b.price && roomier(a.proto.free, b.proto.free)
	}
	slices.SortStableFunc(w.machines, func(a, b *machine) int { return cmp.Compare(a.price, b.price) })
	var kept []*machine
	for _, m := range w.machines {
		if !slices.ContainsFunc(kept, func(k *machine) bool { return beats(k, m) }) {
			kept = append(kept, m)
		}
	}
	w.machines = kept
}

func (w *world) existing(from *cluster.Node) *node {
	n := &node{
		name: from.Key(), labels: maps.Clone(from.Labels), taints: from.Taints, free: amounts(from.Allocatable.ToList()),
		pods: slices.Concat(from.Pods, from.Promised), closed: from.Deleting,
	}
	owners := map[string]bool{}
	for _, pod := range n.pods {
		for resource, amount := range requests(pod) {
			n.free[resource] -= amount
		}
		for _, o := range pod.OwnerReferences {
			owners[string(o.UID)] = true
		}
	}
	if !from.Initialized {
		labels := maps.Clone(n.labels)
		labels[karpv1.LabelRegistered], labels[karpv1.LabelInitialized] = "true", "true"
		for _, d := range w.daemonsFor(labels, n.taints) {
			if !owners[string(d.OwnerReferences[0].UID)] {
				n.daemons = append(n.daemons, d)
			}
		}
		n.reserve()
	}
	return n
}

func (w *world) daemonsFor(labels map[string]string, taints []corev1.Taint) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(w.problem.Snapshot.Daemons), func(d *corev1.Pod) bool {
		return !selects(d, labels) || !tolerates(d, taints)
	})
}

// sell adds the machines of one offering: one for each choice of custom labels that the pool leaves open.
func (w *world) sell(pool *karpv1.NodePool, it *catalog.InstanceType, o catalog.Offering) {
	labels := it.Requirements.Labels()
	maps.Copy(labels, o.Requirements.Labels())
	labels = w.labelsOf(pool, labels)
	choices := []map[string]string{labels}
	open := map[string]bool{}
	for _, r := range pool.Spec.Template.Spec.Requirements {
		if _, known := labels[r.Key]; !known && !requirement.IsWellKnown(r.Key) && r.Operator != corev1.NodeSelectorOpDoesNotExist && !open[r.Key] {
			open[r.Key] = true
			var next []map[string]string
			for _, c := range choices {
				for _, value := range []string{"a", "b", "r1", "r2", "r3", "other"} {
					choice := maps.Clone(c)
					choice[r.Key] = value
					next = append(next, choice)
				}
			}
			choices = next
		}
	}
	for _, c := range choices {
		if !slices.ContainsFunc(pool.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return !meets(r, c) }) {
			m := &machine{
				pool: pool, it: it, labels: c, price: o.Price + w.problem.NodeCost, daemons: w.daemonsFor(c, pool.Spec.Template.Spec.Taints),
				text: strings.Join([]string{pool.Name, it.Name, o.Zone, o.CapacityType, c["team"], c["rack"]}, "/"),
			}
			m.proto = &node{labels: m.labels, taints: pool.Spec.Template.Spec.Taints, free: amounts(it.Allocatable().ToList()), daemons: m.daemons, machine: m}
			m.proto.reserve()
			w.judge(m.proto)
			w.machines = append(w.machines, m)
		}
	}
}

// meets reports whether the labels satisfy a pool's requirement.
func meets(r karpv1.NodeSelectorRequirementWithMinValues, labels map[string]string) bool {
	op := r.Operator
	values := slices.Clone(r.Values)
	number := func(by int) {
		var n int
		if _, err := fmt.Sscan(values[0], &n); err != nil {
			panic(err) // a generated pool
		}
		values[0] = fmt.Sprint(n + by)
	}
	switch op {
	case karpv1.OperatorGte:
		op = corev1.NodeSelectorOpGt
		number(-1)
	case karpv1.OperatorLte:
		op = corev1.NodeSelectorOpLt
		number(1)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: r.Key, Operator: op, Values: values}}},
		}},
	}}}}
	return selects(pod, labels)
}

// selects reports whether the pod's nodeSelector and required node affinity accept the labels.
func selects(pod *corev1.Pod, labels map[string]string) bool {
	n := &corev1.Node{}
	n.Labels = labels
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
	return err == nil && ok
}

// buyable reports whether limits leave room for one more such machine.
func (w *world) buyable(m *machine) bool {
	limits := resources.FromList(corev1.ResourceList(m.pool.Spec.Limits))
	used := w.problem.Snapshot.PoolUsage[m.pool.Name]
	for _, n := range w.nodes {
		if n.machine != nil && n.machine.pool == m.pool {
			used = used.Add(n.machine.it.Capacity).Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
		}
		if n.claimed != nil && n.claimed.pool == m.pool.Name {
			used = used.Add(n.claimed.most).Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
		}
	}
	used = used.Add(m.it.Capacity).Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
	for resource := range m.pool.Spec.Limits {
		if used.Get(resource) > limits.Get(resource) {
			return false
		}
	}
	return true
}
