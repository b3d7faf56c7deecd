package fit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/fit"
	"github.com/berth-dev/berth/provisioner/solver"
)

func open(t testing.TB, f *fit.Fit, s *cluster.Snapshot) solver.Trial {
	t.Helper()
	trial, err := f.Open(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(trial.Close)
	return trial
}

func place(t testing.TB, trial solver.Trial, p *corev1.Pod, node string) solver.Verdict {
	t.Helper()
	v, err := trial.Place(t.Context(), p, node)
	require.NoError(t, err)
	return v
}

func TestPlaceGivesThePluginThatRefuses(t *testing.T) {
	t.Parallel()
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	tests := map[string]struct {
		node   *cluster.Node
		pod    *corev1.Pod
		plugin string
	}{
		"a pod that fits":                         {node: existing(node("n", "z1", "2")), pod: pod("p", "1")},
		"the last millicore counts":               {node: existing(node("n", "z1", "2"), pod("x", "1")), pod: pod("p", "1001m"), plugin: "NodeResourcesFit"},
		"a node in flight takes pods":             {node: inFlight(node("n", "z1", "2")), pod: pod("p", "2")},
		"its promised pods take room":             {node: inFlight(node("n", "z1", "2"), pod("x", "1")), pod: pod("p", "2"), plugin: "NodeResourcesFit"},
		"its taints count":                        {node: inFlight(node("n", "z1", "2", tainted)), pod: pod("p", "1"), plugin: "TaintToleration"},
		"its labels count":                        {node: inFlight(node("n", "z1", "2")), pod: pod("p", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "z2"} }), plugin: "NodeAffinity"},
		"ports of promised pods count":            {node: inFlight(node("n", "z1", "2"), pod("x", "1", port(80))), pod: pod("p", "1", port(80)), plugin: "NodePorts"},
		"a claim that is not there refuses":       {node: existing(node("n", "z1", "2")), pod: pod("p", "1", claim("missing")), plugin: "VolumeRestrictions"},
		"a node pinned by name is the only one":   {node: existing(node("n", "z1", "2")), pod: pod("p", "1", pinned("other")), plugin: "NodeAffinity"},
		"a pod of an unknown scheduler is judged": {node: existing(node("n", "z1", "2")), pod: pod("p", "3", func(p *corev1.Pod) { p.Spec.SchedulerName = "foreign" }), plugin: "NodeResourcesFit"},
	}
	f, s := build(t)
	startInformers(t.Context(), s)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			trial := open(t, f, snapshot(tc.node))
			v := place(t, trial, tc.pod, "n")
			require.Equal(t, tc.plugin, v.Plugin, v.Reason)
			require.Equal(t, tc.plugin == "", v.Fits())
		})
	}
}

func port(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: n, ContainerPort: n, Protocol: corev1.ProtocolTCP}}
	}
}

func claim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}

func pinned(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}}
	}
}

func TestTrialAssumesWhatItPlaced(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	snap := snapshot(existing(node("n", "z1", "3")))
	first, second := open(t, f, snap), open(t, f, snap)
	for i := range 3 {
		require.True(t, place(t, first, pod(name("p", i), "1"), "n").Fits())
	}
	require.False(t, place(t, first, pod("p-3", "1"), "n").Fits())
	require.True(t, place(t, second, pod("p-3", "1"), "n").Fits(), "trials do not see each other")
	require.True(t, place(t, open(t, f, snap), pod("q", "3"), "n").Fits(), "nothing outlives a trial")
	_, err := first.Place(t.Context(), pod("p", "1"), "nowhere")
	require.ErrorContains(t, err, `node "nowhere" is not part of the trial`)
}

