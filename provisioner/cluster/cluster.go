package cluster

import (
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// Snapshot is one consistent view of the cluster. It must not be changed after it was handed out.
type Snapshot struct {
	// Generation grows with every change of the model; plans carry it so that stale ones are noticed.
	Generation uint64
	// Nodes are all nodes, real and in flight, initialized ones first, then by Key.
	Nodes []*Node
	// Daemons has one pod per DaemonSet, as the DaemonSet controller would create it, without the
	// node pin. Sorted by namespace and name.
	Daemons []*corev1.Pod
	// PoolUsage is the capacity that counts against each pool's limits: nodes that are not being
	// deleted and claims in flight, plus "nodes", their number.
	PoolUsage map[string]resources.Vector
	// NamespaceLabels serves namespaceSelectors of pod affinity terms.
	NamespaceLabels map[string]map[string]string
}

// Node is a place for pods: a registered Node, or a NodeClaim whose Node has not appeared yet.
type Node struct {
	// Name is the Node's name, empty while it has none. ClaimName is empty for nodes that are not ours.
	Name, ClaimName string
	// Pool is the NodePool's name, empty for nodes that no pool owns.
	Pool string
	// Node and Claim are the API objects, nil when there is none. Shared with informer caches.
	Node  *corev1.Node
	Claim *karpv1.NodeClaim
	// Labels are the labels that the node has, or will have as far as they are decided.
	Labels map[string]string
	// Requirements say what a claim in flight may still become; for real nodes they equal Labels.
	Requirements requirement.Set
	// Taints are those that count for scheduling: on a managed node that is not initialized yet
	// they leave out startup taints and the taints that vanish by themselves.
	Taints []corev1.Taint
	// Allocatable and Capacity: of the Node, of the claim's status, or, before launch, the least
	// over the types that the claim allows.
	Allocatable, Capacity resources.Vector
	// Pods are bound there and not finished. Promised are pods that the node is kept for and that
	// are not bound yet; they take room like bound ones.
	Pods, Promised []*corev1.Pod

	Registered, Initialized, Ready bool
	// Deleting: the claim or node is being deleted, or disruption has chosen it. No target for pods.
	Deleting bool
}

// Key names the node in plans and logs: the node's name, else the claim's.
func (n *Node) Key() string {
	if n.Name != "" {
		return n.Name
	}
	return n.ClaimName
}
