package fit_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/plugins/schedulertest"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/fit"
)

var differentialCount = flag.Int("differential-count", 50, "random clusters of TestFitAgreesWithTheRunningScheduler")

// Random clusters go through fit and through the running scheduler. For each pod, fit is asked about
// every node before the scheduler sees the pod; now and then one of them is still in flight then and is
// created in between. The scheduler must bind the pod to a node that fit accepts, and leave it pending exactly when
// fit accepts none. One long trial gets the scheduler's choices, so that what it keeps between
// placements is checked too.
func TestFitAgreesWithTheRunningScheduler(t *testing.T) {
	t.Parallel()
	for seed := range *differentialCount {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			runDifferential(t, rand.New(rand.NewPCG(uint64(seed), 17)))
		})
	}
}

func runDifferential(t *testing.T, rng *rand.Rand) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := schedulertest.NewClient()
	s, err := schedulertest.New(ctx, client, []byte(plainConfig), nil)
	require.NoError(t, err)
	f, err := fit.New(ctx, options(s))
	require.NoError(t, err)

	create := func(n *corev1.Node) {
		_, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	all := randomNodes(rng)
	here := 1 + rng.IntN(len(all)) // without any node the scheduler does not look at pods
	for _, n := range all[:here] {
		create(n)
	}
	done, err := s.Start(ctx)
	require.NoError(t, err)
	defer func() { cancel(); <-done }()

	// The long trial meets the later nodes as added ones.
	long := open(t, f, picture(t, client, all[:here], nil))
	kinds := randomKinds(rng)
	for i := range 12 {
		p := kinds[rng.IntN(len(kinds))](name("p", i))
		var coming *corev1.Node
		if here < len(all) && rng.IntN(3) == 0 {
			coming = all[here]
		}
		accepted := acceptedNodes(t, f, picture(t, client, all[:here], coming), p)
		if coming != nil {
			create(coming)
			require.NoError(t, long.AddNode(ctx, coming, nil))
			here++
		}
		waitForNodes(t, s, here)
		_, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		require.NoError(t, err)
		target := outcome(t, client, p)
		if target == "" {
			require.Empty(t, accepted, "%s fits for fit and not for the scheduler: %s", p.Name, why(t, client, p))
			for _, n := range all[:here] {
				require.False(t, place(t, long, p, n.Name).Fits(), "%s on %s in the long trial", p.Name, n.Name)
			}
			require.NoError(t, client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}))
			continue
		}
		require.Contains(t, accepted, target, "%s was bound to %s, which fit refuses", p.Name, target)
		v := place(t, long, p, target)
		require.True(t, v.Fits(), "%s on %s in the long trial: %s: %s", p.Name, target, v.Plugin, v.Reason)
	}
}

// acceptedNodes asks about every node in a trial of its own, so that the answers do not depend on each
// other.
func acceptedNodes(t *testing.T, f *fit.Fit, s *cluster.Snapshot, p *corev1.Pod) map[string]bool {
	accepted := map[string]bool{}
	for _, n := range s.Nodes {
		trial, err := f.Open(t.Context(), s)
		require.NoError(t, err)
		if place(t, trial, p, n.Key()).Fits() {
			accepted[n.Key()] = true
		}
		trial.Close()
	}
	return accepted
}

// picture is the cluster as the API server has it, with a node in flight if one is given.
func picture(t *testing.T, client kubernetes.Interface, nodes []*corev1.Node, coming *corev1.Node) *cluster.Snapshot {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	on := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
	}
	s := &cluster.Snapshot{}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, existing(n, on[n.Name]...))
	}
	if coming != nil {
		s.Nodes = append(s.Nodes, inFlight(coming))
	}
	return s
}

func waitForNodes(t *testing.T, s *schedulertest.Scheduler, want int) {
	require.Eventually(t, func() bool { return s.Cache.NodeCount() == want }, 10*time.Second, time.Millisecond)
}

// outcome waits for the scheduler's verdict: the node, or "" for a pod that fits nowhere.
func outcome(t *testing.T, client kubernetes.Interface, p *corev1.Pod) string {
	target := ""
	require.Eventually(t, func() bool {
		now, err := client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		require.NoError(t, err)
		target = now.Spec.NodeName
		return target != "" || len(now.Status.Conditions) > 0
	}, 10*time.Second, time.Millisecond, "no verdict about %s", p.Name)
	return target
}

func why(t *testing.T, client kubernetes.Interface, p *corev1.Pod) string {
	now, err := client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	require.NoError(t, err)
	if len(now.Status.Conditions) == 0 {
		return ""
	}
	return now.Status.Conditions[0].Message
}

func pick[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }

func randomNodes(rng *rand.Rand) []*corev1.Node {
	nodes := make([]*corev1.Node, 3+rng.IntN(6))
	for i := range nodes {
		nodes[i] = node(name("n", i), pick(rng, "z1", "z2", "z3"), pick(rng, "1", "2", "4"), func(n *corev1.Node) {
			n.Labels["size"] = pick(rng, "1", "5", "9")
			if rng.IntN(4) == 0 {
				n.Labels["disk"] = "ssd"
			}
			if rng.IntN(4) == 0 {
				n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
			}
			if rng.IntN(6) == 0 {
				delete(n.Labels, corev1.LabelTopologyZone)
			}
		})
	}
	return nodes
}

// randomKinds returns a few kinds of pods; several pods of each are made, so that classes repeat.
func randomKinds(rng *rand.Rand) []func(string) *corev1.Pod {
	kinds := make([]func(string) *corev1.Pod, 2+rng.IntN(3))
	for k := range kinds {
		label := pick(rng, "a", "b", "c")
		cpu := pick(rng, "100m", "500m", "1", "1500m")
		changes := []func(*corev1.Pod){app(label)}
		add := func(chance int, change func(*corev1.Pod)) {
			if rng.IntN(chance) == 0 {
				changes = append(changes, change)
			}
		}
		add(3, spread(pick(rng, corev1.LabelTopologyZone, corev1.LabelHostname)))
		add(5, spread(corev1.LabelHostname))
		add(3, antiAffinity(pick(rng, corev1.LabelTopologyZone, corev1.LabelHostname), pick(rng, "a", "b", "c")))
		add(4, affinity(pick(rng, corev1.LabelTopologyZone, corev1.LabelHostname), pick(rng, label, "a", "b")))
		add(3, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
		})
		add(4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
		add(4, nodeAffinity(pick(rng,
			corev1.NodeSelectorRequirement{Key: "size", Operator: corev1.NodeSelectorOpGt, Values: []string{"3"}},
			corev1.NodeSelectorRequirement{Key: "size", Operator: corev1.NodeSelectorOpIn, Values: []string{"1", "9"}},
			corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"z1"}},
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist})))
		add(5, port(8080))
		kinds[k] = func(n string) *corev1.Pod { return pod(n, cpu, changes...) }
	}
	return kinds
}

func affinity(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}}
	}
}

func nodeAffinity(r corev1.NodeSelectorRequirement) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}},
		}}
	}
}
