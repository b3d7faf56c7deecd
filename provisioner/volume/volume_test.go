package volume_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/volume"
)

func listers(t *testing.T, objects ...any) volume.Listers {
	t.Helper()
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, object := range objects {
		to := claims
		switch object.(type) {
		case *corev1.PersistentVolume:
			to = volumes
		case *storagev1.StorageClass:
			to = classes
		}
		require.NoError(t, to.Add(object))
	}
	return volume.Listers{
		Claims:  corelisters.NewPersistentVolumeClaimLister(claims),
		Volumes: corelisters.NewPersistentVolumeLister(volumes),
		Classes: storagelisters.NewStorageClassLister(classes),
	}
}

func claim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, f := range change {
		f(c)
	}
	return c
}

func boundTo(pv string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = pv, corev1.ClaimBound
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	}
}

func ofClass(class string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// pv makes a volume that the nodes of one of the terms reach.
func pv(name string, terms ...[]corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if len(terms) > 0 {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
	}
	for _, term := range terms {
		v.Spec.NodeAffinity.Required.NodeSelectorTerms = append(v.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: term})
	}
	return v
}

func local(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/mnt"}
	return v
}

func class(name string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, VolumeBindingMode: &mode}
	if len(zones) > 0 {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
			Key: "topology.ebs.csi.aws.com/zone", Values: zones,
		}}}}
	}
	return c
}

func podWith(claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "uid-p"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, name := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v-" + name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	return p
}

func withEphemeral(name string) *corev1.Pod {
	p := podWith()
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	return p
}

func zone(zones ...string) requirement.Set {
	return requirement.NewSet(requirement.New(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zones...))
}

const zoneKey = corev1.LabelTopologyZone

