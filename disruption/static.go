package disruption

import (
	"context"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/method"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// reasonSurplus is why nodes go that a static pool has too many. Budgets are not asked: somebody has.
const reasonSurplus karpv1.DisruptionReason = "Surplus"

const (
	// fillRetry is how long a static pool waits that may not launch now.
	fillRetry = 30 * time.Second
	// fillPause and maxFillPause are how long it waits after a node that it launched did not come, the first
	// time and at most.
	fillPause    = 10 * time.Second
	maxFillPause = 5 * time.Minute
)

// fill is what is remembered of the launches of one static pool.
type fill struct {
	pause
	open map[string]time.Time // claims that have not registered, by when they were launched
}

// keepReplicas brings static pools to the number of nodes that they ask for.
func (c *Controller) keepReplicas(ctx context.Context, v *view) {
	if c.Static == nil {
		return
	}
	for name := range c.fills {
		if pool := v.pools[name]; pool == nil || pool.Spec.Replicas == nil {
			delete(c.fills, name)
		}
	}
	for _, pool := range v.pools {
		if pool.Spec.Replicas == nil || pool.DeletionTimestamp != nil {
			continue
		}
		have := c.staticOf(v, pool.Name)
		c.removeSurplus(ctx, pool, have, v)
		c.fill(ctx, pool, have, v)
	}
}

// staticOf counts the pool's nodes.
func (c *Controller) staticOf(v *view, pool string) method.Static {
	var s method.Static
	for _, node := range v.nodes {
		switch {
		case node.Pool != pool:
		case node.Claim.DeletionTimestamp != nil || c.deleted[node.Claim.UID]:
			s.Leaving++
		case node.Name != "" && c.isOurs(node):
			s.Pending++
		default:
			s.Running = append(s.Running, node)
		}
	}
	return s
}

func (c *Controller) removeSurplus(ctx context.Context, pool *karpv1.NodePool, have method.Static, v *view) {
	for _, node := range have.Surplus(pool, v.now) {
		if err := c.deleteClaim(ctx, node.Claim); err != nil {
			klog.FromContext(ctx).Error(err, "Deleting a surplus NodeClaim failed, will retry", "nodeClaim", node.ClaimName)
			continue
		}
		c.deleted[node.Claim.UID] = true
		klog.FromContext(ctx).Info("Deleted NodeClaim that a static pool has too many", "nodeClaim", node.ClaimName, "nodePool", klog.KObj(pool), "replicas", *pool.Spec.Replicas)
		if node.Node != nil {
			c.Events.DisruptionTerminating(node.Node, string(reasonSurplus))
		}
		c.Events.DisruptionTerminating(node.Claim, string(reasonSurplus))
		c.metrics.countRemoved(node.Claim, pool, reasonSurplus)
	}
}

// fill launches what the pool lacks. A pool whose nodes do not come is slowed down: without pods that wait
// nothing else would keep it from trying, and paying, every second.
func (c *Controller) fill(ctx context.Context, pool *karpv1.NodePool, have method.Static, v *view) {
	f := c.fills[pool.Name]
	if f == nil {
		f = &fill{open: map[string]time.Time{}}
		c.fills[pool.Name] = f
	}
	f.learn(v, pool.Name)
	if v.now.Before(f.until) {
		return
	}
	count, short := have.Missing(pool)
	if short {
		klog.FromContext(ctx).Info("Static pool has fewer nodes than replicas, its limit of nodes is reached", "nodePool", klog.KObj(pool), "replicas", *pool.Spec.Replicas)
		f.until = v.now.Add(fillRetry)
	}
	if count == 0 {
		return
	}
	claims, err := c.Static.Fill(ctx, pool.Name, count, "static")
	for _, name := range claims {
		f.open[name] = v.now
	}
	if err != nil || len(claims) < count {
		klog.FromContext(ctx).Info("Static pool could not launch all its nodes, will retry", "nodePool", klog.KObj(pool), "wanted", count, "launched", len(claims), "err", err)
		f.until = v.now.Add(fillRetry)
	}
}

// learn looks what has become of the nodes that were launched.
func (f *fill) learn(v *view, pool string) {
	there := map[string]*cluster.Node{}
	for _, node := range v.nodes {
		if node.Pool == pool {
			there[node.ClaimName] = node
		}
	}
	lost := false
	for name, since := range f.open {
		node := there[name]
		switch {
		case node != nil && node.Registered:
			f.failures = 0
		case node == nil && v.now.Sub(since) < time.Second, node != nil:
			continue
		default:
			lost = true
		}
		delete(f.open, name)
	}
	if lost {
		f.failures++
		f.until = v.now.Add(min(fillPause<<min(f.failures-1, 10), maxFillPause))
	}
}

var errNoRoom = kept("the limit of its pool or a safety brake forbids a replacement now")

// replaceOne launches the node that takes the place of one of a static pool, whatever the pods need.
func (c *Controller) replaceOne(ctx context.Context, p proposal) ([]string, error) {
	claims, err := c.Static.Fill(ctx, p.nodes[0].Pool, len(p.nodes), strings.ToLower(string(p.reason)))
	if err == nil && len(claims) < len(p.nodes) {
		return claims, errNoRoom
	}
	return claims, err
}
