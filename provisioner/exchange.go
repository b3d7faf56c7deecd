package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/disruption/candidate"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/volume"
)

// World is the cluster and what could be bought at one moment, for what-ifs about nodes that go. It is
// not for concurrent use.
type World struct {
	p        *Provisioner
	snapshot *cluster.Snapshot
	pools    []solver.Pool
	types    map[string][]*catalog.InstanceType
}

// World looks at the cluster now.
func (p *Provisioner) World(ctx context.Context) *World {
	w := &World{p: p, snapshot: p.state.Snapshot(), types: map[string][]*catalog.InstanceType{}}
	w.pools, _ = p.pools(ctx)
	p.rememberTypes(w.pools)
	for _, pool := range w.pools {
		w.types[pool.NodePool.Name] = pool.Types
	}
	return w
}

// Snapshot is the cluster that the what-ifs are about.
func (w *World) Snapshot() *cluster.Snapshot { return w.snapshot }

// Types are the instance types that the pool can buy, nil when it may not buy now.
func (w *World) Types(pool string) []*catalog.InstanceType { return w.types[pool] }

// Without plans where the pods of the nodes go when the nodes are gone. Pods of the plan are the ones that
// run. shun says which other nodes must not take any. Only with confirm are the scheduler's filters asked,
// which takes longer; nothing may be done about a plan that they have not confirmed.
func (w *World) Without(ctx context.Context, nodes []*cluster.Node, shun func(*cluster.Node) bool, confirm bool) solver.Plan {
	p := w.p
	var wanted demand
	var moving []*corev1.Pod
	for _, node := range nodes {
		for _, pod := range node.Pods {
			if candidate.IsReschedulable(pod) && promise.HasSuccessor(pod) {
				moving = append(moving, pod)
			}
		}
	}
	wanted.addMovers(moving, p.volumes, p.DefaultSpread)
	p.adopt(&wanted)
	snapshot := emptied(w.snapshot, nodes, moving, shun)
	fit := p.Fit
	if !confirm {
		fit = nil
	}
	plan := solver.Solve(ctx, solver.Problem{
		Snapshot: snapshot, Pools: w.pools, Pods: wanted.pods, VolumeRequirements: wanted.volumes,
		Attachments: wanted.attaches, AttachRoom: p.attachRoom(ctx, snapshot, &wanted), Now: p.Clock.Now(), NodeCost: p.options.NodeCost,
		Preferences: p.options.Preferences,
	}, fit)
	wanted.translate(&plan)
	// Pods whose volumes cannot be had anywhere else are not planned for; their node must stay.
	planned := map[types.UID]bool{}
	for _, pod := range wanted.pods {
		planned[pod.UID] = true
	}
	for _, pod := range moving {
		if !planned[pod.UID] {
			plan.Unfit = append(plan.Unfit, solver.Unfit{Pod: pod, Reasons: []solver.PoolReason{{Reason: whyNotMovable(pod, p.volumes)}}})
		}
	}
	p.reportDisagreements(ctx, plan.Disagreements)
	return plan
}

func whyNotMovable(pod *corev1.Pod, volumes volume.Listers) string {
	if len(pod.Spec.ResourceClaims) > 0 {
		return reasonDevices
	}
	_, fault := volumes.Demands(pod, volume.Moving)
	return fault
}

// adopt has pods of schedulers that are not ours judged by the first profile: the best that can be known.
func (p *Provisioner) adopt(d *demand) {
	for i, pod := range d.pods {
		if slices.Contains(p.options.SchedulerNames, pod.Spec.SchedulerName) {
			continue
		}
		adopted := *pod
		adopted.Spec.SchedulerName = p.options.SchedulerNames[0]
		if d.stands == nil {
			d.stands = map[*corev1.Pod]*corev1.Pod{}
		}
		own := d.stands[pod]
		if own == nil {
			own = pod
		}
		d.stands[&adopted] = own
		d.pods[i] = &adopted
	}
}

// emptied returns the snapshot without the moving pods, and with the nodes, and those to shun, as no target.
func emptied(snapshot *cluster.Snapshot, nodes []*cluster.Node, moving []*corev1.Pod, shun func(*cluster.Node) bool) *cluster.Snapshot {
	gone := make(map[types.UID]bool, len(moving))
	for _, pod := range moving {
		gone[pod.UID] = true
	}
	leaving := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		leaving[node.Key()] = true
	}
	out := *snapshot
	out.Nodes = slices.Clone(snapshot.Nodes)
	for i, node := range out.Nodes {
		switch {
		case leaving[node.Key()]:
			rest := *node
			rest.Deleting = true
			rest.Pods = slices.DeleteFunc(slices.Clone(node.Pods), func(pod *corev1.Pod) bool { return gone[pod.UID] })
			out.Nodes[i] = &rest
		case !node.Deleting && shun != nil && shun(node):
			rest := *node
			rest.Deleting = true
			out.Nodes[i] = &rest
		}
	}
	return &out
}

// exchangeDeadline is how long places are kept for the successors of pods that are about to move: a new
// node has to come up first, and then the old one drains.
const exchangeDeadline = 30 * time.Minute

// Carry keeps the plan's places for the successors of its pods and launches its claims. It returns the
// names of the claims. On an error nothing is kept; claims that exist by then stay, and are consolidated
// when nobody needs them.
func (p *Provisioner) Carry(ctx context.Context, plan solver.Plan, reason string) (claims []string, err error) {
	now := p.Clock.Now()
	for _, placement := range plan.Existing {
		if promise.HasSuccessor(placement.Pod) {
			p.Promises.Promise(placement.Pod, placement.Node.ClaimName, placement.Node.Name, now.Add(exchangeDeadline), now)
		}
	}
	if len(plan.Claims) == 0 {
		return nil, nil
	}
	err = p.launcher.ApplyFor(ctx, plan, reason)
	for i, claim := range plan.Claims {
		e, ok := p.Promises.Lookup(claim.Pods[0].UID)
		if !ok || e.Claim == "" {
			if err == nil {
				err = fmt.Errorf("replacement %d of %d in nodepool %s was not launched: limits, a safety brake or the pool itself forbid it now", i+1, len(plan.Claims), claim.Pool)
			}
			continue
		}
		claims = append(claims, e.Claim)
	}
	if err != nil {
		p.Forget(plan)
	}
	return claims, err
}

// Forget gives up the places that Carry has kept.
func (p *Provisioner) Forget(plan solver.Plan) {
	for _, placement := range plan.Existing {
		p.Promises.Release(placement.Pod.UID)
	}
	for _, claim := range plan.Claims {
		for _, pod := range claim.Pods {
			p.Promises.Release(pod.UID)
		}
	}
}

// Fill launches up to count nodes of a static pool and returns the names of their claims. It is an error
// when the pool may not buy now.
func (p *Provisioner) Fill(ctx context.Context, pool string, count int, reason string) ([]string, error) {
	np, err := p.poolLister.Get(pool)
	if err != nil {
		return nil, fmt.Errorf("get nodepool %s: %w", pool, err)
	}
	if why := whyNotUsable(np); why != "" {
		return nil, fmt.Errorf("nodepool %s cannot be used: %s", pool, why)
	}
	return p.launcher.Fill(ctx, pool, count, reason)
}
