package fit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/berth-dev/berth/provisioner/solver"
)

// class is a set of pods that PreFilter cannot tell apart, with the state that PreFilter left, kept up to
// date with what the trial has assumed since.
type class struct {
	pod  *corev1.Pod // the first one, which PreFilter saw
	done *prefiltered
	// synced is how many entries of trial.changes the state has seen.
	synced int
	// spread and affinity tell whether topology spread and inter-pod affinity have a say.
	spread, affinity bool
}

// prefiltered is the outcome of PreFilter.
type prefiltered struct {
	state   fwk.CycleState
	result  *fwk.PreFilterResult
	by      sets.Set[string] // the plugins behind result
	verdict solver.Verdict   // of the whole pod, zero when PreFilter passed
}

// refuses returns why the pod cannot go on the node, as far as PreFilter has decided it.
func (p *prefiltered) refuses(node string) solver.Verdict {
	if !p.verdict.Fits() || p.result.AllNodes() || p.result.NodeNames.Has(node) {
		return p.verdict
	}
	plugins := strings.Join(sets.List(p.by), ", ")
	return solver.Verdict{Plugin: plugins, Reason: "node(s) didn't satisfy plugin(s) " + plugins}
}

// factsOf returns what is known about the pod, computing it at first sight.
func (t *trial) factsOf(pod *corev1.Pod) (*facts, error) {
	if f, ok := t.pods[pod]; ok {
		return f, nil
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	f := &facts{shadow: t.fit.shadowOf(pod), info: info}
	if f.shadow.cacheable {
		key, ok, err := classKey(pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if ok {
			if f.class = t.classes[key]; f.class == nil {
				f.class = &class{pod: pod}
				t.classes[key] = f.class
			}
		}
	}
	t.pods[pod] = f
	return f, nil
}

// preFilter returns the pod's PreFilter outcome for the trial as it stands. The shadow must be locked.
func (t *trial) preFilter(ctx context.Context, f *facts, pod *corev1.Pod) (*prefiltered, error) {
	if f.class != nil {
		if err := t.sync(ctx, f); err != nil {
			return nil, err
		}
		if f.class.done != nil {
			return f.class.done, nil
		}
	}
	state := framework.NewCycleState()
	result, status, by := f.shadow.framework.RunPreFilterPlugins(ctx, state, pod)
	pre := &prefiltered{state: state, result: result, by: by}
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		plugin := status.Plugin()
		if plugin == "" {
			plugin = strings.Join(sets.List(by), ", ")
		}
		pre.verdict = solver.Verdict{Plugin: plugin, Reason: status.Message()}
		return pre, nil
	}
	skipped := state.GetSkipFilterPlugins()
	if c := f.class; c != nil && skipped.Has(names.DynamicResources) {
		c.done, c.pod, c.synced = pre, pod, len(t.changes)
		c.spread, c.affinity = !skipped.Has(names.PodTopologySpread), !skipped.Has(names.InterPodAffinity)
	}
	return pre, nil
}

// sync tells the class's state about what was added since it was used last, or forgets the state when
// that cannot be told exactly.
func (t *trial) sync(ctx context.Context, f *facts) error {
	c := f.class
	for ; c.done != nil && c.synced < len(t.changes); c.synced++ {
		exact, err := t.tell(ctx, f, t.changes[c.synced])
		if err != nil {
			return err
		}
		if !exact {
			c.done = nil
		}
	}
	return nil
}

// tell brings one change into the class's state; false when it cannot.
func (t *trial) tell(ctx context.Context, f *facts, change change) (exact bool, err error) {
	c := f.class
	if change.pod != nil && !c.affinity && len(change.pod.GetRequiredAntiAffinityTerms()) > 0 {
		return false, nil // PreFilter found nobody who objects to this class, and now there may be one
	}
	if change.node == "" || !c.spread && (change.pod == nil || !c.affinity) {
		return true, nil
	}
	i, _ := t.position(change.node)
	pod := change.pod
	if pod == nil {
		// A node without pods adds domains with a count of 0. Adding a pod of the class and taking it
		// away again makes the plugin add them by its own rules.
		pod = t.pods[c.pod].info
	}
	if status := f.shadow.framework.RunPreFilterExtensionAddPod(ctx, c.done.state, c.pod, pod, t.infos[i]); !status.IsSuccess() {
		return false, status.AsError()
	}
	if change.pod == nil {
		if status := f.shadow.framework.RunPreFilterExtensionRemovePod(ctx, c.done.state, c.pod, pod, t.infos[i]); !status.IsSuccess() {
			return false, status.AsError()
		}
		if !spreadKnows(c.done.state, t.infos[i].Node().Labels) {
			return false, nil
		}
	}
	return !c.spread || repairSpread(c.done.state), nil
}

// forget drops the PreFilter state of the classes for which it holds.
func (t *trial) forget(which func(*class) bool) {
	for _, c := range t.classes {
		if c.done != nil && which(c) {
			c.done = nil
		}
	}
}

// needsReserve reports whether placing the pod takes something that the NodeInfo does not show.
func needsReserve(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// classKey returns a key that is equal for pods which the in-tree PreFilter plugins cannot tell apart,
// or false for pods whose volumes or claims are their own and those spread by a selector of all pods. It covers namespace, labels, controller and
// the spec, except for the names of volumes that need no storage: those are random for the token that
// every pod gets.
func classKey(pod *corev1.Pod) (string, bool, error) {
	if len(pod.Spec.ResourceClaims) > 0 || spreadsByAll(pod) {
		return "", false, nil
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.DownwardAPI == nil &&
			v.EmptyDir == nil && v.HostPath == nil {
			return "", false, nil
		}
	}
	spec := pod.Spec
	spec.Volumes = nil
	spec.Containers = withoutMounts(spec.Containers)
	spec.InitContainers = withoutMounts(spec.InitContainers)
	raw, err := spec.Marshal()
	if err != nil {
		return "", false, fmt.Errorf("marshal spec: %w", err)
	}
	meta := metav1.ObjectMeta{Namespace: pod.Namespace, Labels: pod.Labels}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		meta.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	head, err := meta.Marshal()
	if err != nil {
		return "", false, fmt.Errorf("marshal metadata: %w", err)
	}
	return fmt.Sprint(len(head)) + string(head) + string(raw), true, nil
}

// spreadsByAll reports whether a constraint selects every pod: PreFilter counts none for it, and AddPod
// would count.
func spreadsByAll(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.LabelSelector != nil && len(c.LabelSelector.MatchLabels) == 0 && len(c.LabelSelector.MatchExpressions) == 0
	})
}

func withoutMounts(containers []corev1.Container) []corev1.Container {
	plain := slices.Clone(containers)
	for i := range plain {
		plain[i].VolumeMounts = nil
	}
	return plain
}
