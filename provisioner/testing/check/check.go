package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Plan returns what is wrong with the plan, one sentence for each fault; nothing when it is right.
func Plan(p solver.Problem, plan solver.Plan) []string {
	c := &checker{problem: p, plan: plan, pools: map[string]*karpv1.NodePool{}}
	for _, pool := range p.Pools {
		c.pools[pool.NodePool.Name] = pool.NodePool
	}
	c.eachPodOnce()
	c.existingNodes()
	for i := range plan.Claims {
		c.claim(i, &plan.Claims[i])
	}
	c.limits()
	c.topology()
	return c.faults
}

type checker struct {
	problem solver.Problem
	plan    solver.Plan
	pools   map[string]*karpv1.NodePool
	sites   []site
	faults  []string
}

// site is a node, or what a claim may become, with the pods that will be on it.
type site struct {
	name string
	// labels are all the label sets that the node may have.
	labels []map[string]string
	pods   []*corev1.Pod // there already
	added  []*corev1.Pod // by the plan
	fresh  bool          // a claim of the plan
	known  map[string][]string
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *checker) eachPodOnce() {
	seen := map[*corev1.Pod]int{}
	for _, placement := range c.plan.Existing {
		seen[placement.Pod]++
	}
	for _, claim := range c.plan.Claims {
		for _, pod := range claim.Pods {
			seen[pod]++
		}
	}
	for _, unfit := range c.plan.Unfit {
		seen[unfit.Pod]++
		if len(unfit.Reasons) == 0 {
			c.fault("pod %s is unfit without a reason", unfit.Pod.Name)
		}
	}
	for _, pod := range c.problem.Pods {
		if seen[pod] != 1 {
			c.fault("pod %s appears %d times", pod.Name, seen[pod])
		}
		delete(seen, pod)
	}
	if len(seen) > 0 {
		c.fault("%d pods of the plan were not asked for", len(seen))
	}
}

func (c *checker) existingNodes() {
	added := map[*cluster.Node][]*corev1.Pod{}
	for _, placement := range c.plan.Existing {
		added[placement.Node] = append(added[placement.Node], placement.Pod)
	}
	for _, n := range c.problem.Snapshot.Nodes {
		there := slices.Concat(n.Pods, n.Promised)
		c.sites = append(c.sites, site{name: n.Key(), labels: []map[string]string{hosted(n.Labels, n.Key())}, pods: there, added: added[n]})
		pods := added[n]
		delete(added, n)
		if len(pods) == 0 {
			continue
		}
		if n.Deleting {
			c.fault("node %s is being deleted and gets pods", n.Key())
		}
		c.holds("node "+n.Key(), hosted(n.Labels, n.Key()), n.Taints, n.Allocatable, there, pods)
	}
	if len(added) > 0 {
		c.fault("pods are placed on %d nodes that do not exist", len(added))
	}
}

func hosted(labels map[string]string, name string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	if _, ok := out[corev1.LabelHostname]; !ok {
		out[corev1.LabelHostname] = name
	}
	return out
}

// holds checks labels, taints, resources and ports of the pods that a node gets.
func (c *checker) holds(where string, labels map[string]string, taints []corev1.Taint, allocatable resources.Vector, there, added []*corev1.Pod) {
	node := &corev1.Node{}
	node.Name, node.Labels = where, labels
	used := resources.Vector{}
	for _, pod := range there {
		used = used.Add(resources.PodRequests(pod))
	}
	taken := portsOf(there)
	for _, pod := range added {
		used = used.Add(resources.PodRequests(pod))
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
			c.fault("%s does not match the selector or affinity of %s (%v): %v", where, pod.Name, err, labels)
		}
		if t := untolerated(pod, taints); t != nil {
			c.fault("%s has taint %s, which %s does not tolerate", where, t.ToString(), pod.Name)
		}
		for _, port := range portsOf([]*corev1.Pod{pod}) {
			if slices.ContainsFunc(taken, port.clashes) {
				c.fault("%s: host port %d of %s is taken", where, port.number, pod.Name)
			}
			taken = append(taken, port)
		}
	}
	for _, pod := range added {
		if over := resources.PodRequests(pod); !used.Fits(allocatable) && slices.ContainsFunc(used.Exceeds(allocatable), func(n corev1.ResourceName) bool { return over.Get(n) > 0 }) {
			c.fault("%s: %s exceeds the allocatable %s", where, used, allocatable)
			return
		}
	}
}

func untolerated(pod *corev1.Pod, taints []corev1.Taint) *corev1.Taint {
	for i, t := range taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(x corev1.Toleration) bool { return x.ToleratesTaint(klog.Background(), &taints[i], false) }) {
			return &taints[i]
		}
	}
	return nil
}

type port struct {
	number   int32
	protocol corev1.Protocol
	ip       string
}

func (p port) clashes(o port) bool {
	return p.number == o.number && p.protocol == o.protocol && (p.ip == o.ip || p.ip == "0.0.0.0" || o.ip == "0.0.0.0")
}

func portsOf(pods []*corev1.Pod) []port {
	var out []port
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, x := range container.Ports {
				if x.HostPort > 0 {
					out = append(out, port{x.HostPort, cmp.Or(x.Protocol, corev1.ProtocolTCP), cmp.Or(x.HostIP, "0.0.0.0")})
				}
			}
		}
	}
	return out
}

