package cloud

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
)

// Provider creates, finds and ends instances for NodeClaims. Every method is safe for concurrent use
// and idempotent; a call that is cut short may be repeated with the same arguments.
type Provider interface {
	// Create launches one instance for each member of the group with as few cloud calls as possible.
	// Repeating the same group (ID and Attempt) never launches a second instance: it returns what the
	// first call launched. The reply has one result per member, in the order of Group.Claims.
	// The error is for the whole call (throttled, unauthorized, class not ready); errors of single
	// members are in their results.
	Create(ctx context.Context, group Group) ([]Created, error)
	// Delete ends the claim's instance. It returns a *NotFoundError when the instance is gone for
	// good, nil while it is still shutting down.
	Delete(ctx context.Context, claim *karpv1.NodeClaim) error
	// Get returns the instance with the provider ID, or a *NotFoundError.
	Get(ctx context.Context, providerID string) (*Instance, error)
	// List returns every living instance that this cluster's claims own, by cloud truth (tags).
	List(ctx context.Context) ([]*Instance, error)
	// InstanceTypes returns the types that the pool's class allows, with offerings and prices. The
	// result is shared and must not be changed.
	InstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error)
	// IsDrifted returns why the claim's instance no longer matches its class, or "".
	IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (DriftReason, error)
	// RepairPolicies lists the node conditions that mean an instance is broken.
	RepairPolicies() []RepairPolicy
}

// Group is one launch: claims of one shape that one cloud call can serve. ID and Attempt make the
// idempotency token; both are written on every member before Create is called, so that a restart
// repeats exactly the same request. A changed request takes a new Attempt.
type Group struct {
	ID      string
	Attempt int
	Claims  []*karpv1.NodeClaim // at least one; order is part of the identity
}

// Created is the outcome for one member of a group: an instance or an error, never both.
type Created struct {
	Instance *Instance
	Err      error // *NoCapacityError when the cloud had none
}

// Instance is a launched machine as the cloud tells it.
type Instance struct {
	ProviderID string // the join key to Node.spec.providerID
	ImageID    string
	// ClaimName is the NodeClaim that the instance was launched for, from its tags; may be empty.
	ClaimName string
	// LaunchGroup is the ID of the group that launched it, from its tags; may be empty.
	LaunchGroup string
	// NodeName is the name under which the node will register, when the cloud can tell; else empty.
	NodeName    string
	Labels      map[string]string   // for the NodeClaim and the Node; existing keys of the claim win
	Annotations map[string]string   // for the NodeClaim
	Capacity    corev1.ResourceList // estimates for the type
	Allocatable corev1.ResourceList
	LaunchTime  time.Time
	Terminating bool // shutting down; no longer fit for use
}

// DriftReason is a short PascalCase word for the Drifted condition; empty means not drifted.
type DriftReason string

// RepairPolicy names a node condition status that, once it has lasted for Toleration, means that the
// instance should be replaced.
type RepairPolicy struct {
	ConditionType   corev1.NodeConditionType
	ConditionStatus corev1.ConditionStatus
	Toleration      time.Duration
}
