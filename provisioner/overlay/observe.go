package overlay

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// learn compares nodes with what overlays declare of them, and puts what it finds in force. It reports
// whether anything is known that was not before.
func (c *Controller) learn(ctx context.Context) bool {
	v := c.current()
	if v == nil || !declares(v.rules) {
		return false
	}
	sights := c.sights(ctx, v)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current() != v {
		return false // the next look is about the new verdict
	}
	seen, changed := c.learner.Look(c.Clock.Now(), v.rules, sights)
	if !changed {
		return false
	}
	for _, f := range seen {
		if _, known := v.seen[f.Target]; !known {
			klog.FromContext(ctx).Info("A node came without what an overlay declares; it is not counted on any more",
				"node", klog.KRef("", f.Node), "nodePool", klog.KRef("", f.Pool), "instanceType", f.Type, "resource", f.Resource, "declared", f.Declared, "have", f.Have)
		}
	}
	if !seen.limitsAs(v.seen) {
		c.publish(&verdict{rules: v.rules, pools: v.pools, seen: seen})
		if c.Changed != nil {
			c.Changed()
		}
	}
	return true
}

func declares(rules []*Rule) bool {
	for _, r := range rules {
		if len(r.capacity) > 0 {
			return true
		}
	}
	return false
}

// sights looks at every node of which a rule declares something and that is complete enough to tell.
func (c *Controller) sights(ctx context.Context, v *verdict) []Sight {
	pools := map[string]*poolTypes{}
	var out []Sight
	for _, node := range c.State.Snapshot().Nodes {
		if node.Node == nil || node.Claim == nil || node.Pool == "" || node.Deleting || !isComplete(node.Claim) {
			continue
		}
		p, known := pools[node.Pool]
		if !known {
			p = c.typesOf(ctx, node.Pool)
			pools[node.Pool] = p
		}
		if p != nil {
			out = appendSights(out, node, p.declared(v.rules, node.Labels[corev1.LabelInstanceTypeStable]))
		}
	}
	return out
}

// isComplete reports whether the node has passed every gate but that of its extended resources.
func isComplete(claim *karpv1.NodeClaim) bool {
	c := meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionInitialized)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == karpv1.ReasonResourceNotRegistered)
}

func appendSights(out []Sight, node *cluster.Node, declared declaration) []Sight {
	for _, d := range declared {
		have, believed := node.Node.Status.Capacity[d.Name], node.Claim.Status.Capacity[d.Name]
		out = append(out, Sight{
			Target:     Target{Rule: d.rule.UID, Pool: node.Pool, Type: node.Labels[corev1.LabelInstanceTypeStable], Resource: d.Name},
			Generation: d.rule.Generation, Node: node.Name, Born: node.Claim.CreationTimestamp.Time,
			Have: have.Value(), Declared: d.Value, Believed: believed.Value() >= d.Value,
		})
	}
	return out
}

// poolTypes finds what is declared of the types of one pool, each type once.
type poolTypes struct {
	labels map[string]string
	byName map[string]*catalog.InstanceType
	known  map[string]declaration
}

// typesOf returns nil when the pool or its types are not known now.
func (c *Controller) typesOf(ctx context.Context, name string) *poolTypes {
	pool, err := c.pools.Get(name)
	if err != nil {
		return nil
	}
	list, err := c.Cloud.InstanceTypes(ctx, pool)
	if err != nil {
		return nil
	}
	p := &poolTypes{labels: labelsOf(pool), byName: make(map[string]*catalog.InstanceType, len(list)), known: map[string]declaration{}}
	for _, it := range list {
		p.byName[it.Name] = it
	}
	return p
}

func (p *poolTypes) declared(rules []*Rule, instanceType string) declaration {
	d, known := p.known[instanceType]
	if it := p.byName[instanceType]; !known && it != nil {
		d = declaredFor(rules, p.labels, it)
		p.known[instanceType] = d
	}
	return d
}