func TestAddedNodesComeAndGoWithTheirDaemons(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	trial := open(t, f, snapshot(existing(node("old", "z1", "1"))))
	daemon := pod("daemon", "1", app("daemon"))
	require.NoError(t, trial.AddNode(t.Context(), node("a", "z1", "2"), []*corev1.Pod{daemon}))
	require.NoError(t, trial.AddNode(t.Context(), node("b", "z2", "2"), []*corev1.Pod{daemon}))
	require.Error(t, trial.AddNode(t.Context(), node("a", "z1", "2"), nil))
	require.Error(t, trial.AddNode(t.Context(), node("old", "z1", "2"), nil))
	require.False(t, place(t, trial, pod("big", "2"), "a").Fits(), "the daemon takes room")
	require.True(t, place(t, trial, pod("p", "1"), "a").Fits())
	trial.RemoveNode("a")
	trial.RemoveNode("old")
	_, err := trial.Place(t.Context(), pod("q", "1"), "a")
	require.Error(t, err)
	require.True(t, place(t, trial, pod("q", "1"), "b").Fits(), "the other one is still there")
	require.True(t, place(t, trial, pod("r", "1"), "old").Fits(), "nodes of the snapshot cannot be removed")
	require.NoError(t, trial.AddNode(t.Context(), node("a", "z1", "2"), nil))
	require.True(t, place(t, trial, pod("big2", "2"), "a").Fits(), "and what was on it is gone")
}

// The upstream state of topology spread is exact for one change only; a trial makes many.
func TestSpreadStaysExactOverManyPlacements(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	var nodes []*cluster.Node
	for i := range 4 {
		nodes = append(nodes, existing(node(name("n", i), name("z", i), "100")))
	}
	trial := open(t, f, snapshot(nodes...))
	counts := map[int]int{}
	for i := range 60 {
		p := pod(name("p", i), "1", spread(corev1.LabelTopologyZone))
		least := 1 << 30
		for z := range 4 {
			least = min(least, counts[z])
		}
		target := -1
		for z := range 4 {
			if counts[z] > least { // a second one above the least breaks the skew
				v := place(t, trial, p, name("n", z))
				require.Equal(t, "PodTopologySpread", v.Plugin, "pod %d on zone %d with counts %v", i, z, counts)
			} else if target < 0 || (i+z)%3 == 0 {
				target = z
			}
		}
		v := place(t, trial, p, name("n", target))
		require.True(t, v.Fits(), "pod %d on zone %d with counts %v: %s", i, target, counts, v.Reason)
		counts[target]++
	}
}

func TestNewNodesAreNewDomains(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	trial := open(t, f, snapshot(existing(node("n1", "z1", "10"))))
	require.True(t, place(t, trial, pod("a", "1", spread(corev1.LabelTopologyZone)), "n1").Fits())
	require.True(t, place(t, trial, pod("b", "1", spread(corev1.LabelTopologyZone)), "n1").Fits(), "one zone cannot be skewed")
	require.NoError(t, trial.AddNode(t.Context(), node("n2", "z2", "10"), nil))
	require.False(t, place(t, trial, pod("c", "1", spread(corev1.LabelTopologyZone)), "n1").Fits())
	require.True(t, place(t, trial, pod("c", "1", spread(corev1.LabelTopologyZone)), "n2").Fits())
	trial.RemoveNode("n2")
	require.True(t, place(t, trial, pod("d", "1", spread(corev1.LabelTopologyZone)), "n1").Fits())
}

func TestAntiAffinityOfPlacedPodsReachesOtherClasses(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	trial := open(t, f, snapshot(existing(node("n1", "z1", "10")), inFlight(node("n2", "z1", "10")), inFlight(node("n3", "z2", "10"))))
	plain := func(n string) *corev1.Pod { return pod(n, "1", app("plain")) }
	require.True(t, place(t, trial, plain("p0"), "n1").Fits(), "nobody objects yet, and that answer is remembered")
	require.True(t, place(t, trial, pod("x", "1", app("loner"), antiAffinity(corev1.LabelTopologyZone, "plain")), "n3").Fits())
	require.Equal(t, "InterPodAffinity", place(t, trial, plain("p1"), "n3").Plugin)
	require.True(t, place(t, trial, plain("p1"), "n2").Fits())
	require.Equal(t, "InterPodAffinity", place(t, trial, pod("y", "1", app("loner"), antiAffinity(corev1.LabelTopologyZone, "plain")), "n2").Plugin)
}

