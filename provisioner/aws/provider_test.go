package aws_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

func TestOneClaimGetsAnInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")

	claims := w.claims("default", 1, in(karpv1.LabelCapacityType, "on-demand"), in(corev1.LabelInstanceTypeStable, "m5.large", "m5.xlarge"))
	got, err := p.Create(t.Context(), cloud.Group{ID: "g1", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.NoError(t, got[0].Err)
	i := got[0].Instance
	require.Equal(t, "claim-0", i.ClaimName)
	require.Equal(t, "g1", i.LaunchGroup)
	require.Equal(t, "m5.large", i.Labels[corev1.LabelInstanceTypeStable])
	require.Equal(t, "on-demand", i.Labels[karpv1.LabelCapacityType])
	require.Equal(t, "default", i.Labels[karpv1.LabelNodePool])
	require.Equal(t, "1930m", i.Allocatable.Cpu().String())
	require.NotEmpty(t, i.Labels[corev1.LabelTopologyZone])
	require.NotEmpty(t, i.Labels[ec2v1.LabelTopologyZoneID])
	require.Equal(t, w.getClass("default").Annotations[ec2v1.AnnotationNodeClassHash], i.Annotations[ec2v1.AnnotationNodeClassHash])

	live := w.running()
	require.Len(t, live, 1)
	require.Equal(t, live[0].ProviderID(), i.ProviderID)
	require.Equal(t, map[string]string{
		"berth.dev/launch-group": "g1", "eks:eks-cluster-name": "berth", "karpenter.k8s.aws/ec2nodeclass": "default",
		"karpenter.sh/nodeclaim": "claim-0", "karpenter.sh/nodepool": "default", "kubernetes.io/cluster/berth": "owned",
	}, live[0].Tags)

	again, err := p.Get(t.Context(), i.ProviderID)
	require.NoError(t, err)
	require.Equal(t, live[0].PrivateDNSName, again.NodeName)
	require.Equal(t, i.Labels, again.Labels)
	require.Equal(t, i.Allocatable, again.Allocatable)

	list, err := p.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "claim-0", list[0].ClaimName)

	claims[0].Status.ProviderID = i.ProviderID
	require.NoError(t, p.Delete(t.Context(), claims[0]))
	require.Empty(t, w.running())
}
