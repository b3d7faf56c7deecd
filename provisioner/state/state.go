package state

import (
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/promise"
)

// Deps of a State; all are required unless they say otherwise.
type Deps struct {
	Core     informers.SharedInformerFactory
	Ours     externalversions.SharedInformerFactory
	Promises *promise.Table
	// TypesOf returns the instance types that a claim which is not launched yet may become, nil when
	// that is not known. It must be quick and must not call the State.
	TypesOf func(claim *karpv1.NodeClaim) []*catalog.InstanceType
	// Leaving hears that a node or claim has begun to be deleted; may be nil. Like TypesOf, it must be
	// quick and must not call the State.
	Leaving func()
}

// State is the model. Safe for concurrent use.
type State struct {
	deps   Deps
	synced []func() bool

	mu         sync.Mutex
	generation uint64
	nodes      map[string]*corev1.Node
	claims     map[string]*karpv1.NodeClaim
	pods       map[types.UID]*corev1.Pod            // bound and unfinished
	onNode     map[string]map[types.UID]*corev1.Pod // the same by node
	daemonSets map[types.UID]*appsv1.DaemonSet
	daemonPods map[types.UID]*corev1.Pod // newest live pod by DaemonSet
	namespaces map[string]map[string]string
	hidden     map[string]struct{} // nodes that disruption has chosen

	byProvider map[string]string              // provider ID to claim
	nodesWith  map[string]map[string]struct{} // provider ID to nodes; more than one is bad input
	built      map[string]*cluster.Node       // by nodeKey or claimKey
	dirty      map[string]struct{}            // keys of built that are stale
	snapshot   *cluster.Snapshot              // without promises, nil when stale
}

// Keys of built: a node's name, or a claim's name that has no node.
func nodeKey(name string) string  { return "n/" + name }
func claimKey(name string) string { return "c/" + name }

// New makes a State and registers its informer handlers; it must be called before the informers start.
func New(deps Deps) (*State, error) {
	s := &State{
		deps:  deps,
		nodes: map[string]*corev1.Node{}, claims: map[string]*karpv1.NodeClaim{}, pods: map[types.UID]*corev1.Pod{},
		onNode: map[string]map[types.UID]*corev1.Pod{}, daemonSets: map[types.UID]*appsv1.DaemonSet{},
		daemonPods: map[types.UID]*corev1.Pod{}, namespaces: map[string]map[string]string{}, hidden: map[string]struct{}{},
		byProvider: map[string]string{}, nodesWith: map[string]map[string]struct{}{}, built: map[string]*cluster.Node{}, dirty: map[string]struct{}{},
	}
	return s, s.register()
}

// Synced reports whether the informers have told everything that existed at the start.
func (s *State) Synced() bool {
	for _, synced := range s.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// Hide keeps the node out of snapshots as a target, from now on; Unhide takes that back.
func (s *State) Hide(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[node] = struct{}{}
	s.touchNode(node)
}

// Unhide makes the node a target again.
func (s *State) Unhide(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hidden, node)
	s.touchNode(node)
}

// Track tells the model of a claim that was just written, ahead of the watch. An older or equal
// version changes nothing.
func (s *State) Track(claim *karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.claims[claim.Name]; ok && have.UID == claim.UID && !newer(claim, have) {
		return
	}
	s.putClaim(claim)
}

// newer compares resource versions, which the API server hands out in ascending order.
func newer(a, b metav1.Object) bool {
	va, vb := a.GetResourceVersion(), b.GetResourceVersion()
	if len(va) != len(vb) {
		return len(va) > len(vb)
	}
	return va > vb
}

func (s *State) touch(key string) {
	s.dirty[key] = struct{}{}
	s.changed()
}

// Touch makes the next snapshot another generation: what is planned from may differ though no object does.
func (s *State) Touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
}

func (s *State) changed() {
	s.generation++
	s.snapshot = nil
}

// touchNode marks the node and, when it may have lost or found its claim, that claim.
func (s *State) touchNode(name string) {
	s.touch(nodeKey(name))
	if node := s.nodes[name]; node != nil {
		if claim := s.byProvider[node.Spec.ProviderID]; claim != "" {
			s.touch(claimKey(claim))
		}
	}
}

func (s *State) putNode(node *corev1.Node) {
	before := s.nodes[node.Name]
	s.noteLeaving(before != nil && before.DeletionTimestamp != nil, node)
	if before != nil && before.Spec.ProviderID != node.Spec.ProviderID {
		s.dropNode(node.Name) // its former claim has no node now
	}
	s.nodes[node.Name] = node
	if id := node.Spec.ProviderID; id != "" {
		if s.nodesWith[id] == nil {
			s.nodesWith[id] = map[string]struct{}{}
		}
		s.nodesWith[id][node.Name] = struct{}{}
	}
	s.touchNode(node.Name)
}

func (s *State) dropNode(name string) {
	s.touchNode(name)
	if node := s.nodes[name]; node != nil {
		id := node.Spec.ProviderID
		delete(s.nodesWith[id], name)
		if len(s.nodesWith[id]) == 0 {
			delete(s.nodesWith, id)
		}
	}
	delete(s.nodes, name)
	delete(s.hidden, name)
}

