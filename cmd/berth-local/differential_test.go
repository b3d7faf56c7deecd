package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

var (
	boundClusters = flag.Int("bound-clusters", 10, "random clusters of TestPlannedPodsAreBoundWhereTheyWerePlanned")
	boundFirst    = flag.Uint64("bound-first", 0, "seed of the first of them")
)

// random is a generated cluster in the form in which the local one takes it.
type random struct {
	pools []*karpv1.NodePool
	pods  []*corev1.Pod
}

// local turns names of the generator into those of the local cluster.
var local = strings.NewReplacer(`"z1"`, `"us-east-1a"`, `"z2"`, `"us-east-1b"`, `"z3"`, `"us-east-1c"`,
	"karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category", `"ma"`, `"t"`)

func translate[T any](t *testing.T, from T) T {
	t.Helper()
	raw, err := json.Marshal(from)
	require.NoError(t, err)
	var to T
	require.NoError(t, json.Unmarshal([]byte(local.Replace(string(raw))), &to))
	return to
}

// related says whether the cluster of a seed has rules between pods.
func related(seed uint64) bool { return seed%2 == 1 }

// randomCluster leaves out what the API server does not take without more objects: priorities and overhead
// without their classes, devices without their plugin, startup taints that nobody takes off.
func randomCluster(t *testing.T, seed uint64) random {
	t.Helper()
	p := gen.Problem(seed, gen.Options{MaxPods: 16, Empty: true, Wide: true, Plain: !related(seed)})
	var out random
	for _, pool := range p.Pools {
		np := translate(t, pool.NodePool)
		np.Spec.Template.Spec.StartupTaints = nil
		np.Spec.Disruption = karpv1.Disruption{ConsolidateAfter: karpv1.NeverElapses()}
		np.Spec.Template.Spec.Requirements = append(np.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.k8s.aws/instance-category", Operator: corev1.NodeSelectorOpIn, Values: []string{"c", "m", "r"}},
			karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.k8s.aws/instance-cpu", Operator: karpv1.OperatorLte, Values: []string{"16"}})
		out.pools = append(out.pools, np)
	}
	for _, from := range p.Pods {
		pod := translate(t, from)
		pod.UID, pod.Status = "", corev1.PodStatus{}
		spec := &pod.Spec
		spec.SchedulerName, spec.Priority, spec.Overhead = "berth", nil, nil
		spec.TerminationGracePeriodSeconds = new(int64(0))
		for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
			for i := range containers {
				containers[i].Image = "registry.k8s.io/pause:3.10"
				delete(containers[i].Resources.Requests, gen.GPU)
			}
		}
		// The generator has merged the keys into the selectors, as the API server would.
		for i := range spec.TopologySpreadConstraints {
			spec.TopologySpreadConstraints[i].MatchLabelKeys = nil
		}
		withoutKeys(spec.Affinity)
		out.pods = append(out.pods, pod)
	}
	return out
}

func withoutKeys(a *corev1.Affinity) {
	var terms []*corev1.PodAffinityTerm
	if a != nil && a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
	}
	if a != nil && a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
		for i := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, &a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
		}
	}
	for _, t := range terms {
		t.MatchLabelKeys, t.MismatchLabelKeys = nil, nil
	}
}

// bound is what became of the plans.
type bound struct {
	clusters, pods, planned, asPlanned, elsewhere, unbound, onOthers, claims int
	wrong                                                                    []string
}

func (b bound) String() string {
	return fmt.Sprintf("%d clusters with %d pods: %d planned for %d new nodes, %d bound to their planned node, %d elsewhere, %d not; %d more bound to nodes that were there",
		b.clusters, b.pods, b.planned, b.claims, b.asPlanned, b.elsewhere, b.unbound, b.onOthers)
}

// differential watches claims and pods of one cluster.
type differential struct {
	*scene
	promised map[string][]types.UID // by claim, as first seen
	nodes    map[string]string      // by claim
	byUID    map[types.UID]corev1.Pod
}

var podNamespaces = []string{"default", "other"}

// look reads everything once, and says whether every planned pod has its node.
func (d *differential) look() (settled bool) {
	for _, namespace := range podNamespaces {
		list, err := shared.Kube.CoreV1().Pods(namespace).List(d.t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, pod := range list.Items {
			d.byUID[pod.UID] = pod
		}
	}
	settled = true
	for _, c := range d.claims() {
		uids, err := promise.ParseAnnotation(c.Annotations[karpv1.AnnotationPromises])
		require.NoError(d.t, err)
		if _, known := d.promised[c.Name]; !known {
			d.promised[c.Name] = uids
		}
		d.nodes[c.Name] = c.Status.NodeName
		for _, uid := range d.promised[c.Name] {
			settled = settled && d.byUID[uid].Spec.NodeName != ""
		}
	}
	for _, pod := range d.byUID {
		// The planner has spoken about each pod: it is bound or promised, or its event says why not.
		if pod.Spec.NodeName == "" && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		}) {
			settled = false
		}
	}
	return settled
}

