package crds_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	karpv1ac "github.com/berth-dev/berth/provisioner/generated/applyconfiguration/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

// The merge rules of the fake clientset are generated from the CRDs; without them it refuses every write.
func TestFakeClientsetMergesAsTheDefinitionsSay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := fake.NewClientset(&ec2v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	_, err := client.KarpenterV1().NodeClaims().Create(ctx, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	apply := func(manager, condition string) {
		_, err := client.KarpenterV1().NodeClaims().Apply(ctx, karpv1ac.NodeClaim("a").WithStatus(karpv1ac.NodeClaimStatus().
			WithConditions(metav1ac.Condition().WithType(condition).WithStatus(metav1.ConditionTrue).WithReason(condition))), metav1.ApplyOptions{FieldManager: manager})
		require.NoError(t, err)
	}
	apply("one", karpv1.ConditionLaunched)
	apply("two", karpv1.ConditionDrifted)

	factory := externalversions.NewSharedInformerFactory(client, 0)
	lister := factory.Karpenter().V1().NodeClaims().Lister()
	classes := factory.EC2().V1().EC2NodeClasses().Lister()
	factory.Karpenter().V1().NodeClaims().Informer()
	factory.EC2().V1().EC2NodeClasses().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(factory.Shutdown)
	t.Cleanup(func() { close(stop) })
	factory.WaitForCacheSync(stop)
	claim, err := lister.Get("a")
	require.NoError(t, err)
	require.Len(t, claim.Status.Conditions, 2, "conditions of two managers must merge by type")
	all, err := classes.List(labels.Everything())
	require.NoError(t, err)
	require.Len(t, all, 1)
}
