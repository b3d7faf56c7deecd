package solver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// Problem is everything that one solve depends on.
type Problem struct {
	Snapshot *cluster.Snapshot
	// Pools that may open nodes; Solve orders them by weight descending, then name descending.
	Pools []Pool
	// Pods to place. Their order does not matter.
	Pods []*corev1.Pod
	// VolumeRequirements are what the volumes of pods demand of nodes, by pod UID: alternatives, one of
	// which must hold. They are no node affinity of the pod: spreads count as if there were none. A pod
	// without an entry is free.
	VolumeRequirements map[types.UID][]requirement.Set
	// Attachments are the volumes that pods attach to their node, by pod UID: amounts under names that no
	// resource has. AttachRoom says how many places have room for.
	Attachments map[types.UID]resources.Vector
	AttachRoom  AttachRoom
	Now         time.Time
	// NodeCost is what each node costs beside its instance (disk, addresses, agents), USD per hour.
	NodeCost float64
	// Preferences says what the pods' preferences do; "" means Guide.
	Preferences PreferencePolicy
	// RelaxMinValues lets a pool whose types cannot meet minValues plan with as many values as there are,
	// and marks the claims.
	RelaxMinValues bool
	// MaxTypes caps the instance types of one claim, cheapest first; 0 means 60.
	MaxTypes int
}

// AttachRoom is how many more volumes can be attached to nodes of the snapshot, by key, and to new nodes,
// by instance type. Places without an entry take any number.
type AttachRoom struct {
	Nodes, Types map[string]resources.Vector
}

// Pool is a NodePool that is ready to provision, with the types its class offers.
type Pool struct {
	NodePool *karpv1.NodePool
	Types    []*catalog.InstanceType
}

// Plan is the outcome of a solve.
type Plan struct {
	// Generation of the snapshot that the plan was made from.
	Generation uint64
	// Claims to open, in the order in which they were decided.
	Claims []Claim
	// Existing places pods on nodes of the snapshot.
	Existing []Placement
	// Unfit are pods that fit nowhere, with the reasons.
	Unfit []Unfit
	// Disagreements between the algebra and the filters; each is a bug worth a metric and a log line.
	Disagreements []Disagreement
}

// Claim is one node to open.
type Claim struct {
	Pool string
	// Requirements of the NodeClaim: the pool's, narrowed by its pods.
	Requirements requirement.Set
	// Types that can hold the pods, cheapest first. Never empty.
	Types []*catalog.InstanceType
	// Cheapest is the offering with the least price over Types; the price of the claim in plans.
	Cheapest Choice
	// MinValuesRelaxed says that Requirements has lower minValues than the pool.
	MinValuesRelaxed bool
	// Requests of the pods plus the least daemon overhead over Types.
	Requests resources.Vector
	// Taints and startup taints come from the pool. Pods are placed here, in order.
	Pods []*corev1.Pod
}

// Choice is one concrete offering.
type Choice struct {
	Type, Zone, CapacityType string
	Price                    float64 // USD per hour
}

// Placement puts a pod on a node of the snapshot.
type Placement struct {
	Pod  *corev1.Pod
	Node *cluster.Node
}

// Unfit is a pod that no node, existing or new, can take.
type Unfit struct {
	Pod *corev1.Pod
	// Reasons, one per pool (or one for the whole when there is no pool), ready for people.
	Reasons []PoolReason
}

// PoolReason says why one pool cannot help. Pool is empty when the reason is not about a pool.
type PoolReason struct {
	Pool   string
	Reason string
}

// Disagreement is a placement that the algebra found good and the filters refused.
type Disagreement struct {
	Pod    *corev1.Pod
	Target string // pool/type/zone or node name
	Plugin string
	Reason string
}

// Fit asks the filter plugins of the profile that will schedule the pod. It is implemented by
// provisioner/fit on a private copy of the framework.
type Fit interface {
	// Open starts a what-if over the snapshot. The trial sees the snapshot's nodes, those in flight
	// included, with the promised pods on them.
	Open(ctx context.Context, snapshot *cluster.Snapshot) (Trial, error)
}

// Trial is one what-if. It is not safe for concurrent use.
type Trial interface {
	// AddNode adds a node that does not exist, with the daemon pods that it will run.
	AddNode(ctx context.Context, node *corev1.Node, daemons []*corev1.Pod) error
	// RemoveNode takes a node of AddNode out again with what was placed on it.
	RemoveNode(name string)
	// Place runs PreFilter and Filter for the pod on the named node. When they pass, the pod is
	// assumed to be there for the rest of the trial and the verdict is zero.
	Place(ctx context.Context, pod *corev1.Pod, node string) (Verdict, error)
	Close()
}

// Verdict is a refusal by a plugin; the zero value means that the pod fits.
type Verdict struct {
	Plugin, Reason string
}

// Fits reports whether the pod was accepted.
func (v Verdict) Fits() bool { return v == Verdict{} }