func TestDemands(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	deleted := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }
	hostA := local(pv("pv", []corev1.NodeSelectorRequirement{in(corev1.LabelHostname, "n"), in(zoneKey, "a")}))
	tests := map[string]struct {
		pod     *corev1.Pod
		purpose volume.Purpose
		objects []any
		want    []requirement.Set
		fault   string
	}{
		"no claims": {pod: podWith()},
		"PROV-032 a bound volume's affinity counts": {
			pod: podWith("c"), objects: []any{claim("c", boundTo("pv")), pv("pv", []corev1.NodeSelectorRequirement{in("topology.ebs.csi.aws.com/zone", "a")})},
			want: []requirement.Set{zone("a")},
		},
		"PROV-032 so do the labels of in-tree volumes": {
			pod: podWith("c"), objects: []any{claim("c", boundTo("pv")), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
				Name: "pv", Labels: map[string]string{corev1.LabelFailureDomainBetaZone: "a__b"},
			}}},
			want: []requirement.Set{zone("a", "b")},
		},
		"a bound volume without affinity goes anywhere": {pod: podWith("c"), objects: []any{claim("c", boundTo("pv")), pv("pv")}},
		"terms are alternatives, several volumes must agree": {
			pod: podWith("c", "d"), objects: []any{
				claim("c", boundTo("pv")), pv("pv", []corev1.NodeSelectorRequirement{in(zoneKey, "a")}, []corev1.NodeSelectorRequirement{in(zoneKey, "b"), in("rack", "1")}),
				claim("d", boundTo("pw")), pv("pw", []corev1.NodeSelectorRequirement{in(zoneKey, "b", "c")}),
			},
			want: []requirement.Set{requirement.FromNodeSelector([]corev1.NodeSelectorRequirement{in(zoneKey, "b"), in("rack", "1")})},
		},
		"volumes that exclude each other": {
			pod: podWith("c", "d"), objects: []any{
				claim("c", boundTo("pv")), pv("pv", []corev1.NodeSelectorRequirement{in(zoneKey, "a")}),
				claim("d", boundTo("pw")), pv("pw", []corev1.NodeSelectorRequirement{in(zoneKey, "b")}),
			},
			fault: `PersistentVolumeClaim "d" of volume "v-d" is at a place where the pod's other volumes cannot be`,
		},
		"PROV-033 allowedTopologies of a class that waits": {
			pod: podWith("c"), objects: []any{claim("c", ofClass("ebs")), class("ebs", storagev1.VolumeBindingWaitForFirstConsumer, "a", "b")},
			want: []requirement.Set{zone("a", "b")},
		},
		"PROV-033 a class without allowedTopologies goes anywhere": {
			pod: podWith("c"), objects: []any{claim("c", ofClass("ebs")), class("ebs", storagev1.VolumeBindingWaitForFirstConsumer)},
		},
		"PROV-034 Immediate and unbound": {
			pod: podWith("c"), objects: []any{claim("c", ofClass("ebs")), class("ebs", storagev1.VolumeBindingImmediate)},
			fault: `PersistentVolumeClaim "c" of volume "v-c" is not bound, and its StorageClass "ebs" binds before there is a node; ` +
				`wait for the volume or use volumeBindingMode WaitForFirstConsumer`,
		},
		"no class":      {pod: podWith("c"), objects: []any{claim("c")}, fault: `PersistentVolumeClaim "c" of volume "v-c" is not bound and names no StorageClass (spec.storageClassName)`},
		"unknown class": {pod: podWith("c"), objects: []any{claim("c", ofClass("x"))}, fault: `PersistentVolumeClaim "c" of volume "v-c" names StorageClass "x", which does not exist`},
		"a class that allows nothing": {
			pod: podWith("c"), objects: []any{claim("c", ofClass("ebs")), &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: "ebs"}, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), AllowedTopologies: []corev1.TopologySelectorTerm{{}},
			}},
			fault: `PersistentVolumeClaim "c" of volume "v-c" is not bound, and the allowedTopologies of its StorageClass "ebs" match no node`,
		},
		"PROV-035 missing":              {pod: podWith("c"), fault: `PersistentVolumeClaim "c" of volume "v-c" does not exist`},
		"a claim of another namespace":  {pod: podWith("c"), objects: []any{claim("c", func(c *corev1.PersistentVolumeClaim) { c.Namespace = "other" })}, fault: `PersistentVolumeClaim "c" of volume "v-c" does not exist`},
		"claim being deleted":           {pod: podWith("c"), objects: []any{claim("c", boundTo("pv"), deleted), pv("pv")}, fault: `PersistentVolumeClaim "c" of volume "v-c" is being deleted`},
		"lost":                          {pod: podWith("c"), objects: []any{claim("c", boundTo("pv"), func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })}, fault: `PersistentVolumeClaim "c" of volume "v-c" has lost its volume`},
		"being bound":                   {pod: podWith("c"), objects: []any{claim("c", boundTo("pv"), func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }), pv("pv")}, fault: `PersistentVolumeClaim "c" of volume "v-c" is being bound to PersistentVolume "pv"`},
		"volume missing":                {pod: podWith("c"), objects: []any{claim("c", boundTo("pv"))}, fault: `PersistentVolumeClaim "c" of volume "v-c" is bound to PersistentVolume "pv", which does not exist`},
		"volume being deleted":          {pod: podWith("c"), objects: []any{claim("c", boundTo("pv")), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", DeletionTimestamp: &now}}}, fault: `PersistentVolumeClaim "c" of volume "v-c" is bound to PersistentVolume "pv", which is being deleted`},
		"volume that no node can reach": {pod: podWith("c"), objects: []any{claim("c", boundTo("pv")), pv("pv", nil)}, fault: `PersistentVolumeClaim "c" of volume "v-c" is bound to PersistentVolume "pv", whose node affinity matches no node`},
		"PROV-036 a pending pod needs its host": {
			pod: podWith("c"), objects: []any{claim("c", boundTo("pv")), hostA},
			want: []requirement.Set{requirement.FromLabels(map[string]string{corev1.LabelHostname: "n", zoneKey: "a"})},
		},
		"PROV-036 a pod that moves does not": {
			pod: podWith("c"), purpose: volume.Moving, objects: []any{claim("c", boundTo("pv")), hostA}, want: []requirement.Set{zone("a")},
		},
		"PROV-036 but a volume in the network keeps its hosts": {
			pod: podWith("c"), purpose: volume.Moving, objects: []any{claim("c", boundTo("pv")), pv("pv", []corev1.NodeSelectorRequirement{in(corev1.LabelHostname, "n")})},
			want: []requirement.Set{requirement.FromLabels(map[string]string{corev1.LabelHostname: "n"})},
		},
		"an ephemeral volume before its claim is made": {pod: withEphemeral("data"), fault: `PersistentVolumeClaim "p-data" of volume "data" is not made yet`},
		"an ephemeral volume": {
			pod: withEphemeral("data"), objects: []any{claim("p-data", boundTo("pv"), func(c *corev1.PersistentVolumeClaim) {
				c.OwnerReferences = []metav1.OwnerReference{{UID: "uid-p", Controller: new(true)}}
			}), pv("pv", []corev1.NodeSelectorRequirement{in(zoneKey, "b")})},
			want: []requirement.Set{zone("b")},
		},
		"an ephemeral volume whose name is taken": {
			pod: withEphemeral("data"), objects: []any{claim("p-data", boundTo("pv")), pv("pv")},
			fault: `PersistentVolumeClaim "p-data" of volume "data" was not made for this pod; delete it or rename the volume`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, fault := listers(t, tc.objects...).Demands(tc.pod, tc.purpose)
			require.Equal(t, tc.fault, fault)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestClaimNames(t *testing.T) {
	t.Parallel()
	pod := podWith("a", "b")
	pod.Spec.Volumes = append(pod.Spec.Volumes, withEphemeral("data").Spec.Volumes...)
	require.Equal(t, []string{"a", "b", "p-data"}, volume.ClaimNames(pod))
}
