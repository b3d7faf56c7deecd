package volume_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/volume"
)

const (
	ebs  corev1.ResourceName = "attachable-volumes-csi-ebs.csi.aws.com"
	efs  corev1.ResourceName = "attachable-volumes-csi-efs.csi.aws.com"
	many                     = volume.Unlimited
)

func amounts(pairs map[corev1.ResourceName]int64) resources.Vector {
	var v resources.Vector
	for name, n := range pairs {
		v = v.With(name, n)
	}
	return v
}

func ofDriver(driver string, v *corev1.PersistentVolume) *corev1.PersistentVolume {
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	return v
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	inTree := pv("old")
	inTree.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{}
	provisioned := func(name, provisioner string) *storagev1.StorageClass {
		c := class(name, storagev1.VolumeBindingWaitForFirstConsumer)
		c.Provisioner = provisioner
		return c
	}
	l := listers(t,
		claim("a", boundTo("a")), ofDriver("ebs.csi.aws.com", pv("a")), claim("f", boundTo("f")), ofDriver("efs.csi.aws.com", pv("f")),
		claim("old", boundTo("old")), inTree, claim("disk", boundTo("disk")), local(pv("disk")),
		claim("new", ofClass("gp3")), provisioned("gp3", "ebs.csi.aws.com"), claim("in-tree", ofClass("gp2")), provisioned("gp2", "kubernetes.io/aws-ebs"),
		claim("lost", boundTo("none")), claim("odd", ofClass("none")), claim("bare"),
	)
	tests := map[string]struct {
		pod  *corev1.Pod
		want map[corev1.ResourceName]int64
	}{
		"none":                                      {pod: podWith()},
		"by driver":                                 {pod: podWith("a", "f"), want: map[corev1.ResourceName]int64{ebs: 1, efs: 1}},
		"a claim that is mounted twice is one":      {pod: podWith("a", "a"), want: map[corev1.ResourceName]int64{ebs: 1}},
		"volumes that are not made yet count":       {pod: podWith("a", "new"), want: map[corev1.ResourceName]int64{ebs: 2}},
		"in-tree volumes are the driver's":          {pod: podWith("old", "in-tree"), want: map[corev1.ResourceName]int64{ebs: 2}},
		"what nobody attaches or knows is left out": {pod: podWith("disk", "lost", "odd", "bare", "missing")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.True(t, amounts(tc.want).Equal(l.Attachments(tc.pod)), l.Attachments(tc.pod).String())
		})
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	l := listers(t, claim("a", boundTo("a")), ofDriver("ebs.csi.aws.com", pv("a")), claim("b", boundTo("b")), ofDriver("ebs.csi.aws.com", pv("b")))
	csi := func(name string, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	}
	takes := func(driver string, count int32) storagev1.CSINodeDriver {
		return storagev1.CSINodeDriver{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &count}}
	}
	at := func(name, claim, instanceType string, pods, promised []*corev1.Pod) *cluster.Node {
		return &cluster.Node{Name: name, ClaimName: claim, Labels: map[string]string{corev1.LabelInstanceTypeStable: instanceType}, Pods: pods, Promised: promised}
	}
	snapshot := &cluster.Snapshot{Nodes: []*cluster.Node{
		at("old", "", "m.large", []*corev1.Pod{podWith("a")}, []*corev1.Pod{podWith("b")}),
		at("full", "", "m.small", []*corev1.Pod{podWith("a"), podWith("b")}, nil),
		at("starting", "", "m.large", nil, nil),
		at("", "coming", "m.large", nil, []*corev1.Pod{podWith("a")}),
		at("foreign", "", "x.large", nil, nil),
	}}
	nodes, types := l.Room(snapshot, []*storagev1.CSINode{
		csi("starting"), csi("old", takes("ebs.csi.aws.com", 3), storagev1.CSINodeDriver{Name: "other"}), csi("full", takes("ebs.csi.aws.com", 1)), csi("gone", takes("ebs.csi.aws.com", 9)),
	}, []corev1.ResourceName{ebs, efs})
	same := func(want map[string]map[corev1.ResourceName]int64, got map[string]resources.Vector) {
		t.Helper()
		require.Len(t, got, len(want))
		for key, pairs := range want {
			require.True(t, amounts(pairs).Equal(got[key]), "%s: %s", key, got[key])
		}
	}
	same(map[string]map[corev1.ResourceName]int64{"m.large": {ebs: 3, efs: many}, "m.small": {ebs: 1, efs: many}}, types)
	same(map[string]map[corev1.ResourceName]int64{
		"old": {ebs: 1, efs: many}, "full": {efs: many}, "starting": {ebs: many, efs: many}, "coming": {ebs: 2, efs: many},
	}, nodes)
	nodes, types = l.Room(snapshot, nil, nil)
	require.Nil(t, nodes)
	require.Nil(t, types)
}
