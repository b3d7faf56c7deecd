package disruption

import (
	"context"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/solver"
)

// World answers what-ifs about the cluster of one moment.
type World interface {
	Snapshot() *cluster.Snapshot
	// Types are the instance types that the pool can buy; nil when it may not buy now.
	Types(pool string) []*catalog.InstanceType
	// Without plans where the pods of the nodes go when those are gone. shun says which other nodes take
	// none. Only a plan made with confirm may be carried out.
	Without(ctx context.Context, nodes []*cluster.Node, shun func(*cluster.Node) bool, confirm bool) solver.Plan
}

// Planner plans moves and carries them out.
type Planner interface {
	World(ctx context.Context) World
	// Carry keeps the plan's places for the pods to come and launches its claims, whose names it returns.
	Carry(ctx context.Context, plan solver.Plan, reason string) (claims []string, err error)
	// Forget gives up the places that Carry has kept.
	Forget(plan solver.Plan)
}

// Drifts tells what only the provider knows about drift.
type Drifts interface {
	IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloud.DriftReason, error)
}

// Static launches nodes that no pod has asked for.
type Static interface {
	// Fill launches up to count nodes of a static pool, and returns the names of the claims.
	Fill(ctx context.Context, pool string, count int, reason string) (claims []string, err error)
}