// claim checks every machine that the claim may become.
func (c *checker) claim(i int, claim *solver.Claim) {
	where := fmt.Sprintf("claim %d of pool %s", i, claim.Pool)
	pool := c.pools[claim.Pool]
	switch {
	case pool == nil:
		c.fault("%s: there is no such pool", where)
		return
	case len(claim.Types) == 0 || len(claim.Pods) == 0:
		c.fault("%s has %d types and %d pods", where, len(claim.Types), len(claim.Pods))
		return
	case len(claim.Types) > cmp.Or(c.problem.MaxTypes, 60):
		c.fault("%s has %d types", where, len(claim.Types))
	}
	s := site{name: where, added: claim.Pods, fresh: true}
	last, cheapest := 0.0, 0.0
	for t, it := range claim.Types {
		machines, least := machinesOf(pool, claim, it)
		if len(machines) == 0 {
			c.fault("%s: type %s has no offering that is available under the requirements", where, it.Name)
			continue
		}
		if least < last {
			c.fault("%s: type %s is out of the order of prices", where, it.Name)
		}
		if last = least; t == 0 {
			cheapest = least
		}
		for _, labels := range machines {
			labels[corev1.LabelHostname] = where
			daemons := c.daemonsOn(labels, pool.Spec.Template.Spec.Taints)
			c.holds(fmt.Sprintf("%s as %s in %s", where, it.Name, labels[corev1.LabelTopologyZone]), labels,
				pool.Spec.Template.Spec.Taints, it.Allocatable(), daemons, claim.Pods)
		}
		s.labels = append(s.labels, machines...)
	}
	if claim.Cheapest.Price != cheapest {
		c.fault("%s: the cheapest offering is stated as %v and is %v", where, claim.Cheapest.Price, cheapest)
	}
	c.flexible(where, claim)
	if len(s.labels) > 0 {
		c.sites = append(c.sites, s)
	}
}

// machinesOf returns the labels of every offering of the type that the launch may take, and the least price.
func machinesOf(pool *karpv1.NodePool, claim *solver.Claim, it *catalog.InstanceType) (machines []map[string]string, least float64) {
	for _, o := range it.Offerings {
		if !o.Available {
			continue
		}
		labels := it.Requirements.Labels()
		for key, r := range claim.Requirements {
			if _, ok := labels[key]; ok || requirement.IsWellKnown(key) {
				continue
			}
			if value, ok := r.Any(7); ok {
				labels[key] = value
			}
		}
		maps.Copy(labels, o.Requirements.Labels())
		maps.Copy(labels, pool.Spec.Template.Labels)
		labels[karpv1.LabelNodePool] = pool.Name
		if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil {
			labels[ref.Group+"/"+strings.ToLower(ref.Kind)] = ref.Name
		}
		labels[karpv1.LabelRegistered], labels[karpv1.LabelInitialized] = "true", "true"
		if os := it.Requirements.Get(corev1.LabelOSStable); labels[corev1.LabelOSStable] == "" && len(os.Values()) > 0 {
			labels[corev1.LabelOSStable] = os.Values()[0]
		}
		if !within(claim.Requirements, labels) || !within(requirement.FromClaim(pool.Spec.Template.Spec.Requirements), labels) {
			continue
		}
		machines = append(machines, labels)
		if len(machines) == 1 || o.Price < least {
			least = o.Price
		}
	}
	return machines, least
}

func within(reqs requirement.Set, labels map[string]string) bool {
	for key, r := range reqs {
		if key == corev1.LabelHostname {
			continue
		}
		value, ok := labels[key]
		if !ok && !r.AllowsAbsence() || ok && !r.Has(value) {
			return false
		}
	}
	return true
}

func (c *checker) daemonsOn(labels map[string]string, taints []corev1.Taint) []*corev1.Pod {
	node := &corev1.Node{}
	node.Labels = labels
	return slices.DeleteFunc(slices.Clone(c.problem.Snapshot.Daemons), func(d *corev1.Pod) bool {
		ok, err := nodeaffinity.GetRequiredNodeAffinity(d).Match(node)
		return err != nil || !ok || untolerated(d, taints) != nil
	})
}

func (c *checker) flexible(where string, claim *solver.Claim) {
	for key, r := range claim.Requirements {
		values := map[string]bool{}
		for _, it := range claim.Types {
			for _, v := range it.Requirements.Get(key).Values() {
				values[v] = true
			}
			for _, o := range it.Offerings {
				if v, ok := o.Requirements[key]; ok {
					for _, x := range v.Values() {
						values[x] = true
					}
				}
			}
		}
		if len(values) < r.MinValues() {
			c.fault("%s: %d values of %s, minValues is %d", where, len(values), key, r.MinValues())
		}
	}
}

// limits checks that the pool stays within them whichever types are launched.
func (c *checker) limits() {
	for name, pool := range c.pools {
		usage := c.problem.Snapshot.PoolUsage[name]
		grew := false
		for _, claim := range c.plan.Claims {
			if claim.Pool != name {
				continue
			}
			grew = true
			most := resources.Vector{}
			for _, it := range claim.Types {
				most = most.Max(it.Capacity)
			}
			usage = usage.Add(most).Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
		}
		limits := resources.FromList(corev1.ResourceList(pool.Spec.Limits))
		for resource := range pool.Spec.Limits {
			if grew && usage.Get(resource) > limits.Get(resource) {
				c.fault("pool %s: %s exceeds the limit %s", name, usage.Format(resource), limits.Format(resource))
			}
		}
	}
}