// noteLeaving tells of objects whose deletion has begun since they were seen last.
func (s *State) noteLeaving(known bool, object metav1.Object) {
	if !known && object.GetDeletionTimestamp() != nil && s.deps.Leaving != nil {
		s.deps.Leaving()
	}
}

func (s *State) putClaim(claim *karpv1.NodeClaim) {
	before := s.claims[claim.Name]
	// A deadline that comes later is news, too: pods have to leave then that had not to before.
	sameDeadline := before != nil && before.Annotations[karpv1.AnnotationTerminationTimestamp] == claim.Annotations[karpv1.AnnotationTerminationTimestamp]
	s.noteLeaving(before != nil && before.DeletionTimestamp != nil && sameDeadline, claim)
	s.claims[claim.Name] = claim
	if id := claim.Status.ProviderID; id != "" {
		s.byProvider[id] = claim.Name
	}
	s.touchClaim(claim)
}

func (s *State) dropClaim(claim *karpv1.NodeClaim) {
	if have := s.claims[claim.Name]; have == nil || have.UID != claim.UID {
		return
	}
	s.touchClaim(claim)
	delete(s.claims, claim.Name)
	if s.byProvider[claim.Status.ProviderID] == claim.Name {
		delete(s.byProvider, claim.Status.ProviderID)
	}
}

func (s *State) touchClaim(claim *karpv1.NodeClaim) {
	s.touch(claimKey(claim.Name))
	for name := range s.nodesWith[claim.Status.ProviderID] {
		s.touch(nodeKey(name))
	}
}

func (s *State) putPod(pod *corev1.Pod) {
	s.noteDaemon(pod)
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Spec.NodeName == "" || finished {
		s.dropPod(pod)
		return
	}
	s.pods[pod.UID] = pod
	if s.onNode[pod.Spec.NodeName] == nil {
		s.onNode[pod.Spec.NodeName] = map[types.UID]*corev1.Pod{}
	}
	s.onNode[pod.Spec.NodeName][pod.UID] = pod
	s.touch(nodeKey(pod.Spec.NodeName))
}

func (s *State) dropPod(pod *corev1.Pod) {
	have := s.pods[pod.UID]
	if have == nil {
		return
	}
	delete(s.pods, pod.UID)
	delete(s.onNode[have.Spec.NodeName], pod.UID)
	if len(s.onNode[have.Spec.NodeName]) == 0 {
		delete(s.onNode, have.Spec.NodeName)
	}
	s.touch(nodeKey(have.Spec.NodeName))
}

// noteDaemon remembers the newest live pod of each DaemonSet: admission may have changed its shape.
func (s *State) noteDaemon(pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return
	}
	if have := s.daemonPods[owner.UID]; have == nil || have.CreationTimestamp.Before(&pod.CreationTimestamp) {
		s.daemonPods[owner.UID] = pod
		s.changed()
	}
}

// Snapshot returns the cluster as it is known now. Calls without a change in between share it.
func (s *State) Snapshot() *cluster.Snapshot {
	promises := s.deps.Promises.Promises()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot == nil {
		s.snapshot = s.build()
	}
	return withPromises(s.snapshot, promises)
}

func (s *State) build() *cluster.Snapshot {
	for key := range s.dirty {
		if node := s.buildNode(key); node != nil {
			s.built[key] = node
		} else {
			delete(s.built, key)
		}
	}
	clear(s.dirty)
	snapshot := &cluster.Snapshot{
		Generation: s.generation, Nodes: make([]*cluster.Node, 0, len(s.built)),
		Daemons: s.daemons(), PoolUsage: s.poolUsage(), NamespaceLabels: make(map[string]map[string]string, len(s.namespaces)),
	}
	for _, node := range s.built {
		snapshot.Nodes = append(snapshot.Nodes, node)
	}
	slices.SortFunc(snapshot.Nodes, func(a, b *cluster.Node) int {
		if a.Initialized != b.Initialized {
			if a.Initialized {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Key(), b.Key())
	})
	for name, labels := range s.namespaces {
		snapshot.NamespaceLabels[name] = labels
	}
	return snapshot
}

// withPromises returns the snapshot with the promised pods on their nodes. Nodes without promises are
// shared.
func withPromises(base *cluster.Snapshot, promises []promise.Entry) *cluster.Snapshot {
	if len(promises) == 0 {
		return base
	}
	byClaim, byNode := map[string][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	for _, e := range promises {
		if e.Claim != "" {
			byClaim[e.Claim] = append(byClaim[e.Claim], e.Pod)
		} else {
			byNode[e.Node] = append(byNode[e.Node], e.Pod)
		}
	}
	out := *base
	out.Nodes = slices.Clone(base.Nodes)
	for i, node := range out.Nodes {
		promised := byNode[node.Name]
		if node.ClaimName != "" {
			promised = append(slices.Clip(promised), byClaim[node.ClaimName]...)
		}
		promised = slices.DeleteFunc(slices.Clone(promised), func(pod *corev1.Pod) bool { return boundHere(node, pod) })
		if len(promised) > 0 {
			changed := *node
			changed.Promised = promised
			out.Nodes[i] = &changed
		}
	}
	return &out
}

func boundHere(node *cluster.Node, pod *corev1.Pod) bool {
	return slices.ContainsFunc(node.Pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
}
