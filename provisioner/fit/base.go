package fit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/cluster"
)

// base is a snapshot in the framework's own terms. It is never changed: trials copy what they touch.
type base struct {
	of       *cluster.Snapshot
	infos    []fwk.NodeInfo
	position map[string]int
	claims   map[string]int // persistent volume claims in use, "namespace/name" to number of pods
	nodes    map[string]*built
	// learned has the features that nodes of a pool declare, by pool.
	learned map[string][]string
}

// built is one node of a base with what it was made from.
type built struct {
	from *cluster.Node
	info *framework.NodeInfo
	pods map[*corev1.Pod]*framework.PodInfo
}

// newBase computes the snapshot, taking over from the former base what has not changed.
func newBase(snapshot *cluster.Snapshot, former *base) (*base, error) {
	b := &base{
		of: snapshot, infos: make([]fwk.NodeInfo, 0, len(snapshot.Nodes)), position: make(map[string]int, len(snapshot.Nodes)),
		claims: map[string]int{}, nodes: make(map[string]*built, len(snapshot.Nodes)), learned: learnFeatures(snapshot),
	}
	for _, n := range snapshot.Nodes {
		key := n.Key()
		if _, twice := b.position[key]; twice {
			return nil, fmt.Errorf("two nodes are called %q", key)
		}
		var old *built
		if former != nil {
			old = former.nodes[key]
		}
		made := old
		if old == nil || !unchanged(old.from, n) {
			var err error
			if made, err = build(n, old, b.learned); err != nil {
				return nil, fmt.Errorf("node %s: %w", key, err)
			}
		}
		b.nodes[key] = made
		b.position[key] = len(b.infos)
		b.infos = append(b.infos, made.info)
		for claim, pods := range made.info.PVCRefCounts {
			b.claims[claim] += pods
		}
	}
	return b, nil
}

// unchanged reports whether both descriptions give the same node. API objects in snapshots are never
// changed in place, so their addresses stand for their contents.
func unchanged(a, b *cluster.Node) bool {
	if a == b {
		return true
	}
	return a.Node == b.Node && a.Name == b.Name && a.ClaimName == b.ClaimName && a.Initialized == b.Initialized &&
		slices.Equal(a.Pods, b.Pods) && slices.Equal(a.Promised, b.Promised) && maps.Equal(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Taints, b.Taints) && equality.Semantic.DeepEqual(a.Allocatable, b.Allocatable)
}

func build(n *cluster.Node, old *built, learned map[string][]string) (*built, error) {
	made := &built{from: n, info: framework.NewNodeInfo(), pods: make(map[*corev1.Pod]*framework.PodInfo, len(n.Pods)+len(n.Promised))}
	made.info.SetNode(nodeObject(n, learned))
	add := func(pod *corev1.Pod) error {
		var info *framework.PodInfo
		if old != nil {
			info = old.pods[pod]
		}
		if info == nil {
			var err error
			if info, err = framework.NewPodInfo(pod); err != nil {
				return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
		made.pods[pod] = info
		made.info.AddPodInfo(info)
		return nil
	}
	bound := make(map[types.UID]struct{}, len(n.Promised))
	for _, pod := range n.Pods {
		if len(n.Promised) > 0 {
			bound[pod.UID] = struct{}{}
		}
		if err := add(pod); err != nil {
			return nil, err
		}
	}
	for _, pod := range n.Promised {
		if _, there := bound[pod.UID]; !there {
			if err := add(pod); err != nil {
				return nil, err
			}
		}
	}
	return made, nil
}

// nodeObject returns the Node as the scheduler will see it when pods can go there: the API object for a
// node in use, else one with the taints that stay, the labels that are decided and the amounts promised.
func nodeObject(n *cluster.Node, learned map[string][]string) *corev1.Node {
	if n.Node != nil && (n.Initialized || n.ClaimName == "") {
		return withVolumeZone(n)
	}
	node := &corev1.Node{}
	if n.Node != nil {
		node = n.Node.DeepCopy()
	}
	node.Name = n.Key()
	node.Labels = maps.Clone(n.Labels)
	node.Spec.Taints = n.Taints
	node.Spec.Unschedulable = false
	if !n.Allocatable.IsZero() {
		node.Status.Allocatable = n.Allocatable.ToList()
		node.Status.Capacity = n.Capacity.ToList()
	}
	return complete(node, learned[n.Pool])
}

// withVolumeZone adds the label of the EBS driver to a node of ours on which the driver is not up yet.
func withVolumeZone(n *cluster.Node) *corev1.Node {
	zone := n.Node.Labels[corev1.LabelTopologyZone]
	if _, there := n.Node.Labels[ec2v1.LabelEBSCSIZone]; there || zone == "" || n.ClaimName == "" {
		return n.Node
	}
	node := *n.Node
	node.Labels = maps.Clone(node.Labels)
	node.Labels[ec2v1.LabelEBSCSIZone] = zone
	return &node
}

// complete adds what every node turns out to have. It changes the node.
func complete(node *corev1.Node, declared []string) *corev1.Node {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if _, ok := node.Labels[corev1.LabelHostname]; !ok {
		node.Labels[corev1.LabelHostname] = node.Name
	}
	if zone, ok := node.Labels[corev1.LabelTopologyZone]; ok && node.Labels[ec2v1.LabelEBSCSIZone] == "" {
		node.Labels[ec2v1.LabelEBSCSIZone] = zone
	}
	if node.Status.DeclaredFeatures == nil {
		node.Status.DeclaredFeatures = declared
		if declared == nil {
			node.Status.DeclaredFeatures = allFeatures
		}
	}
	return node
}

// allFeatures are those that a kubelet of this version may declare; a new node is expected to.
var allFeatures = func() []string {
	var list []string
	for _, feature := range features.AllFeatures {
		list = append(list, feature.Name())
	}
	slices.Sort(list)
	return list
}()

// learnFeatures takes for each pool the features that its newest node in use declares.
func learnFeatures(snapshot *cluster.Snapshot) map[string][]string {
	newest := map[string]*corev1.Node{}
	for _, n := range snapshot.Nodes {
		if n.Pool == "" || n.Node == nil || !n.Initialized {
			continue
		}
		best := newest[n.Pool]
		if best == nil || cmp.Or(best.CreationTimestamp.Compare(n.Node.CreationTimestamp.Time), cmp.Compare(best.Name, n.Name)) < 0 {
			newest[n.Pool] = n.Node
		}
	}
	learned := map[string][]string{}
	for pool, node := range newest {
		// A kubelet that declares none gives an empty list, not a missing one.
		learned[pool] = append([]string{}, node.Status.DeclaredFeatures...)
	}
	return learned
}
