package launch

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Fill launches up to count nodes of a static pool, which no pod has asked for: the cloud chooses among all
// that the template allows. It returns the names of the claims. Limits and safety brakes may make them
// fewer; the error joins what failed.
func (l *Launcher) Fill(ctx context.Context, poolName string, count int, reason string) ([]string, error) {
	pool, err := l.deps.Pools.Get(poolName)
	if err != nil || pool.DeletionTimestamp != nil {
		return nil, fmt.Errorf("nodepool %s is gone", poolName)
	}
	usage, nodes := l.deps.Usage()
	used := usage[poolName]
	var drafts []*draft
	for range count {
		used = used.Add(resources.Vector{}.With(karpv1.ResourceNodes, 1))
		if overLimit(used, pool.Spec.Limits) != "" {
			break
		}
		if brake, why := l.braked(nodes); brake != "" {
			l.hold(ctx, pool, nil, brake, why)
			break
		}
		nodes++
		drafts = append(drafts, &draft{claim: NewClaim(pool, solver.Claim{
			Pool: poolName, Requirements: requirement.FromClaim(pool.Spec.Template.Spec.Requirements),
		})})
	}
	err = l.carryOut(ctx, drafts, reason)
	created, _ := split(drafts)
	klog.FromContext(ctx).V(2).Info("Launched nodes of a static pool", "nodePool", klog.KObj(pool), "wanted", count, "created", len(created), "reason", reason)
	return namesOf(created), err
}