func TestBaseFollowsTheSnapshot(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	n := node("n", "z1", "2")
	full := snapshot(existing(n, pod("a", "1"), pod("b", "1")), inFlight(node("m", "z1", "2")))
	require.False(t, place(t, open(t, f, full), pod("p", "1"), "n").Fits())
	one := pod("a", "1")
	relieved := snapshot(existing(n, one), inFlight(node("m", "z1", "2"), pod("c", "2")))
	trial := open(t, f, relieved)
	require.True(t, place(t, trial, pod("p", "1"), "n").Fits())
	require.False(t, place(t, trial, pod("q", "1"), "m").Fits())
	promisedTwice := existing(n, one)
	promisedTwice.Promised = []*corev1.Pod{one}
	require.True(t, place(t, open(t, f, snapshot(promisedTwice)), pod("p", "1"), "n").Fits(), "a pod that is bound counts once")
	_, err := f.Open(t.Context(), snapshot(existing(n), existing(n)))
	require.ErrorContains(t, err, `two nodes are called "n"`)
}

func TestNodesInFlightLookReady(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	booting := existing(node("n", "z1", "2", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}
		n.Spec.Unschedulable = true
	}))
	booting.ClaimName, booting.Initialized, booting.Taints = "c", false, nil
	require.True(t, place(t, open(t, f, snapshot(booting)), pod("p", "1"), "n").Fits(), "taints that vanish do not count")
}

func TestVolumeLimitsOfNodesInFlightAreLearned(t *testing.T) {
	t.Parallel()
	const driver = "ebs.csi.aws.com"
	limit := int32(1)
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "i", Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}},
	}}
	f, s := build(t, csi, boundClaim("c1"), volume("c1", driver), boundClaim("c2"), volume("c2", driver))
	startInformers(t.Context(), s)
	trial := open(t, f, snapshot(existing(node("old", "z1", "10")), inFlight(node("new", "z1", "10"))))
	v := place(t, trial, pod("p1", "1", claim("c1")), "new")
	require.True(t, v.Fits(), v.Reason)
	require.Equal(t, "NodeVolumeLimits", place(t, trial, pod("p2", "1", claim("c2")), "new").Plugin)
}

func boundClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

func volume(claim, driver string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-" + claim}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: claim},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func TestForeignSchedulersNeedAProfileThatExists(t *testing.T) {
	t.Parallel()
	_, s := build(t)
	o := options(s)
	o.Foreign = map[string]string{"foreign": "nobody"}
	_, err := fit.New(t.Context(), o)
	require.ErrorContains(t, err, "profile nobody, which does not exist")
	_, err = fit.New(t.Context(), fit.Options{})
	require.Error(t, err)
}

