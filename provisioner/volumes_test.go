package provisioner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/promise"
)

const driver = "ebs.csi.aws.com"

func pvc(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	for _, f := range change {
		f(c)
	}
	return c
}

// bound returns a claim with its volume, which nodes with the labels can use.
func bound(name string, labels map[string]string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	c := pvc(name, ofClass("ebs"), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = "pv-"+name, corev1.ClaimBound
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	})
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name}, StorageClassName: "ebs",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-" + name}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	var term corev1.NodeSelectorTerm
	for key, value := range labels {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}
	return c, v
}

func ofClass(class string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }
}

func storageClass(name string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &mode}
	if len(zones) > 0 {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
			Key: corev1.LabelTopologyZone, Values: zones,
		}}}}
	}
	return c
}

func inEBSZones(class *storagev1.StorageClass) *storagev1.StorageClass {
	class.AllowedTopologies[0].MatchLabelExpressions[0].Key = ec2v1.LabelEBSCSIZone
	return class
}

func uses(claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

func TestVolumesDecideTheZone(t *testing.T) {
	t.Parallel()
	claim, volume := bound("c", map[string]string{corev1.LabelTopologyZone: "b"})
	ebsClaim, ebsVolume := bound("c", map[string]string{ec2v1.LabelEBSCSIZone: "b"})
	tests := map[string]struct {
		pod     *corev1.Pod
		objects []runtime.Object
		want    []string
	}{
		"PROV-032 the zone of a bound volume": {pod: waiting("p", "1", uses("c")), objects: []runtime.Object{claim, volume}, want: []string{"b"}},
		"PROV-033 the allowedTopologies of a class that waits for a node": {
			pod:     waiting("p", "1", uses("c")),
			objects: []runtime.Object{pvc("c", ofClass("ebs")), storageClass("ebs", storagev1.VolumeBindingWaitForFirstConsumer, "a", "c")},
			want:    []string{"a", "c"},
		},
		"the EBS driver's name for the zone, in a volume": {
			pod: waiting("p", "1", uses("c")), objects: []runtime.Object{ebsClaim, ebsVolume}, want: []string{"b"},
		},
		"the EBS driver's name for the zone, in allowedTopologies": {
			pod:     waiting("p", "1", uses("c")),
			objects: []runtime.Object{pvc("c", ofClass("ebs")), inEBSZones(storageClass("ebs", storagev1.VolumeBindingWaitForFirstConsumer, "b"))},
			want:    []string{"b"},
		},
		"PROV-033 generic ephemeral volumes, too": {
			pod: waiting("p", "1", func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: pvc("x", ofClass("ebs")).Spec},
				}}}}
			}),
			objects: []runtime.Object{storageClass("ebs", storagev1.VolumeBindingWaitForFirstConsumer, "c"), pvc("p-data", ofClass("ebs"), func(c *corev1.PersistentVolumeClaim) {
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid-p", Controller: new(true)}}
			})},
			want: []string{"c"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, append(tc.objects, tc.pod)...)
			require.Equal(t, tc.want, w.zones(t, w.verdicts(t, tc.pod)["p"]))
		})
	}
}

func TestPodsWhoseVolumesCannotBeHadAreIgnored(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"PROV-034 unbound with binding mode Immediate": {
			objects: []runtime.Object{pvc("c", ofClass("now")), storageClass("now", storagev1.VolumeBindingImmediate)},
			want:    `PersistentVolumeClaim "c" of volume "c" is not bound, and its StorageClass "now" binds before there is a node`,
		},
		"PROV-035 missing claim": {want: `PersistentVolumeClaim "c" of volume "c" does not exist`},
		"unknown StorageClass":   {objects: []runtime.Object{pvc("c", ofClass("x"))}, want: `names StorageClass "x", which does not exist`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ignored, other := waiting("ignored", "1", uses("c")), waiting("other", "1")
			w := open(t, append(tc.objects, ignored, other)...)
			got := w.verdicts(t, ignored, other)
			require.Equal(t, promise.Refused, got["ignored"].State)
			require.Contains(t, got["ignored"].Reason, tc.want)
			w.claim(t, got["other"])
			require.Len(t, w.claims(t), 1, "the other pod's")
			w.heard(t, "FailedScheduling")
		})
	}
}

// A pod does not wait for the next round of retries when its claim turns up.
func TestPodsAskAgainWhenTheirClaimAppears(t *testing.T) {
	t.Parallel()
	pod := waiting("p", "1", uses("c"))
	w := open(t, pod, storageClass("ebs", storagev1.VolumeBindingWaitForFirstConsumer, "b"))
	require.Equal(t, promise.Refused, w.verdicts(t, pod)["p"].State)
	_, err := w.kube.Client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), pvc("c", ofClass("ebs")), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e, _ := w.promises.Lookup(pod.UID)
		return e.State == promise.Promised
	}, 10*time.Second, 5*time.Millisecond)
}

func csiNode(name string, limit int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: driver, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: &limit},
	}}}}
}

// Many pods get their nodes in one plan: the limit is part of the algebra, not only of the filters.
func TestManyPodsWithVolumes(t *testing.T) {
	t.Parallel()
	t.Run("PROV-037", func(t *testing.T) {
		t.Parallel()
		objects := []runtime.Object{
			node("n", "a", "100m"), csiNode("n", 10),
			node("n2", "a", "100m", func(n *corev1.Node) { n.Labels[corev1.LabelInstanceTypeStable] = "m.2xlarge" }), csiNode("n2", 20),
		}
		var pods []*corev1.Pod
		for i := range 60 {
			name := fmt.Sprintf("p%d", i)
			claim, volume := bound("c-"+name, map[string]string{corev1.LabelTopologyZone: "a"})
			pods = append(pods, waiting(name, "110m", uses("c-"+name)))
			objects = append(objects, claim, volume, pods[len(pods)-1])
		}
		w := open(t, objects...)
		for _, e := range w.verdicts(t, pods...) {
			require.Equal(t, promise.Promised, e.State, e.Reason)
		}
		require.Len(t, w.claims(t), 6, "ten volumes fit on the small machine, the cheaper one per volume")
	})
}

// Two volumes fit on the node. New nodes of its type are taken to have the same limit.
func TestVolumeLimits(t *testing.T) {
	t.Parallel()
	t.Run("PROV-037", func(t *testing.T) {
		t.Parallel()
		objects := []runtime.Object{node("n", "a", "2"), csiNode("n", 2), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}}}
		var pods []*corev1.Pod
		for _, name := range []string{"p1", "p2", "p3", "p4", "p5"} {
			claim, volume := bound("c-"+name, map[string]string{corev1.LabelTopologyZone: "a"})
			pods = append(pods, waiting(name, "100m", uses("c-"+name)))
			objects = append(objects, claim, volume, pods[len(pods)-1])
		}
		w := open(t, objects...)
		got := w.verdicts(t, pods...)
		places := map[string]int{}
		for _, e := range got {
			require.Equal(t, promise.Promised, e.State, e.Reason)
			places[e.Claim+e.Node]++
		}
		require.Equal(t, 2, places["n"], "the node's limit is 2 volumes")
		require.Len(t, places, 3)
		for place, n := range places {
			require.LessOrEqual(t, n, 2, place)
		}
	})
}
