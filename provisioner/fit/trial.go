package fit

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/solver"
)

// trial implements solver.Trial: a base, the nodes added to it and the pods assumed on either.
type trial struct {
	fit  *Fit
	base *base
	// infos are the base's nodes, then the added ones. owned tells which of them the trial may change.
	infos []fwk.NodeInfo
	owned []bool
	added map[string]int
	// claims counts the assumed pods of each persistent volume claim, on top of the base's.
	claims map[string]int
	// changes is everything that was added, in order; entries of removed nodes have no node any more.
	changes     []change
	pods        map[*corev1.Pod]*facts
	classes     map[string]*class
	reserved    []reservation
	csiExamples map[string]*storagev1.CSINode
}

// change is a pod that was assumed on a node, or, without a pod, a new node.
type change struct {
	pod  *framework.PodInfo
	node string
}

type reservation struct {
	ctx    context.Context // of the placement, without its end: giving back must not be cut short
	shadow *shadow
	state  fwk.CycleState
	pod    *corev1.Pod
	node   string
}

// facts about a pod that do not change within a trial.
type facts struct {
	shadow *shadow
	info   *framework.PodInfo
	class  *class // nil when the pod's PreFilter cannot be shared
}

func newTrial(f *Fit, b *base) *trial {
	return &trial{
		fit: f, base: b, infos: slices.Clone(b.infos), owned: make([]bool, len(b.infos)), added: map[string]int{},
		pods: map[*corev1.Pod]*facts{}, classes: map[string]*class{}, claims: map[string]int{},
	}
}

// position returns the index of a node of the trial.
func (t *trial) position(name string) (int, bool) {
	if i, ok := t.added[name]; ok {
		return i, true
	}
	i, ok := t.base.position[name]
	return i, ok
}

// AddNode implements solver.Trial. Labels of a node that names no host get its own name.
func (t *trial) AddNode(_ context.Context, node *corev1.Node, daemons []*corev1.Pod) error {
	if _, exists := t.position(node.Name); exists || node.Name == "" {
		return fmt.Errorf("add node %q: the name is taken or empty", node.Name)
	}
	info := framework.NewNodeInfo()
	info.SetNode(complete(node.DeepCopy(), t.base.learned[node.Labels[karpv1.LabelNodePool]]))
	t.added[node.Name] = len(t.infos)
	t.infos = append(t.infos, info)
	t.owned = append(t.owned, true)
	t.changes = append(t.changes, change{node: node.Name})
	for _, pod := range daemons {
		f, err := t.factsOf(pod)
		if err != nil {
			t.RemoveNode(node.Name)
			return fmt.Errorf("add node %q: %w", node.Name, err)
		}
		t.assume(f, node.Name)
	}
	return nil
}

// RemoveNode implements solver.Trial.
func (t *trial) RemoveNode(name string) {
	i, ok := t.added[name]
	if !ok {
		return
	}
	t.unreserve(func(r reservation) bool { return r.node == name })
	for claim, pods := range t.infos[i].(*framework.NodeInfo).PVCRefCounts {
		t.claims[claim] -= pods
	}
	last := len(t.infos) - 1
	t.infos[i], t.owned[i] = t.infos[last], t.owned[last]
	t.added[t.infos[i].Node().Name] = i
	t.infos, t.owned = t.infos[:last], t.owned[:last]
	delete(t.added, name)
	emptied := false
	for j := range t.changes {
		if t.changes[j].node == name {
			t.changes[j].node = ""
			emptied = emptied || t.changes[j].pod != nil
		}
	}
	t.forget(func(c *class) bool { return c.spread || emptied && c.affinity })
}

// Place implements solver.Trial.
func (t *trial) Place(ctx context.Context, pod *corev1.Pod, node string) (solver.Verdict, error) {
	if err := context.Cause(ctx); err != nil {
		return solver.Verdict{}, err
	}
	i, ok := t.position(node)
	if !ok {
		return solver.Verdict{}, fmt.Errorf("place pod %s/%s: node %q is not part of the trial", pod.Namespace, pod.Name, node)
	}
	f, err := t.factsOf(pod)
	if err != nil {
		return solver.Verdict{}, fmt.Errorf("place pod: %w", err)
	}
	f.shadow.mu.Lock()
	defer f.shadow.mu.Unlock()
	f.shadow.current = t
	defer func() { f.shadow.current = nil }()

	pre, err := t.preFilter(ctx, f, pod)
	if err != nil {
		return solver.Verdict{}, fmt.Errorf("place pod %s/%s on %s: %w", pod.Namespace, pod.Name, node, err)
	}
	if verdict := pre.refuses(node); !verdict.Fits() {
		return verdict, nil
	}
	status := f.shadow.framework.RunFilterPlugins(ctx, pre.state, pod, t.infos[i])
	if !status.IsSuccess() {
		return verdictOf(status, pod, node)
	}
	if f.shadow.reserves && needsReserve(pod) {
		if status := f.shadow.framework.RunReservePluginsReserve(ctx, pre.state, pod, node); !status.IsSuccess() {
			f.shadow.framework.RunReservePluginsUnreserve(ctx, pre.state, pod, node)
			return verdictOf(status, pod, node)
		}
		t.reserved = append(t.reserved, reservation{ctx: context.WithoutCancel(ctx), shadow: f.shadow, state: pre.state, pod: pod, node: node})
	}
	t.assume(f, node)
	return solver.Verdict{}, nil
}

// verdictOf turns a status that is not a success into a refusal, or an error when a plugin failed.
func verdictOf(status *fwk.Status, pod *corev1.Pod, node string) (solver.Verdict, error) {
	if !status.IsRejected() {
		return solver.Verdict{}, fmt.Errorf("place pod %s/%s on %s: %w", pod.Namespace, pod.Name, node, status.AsError())
	}
	return solver.Verdict{Plugin: status.Plugin(), Reason: status.Message()}, nil
}

// Close implements solver.Trial.
func (t *trial) Close() { t.unreserve(func(reservation) bool { return true }) }

// unreserve gives back what plugins reserved, latest first.
func (t *trial) unreserve(which func(reservation) bool) {
	var left []reservation
	for _, r := range slices.Backward(t.reserved) {
		if !which(r) {
			left = append(left, r)
			continue
		}
		r.shadow.mu.Lock()
		r.shadow.current = t
		r.shadow.framework.RunReservePluginsUnreserve(r.ctx, r.state, r.pod, r.node)
		r.shadow.current = nil
		r.shadow.mu.Unlock()
	}
	slices.Reverse(left)
	t.reserved = left
}

// assume puts the pod on the node for the rest of the trial.
func (t *trial) assume(f *facts, node string) {
	i, _ := t.position(node)
	if !t.owned[i] {
		t.infos[i] = t.infos[i].(*framework.NodeInfo).SnapshotConcrete()
		t.owned[i] = true
	}
	t.infos[i].AddPodInfo(f.info)
	t.countClaims(f.info.Pod)
	t.changes = append(t.changes, change{pod: f.info, node: node})
}

// countClaims notes the persistent volume claims of a pod that was assumed.
func (t *trial) countClaims(pod *corev1.Pod) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			t.claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]++
		}
	}
}