func BenchmarkPlace(b *testing.B) {
	f, s := build(b)
	startInformers(b.Context(), s)
	nodes := make([]*cluster.Node, 1000)
	for i := range nodes {
		pods := series(15, func(j int) *corev1.Pod { return pod(fmt.Sprint("old-", i, "-", j), "100m", app(name("app", j))) })
		nodes[i] = existing(node(name("n", i), name("z", i%3), "2"), pods...)
	}
	snap := snapshot(nodes...)
	classes := map[string]func(i int) *corev1.Pod{
		"plain":          func(i int) *corev1.Pod { return pod(name("p", i), "100m") },
		"zoneSpread":     func(i int) *corev1.Pod { return pod(name("p", i), "100m", spread(corev1.LabelTopologyZone)) },
		"hostnameSpread": func(i int) *corev1.Pod { return pod(name("p", i), "100m", spread(corev1.LabelHostname)) },
		"zoneAndAnti": func(i int) *corev1.Pod {
			return pod(name("p", i), "100m", spread(corev1.LabelTopologyZone), antiAffinity(corev1.LabelHostname, "other"))
		},
	}
	for kind, make := range classes {
		b.Run("500pods20new1000nodes/"+kind, func(b *testing.B) {
			pods := series(500, make)
			b.ReportAllocs()
			for b.Loop() {
				trial, err := f.Open(b.Context(), snap)
				require.NoError(b, err)
				for i := range 20 {
					require.NoError(b, trial.AddNode(b.Context(), node(name("new", i), name("z", i%3), "100"), nil))
				}
				for i, p := range pods {
					v, err := trial.Place(b.Context(), p, name("new", i%20))
					require.NoError(b, err)
					if kind != "hostnameSpread" && kind != "zoneSpread" && kind != "zoneAndAnti" {
						require.True(b, v.Fits(), v.Reason)
					}
				}
				trial.Close()
			}
		})
	}
	b.Run("200spreadPodsEachOnANewNode", func(b *testing.B) {
		pods := series(200, func(i int) *corev1.Pod { return pod(name("p", i), "1", spread(corev1.LabelHostname)) })
		for b.Loop() {
			trial, err := f.Open(b.Context(), snap)
			require.NoError(b, err)
			for i, p := range pods {
				require.NoError(b, trial.AddNode(b.Context(), node(name("new", i), "z-0", "4"), nil))
				v, err := trial.Place(b.Context(), p, name("new", i))
				require.NoError(b, err)
				require.True(b, v.Fits(), v.Reason)
			}
			trial.Close()
		}
	})
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			changed := snapshot(nodes...)
			changed.Nodes = append([]*cluster.Node{}, nodes...)
			changed.Nodes[0] = existing(node("n-000", "z-0", "2"), pod("fresh", "1"))
			trial, err := f.Open(b.Context(), changed)
			require.NoError(b, err)
			trial.Close()
		}
	})
}

// PreFilter results are shared between pods; what tells pods apart must not be lost in that.
func TestPodsThatDifferAreJudgedApart(t *testing.T) {
	t.Parallel()
	objector := pod("objector", "1", app("objector"), antiAffinity(corev1.LabelHostname, "plain"))
	tests := map[string]struct {
		change func(*corev1.Pod)
		plugin string
	}{
		"by their labels":       {app("plain"), "InterPodAffinity"},
		"by their namespace":    {func(p *corev1.Pod) { p.Namespace = "elsewhere"; app("plain")(p) }, ""},
		"by their requests":     {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("9", "1Gi") }, "NodeResourcesFit"},
		"by their volumes":      {claim("missing"), "VolumeRestrictions"},
		"by their node":         {pinned("other"), "NodeAffinity"},
		"not by their own name": {func(p *corev1.Pod) { p.Name = "renamed" }, ""},
	}
	f, s := build(t)
	startInformers(t.Context(), s)
	for rule, tc := range tests {
		t.Run(rule, func(t *testing.T) {
			trial := open(t, f, snapshot(existing(node("n", "z1", "4"), objector)))
			require.True(t, place(t, trial, pod("first", "1", app("other")), "n").Fits())
			second := pod("second", "1", app("other"))
			tc.change(second)
			require.Equal(t, tc.plugin, place(t, trial, second, "n").Plugin)
		})
	}
}

// A class that its own constraint does not count cannot be used to make new domains known.
func TestNewDomainsReachClassesThatDoNotCountThemselves(t *testing.T) {
	t.Parallel()
	f, s := build(t)
	startInformers(t.Context(), s)
	besideA := func(n string) *corev1.Pod {
		return pod(n, "1", app("a"), spread(corev1.LabelTopologyZone), app("b")) // counts pods of app a
	}
	trial := open(t, f, snapshot(existing(node("n1", "z1", "10"), pod("a1", "1"), pod("a2", "1"))))
	require.True(t, place(t, trial, besideA("b1"), "n1").Fits())
	require.NoError(t, trial.AddNode(t.Context(), node("n2", "z2", "10"), nil))
	require.Equal(t, "PodTopologySpread", place(t, trial, besideA("b2"), "n1").Plugin)
	require.True(t, place(t, trial, besideA("b2"), "n2").Fits())
}