// settle waits until nothing has changed for a while.
func (d *differential) settle() {
	const calm = 2500 * time.Millisecond
	deadline, since, before := time.Now().Add(25*time.Second), time.Now(), ""
	for time.Now().Before(deadline) {
		settled := d.look()
		n := 0
		for _, pod := range d.byUID {
			if pod.Spec.NodeName != "" {
				n++
			}
		}
		now := fmt.Sprint(settled, n, len(d.promised), len(d.byUID))
		if now != before {
			since, before = time.Now(), now
		} else if settled && time.Since(since) > calm {
			return
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // polls; the deadline is above
	}
}

func (d *differential) tally(seed uint64, sum *bound) {
	sum.clusters++
	sum.pods += len(d.byUID)
	sum.claims += len(d.promised)
	planned := map[types.UID]bool{}
	for claim, uids := range d.promised {
		for _, uid := range uids {
			pod, exists := d.byUID[uid]
			if !exists || planned[uid] {
				sum.wrong = append(sum.wrong, fmt.Sprintf("seed %d: %s was bought for pod %s, which does not exist or has a node already", seed, claim, uid))
				continue
			}
			planned[uid] = true
			sum.planned++
			switch {
			case pod.Spec.NodeName == "":
				sum.unbound++
				sum.wrong = append(sum.wrong, fmt.Sprintf("seed %d: %s is planned for %s (node %q) and not bound: %v; %s", seed, pod.Name, claim, d.nodes[claim], pod.Status.Conditions, d.story(claim)))
			case pod.Spec.NodeName == d.nodes[claim]:
				sum.asPlanned++
			default:
				sum.elsewhere++
				sum.wrong = append(sum.wrong, fmt.Sprintf("seed %d: %s is planned for %s (node %q) and bound to %s", seed, pod.Name, claim, d.nodes[claim], pod.Spec.NodeName))
			}
		}
	}
	for uid, pod := range d.byUID {
		if pod.Spec.NodeName != "" && !planned[uid] {
			sum.onOthers++
		}
	}
}

// story tells who is on the claim's node, for messages.
func (d *differential) story(claim string) string {
	var b strings.Builder
	if node, err := shared.Kube.CoreV1().Nodes().Get(d.t.Context(), d.nodes[claim], metav1.GetOptions{}); err == nil {
		fmt.Fprintf(&b, "%s allocatable %v %v", node.Labels[corev1.LabelInstanceTypeStable], node.Status.Allocatable.Cpu(), node.Status.Allocatable.Memory())
	}
	for uid, pod := range d.byUID {
		if pod.Spec.NodeName == d.nodes[claim] || slices.Contains(d.promised[claim], uid) {
			raw, _ := json.Marshal(pod.Spec.Containers[0].Resources.Requests)
			fmt.Fprintf(&b, "; %s %s on %q, planned here: %t", pod.Name, raw, pod.Spec.NodeName, slices.Contains(d.promised[claim], uid))
		}
	}
	return b.String()
}

// sweep takes pods and pools away; the class stays.
func (d *differential) sweep() {
	ctx := d.t.Context()
	for _, namespace := range podNamespaces {
		require.NoError(d.t, shared.Kube.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}))
	}
	d.eventually("no pod is left", func() bool {
		for _, namespace := range podNamespaces {
			if list, err := shared.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
				return false
			}
		}
		return true
	})
	pools := shared.Karpenter.KarpenterV1().NodePools()
	require.NoError(d.t, pools.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	d.eventually("no node is left", func() bool {
		list, err := pools.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0 && len(d.claims()) == 0 && shared.LivingInstances() == 0
	})
}

// What the planner plans, the running scheduler does: pods for which a node was bought are bound to it.
//
// With rules between pods that is not always so. A plan keeps them in the order in which it places pods; the
// scheduler binds in the order in which nodes get ready, and a pod without a rule of its own that another
// one's spread counts may come first. Then the other one's node refuses it, and it asks again.
func TestPlannedPodsAreBoundWhereTheyWerePlanned(t *testing.T) {
	s := newScene(t)
	startScheduler(t)
	s.apply(nodeClass, "apiVersion: v1\nkind: Namespace\nmetadata: {name: other, labels: {team: \"y\"}}\n",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {team: x}}\n")
	s.eventually("the namespace takes pods", func() bool {
		_, err := shared.Kube.CoreV1().ServiceAccounts("other").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	var plain, ruled bound
	start := time.Now()
	for i := range uint64(*boundClusters) { //nolint:gosec // not negative
		seed := *boundFirst + i
		c := randomCluster(t, seed)
		d := &differential{scene: s, promised: map[string][]types.UID{}, nodes: map[string]string{}, byUID: map[types.UID]corev1.Pod{}}
		for _, np := range c.pools {
			_, err := shared.Karpenter.KarpenterV1().NodePools().Create(t.Context(), np, metav1.CreateOptions{})
			require.NoError(t, err, "seed %d", seed)
		}
		s.eventually("the pools are ready", func() bool {
			return !slices.ContainsFunc(c.pools, func(np *karpv1.NodePool) bool { return !poolReady(t, np.Name) })
		})
		// The second wave meets the nodes of the first.
		for _, wave := range [][]*corev1.Pod{c.pods[:len(c.pods)*2/3], c.pods[len(c.pods)*2/3:]} {
			for _, pod := range wave {
				_, err := shared.Kube.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
				require.NoError(t, err, "seed %d", seed)
			}
			d.settle()
		}
		if related(seed) {
			d.tally(seed, &ruled)
		} else {
			d.tally(seed, &plain)
		}
		d.sweep()
	}
	t.Logf("without rules between pods: %s", plain)
	t.Logf("with rules between pods: %s", ruled)
	t.Logf("%.0f s", time.Since(start).Seconds())
	for _, line := range ruled.wrong {
		t.Log(line)
	}
	require.Empty(t, plain.wrong)
	require.Positive(t, plain.asPlanned+ruled.asPlanned)
	require.LessOrEqual(t, len(ruled.wrong)*5, max(ruled.planned, 20), "at most a fifth is not where it was planned")
	require.NoError(t, shared.Kube.CoreV1().Namespaces().Delete(t.Context(), "other", metav1.DeleteOptions{}))
	s.clear()
}
