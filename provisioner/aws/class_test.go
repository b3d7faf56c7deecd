package aws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/cloud"
)

func settings(text string) func(*ec2v1.EC2NodeClass) {
	return func(nc *ec2v1.EC2NodeClass) { nc.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(text)} }
}

func alias(text string) func(*ec2v1.EC2NodeClass) {
	return func(nc *ec2v1.EC2NodeClass) { nc.Spec.AMISelectorTerms = []ec2v1.AMISelectorTerm{{Alias: text}} }
}

// Every fault ends in a False condition with its reason, and Ready says which.
func TestClassFaults(t *testing.T) {
	t.Parallel()
	both := func(a, b func(*ec2v1.EC2NodeClass)) func(*ec2v1.EC2NodeClass) {
		return func(nc *ec2v1.EC2NodeClass) { a(nc); b(nc) }
	}
	tests := map[string]struct {
		sim                   func(*ec2sim.Options)
		world                 func(*world)
		class                 func(*ec2v1.EC2NodeClass)
		kind, reason, message string
	}{
		"AP-22 a mapping without ebs is told": {class: func(nc *ec2v1.EC2NodeClass) {
			nc.Spec.BlockDeviceMappings = []ec2v1.BlockDeviceMapping{{DeviceName: new("/dev/xvda")}}
		}, reason: "InvalidBlockDeviceMappings", message: "spec.blockDeviceMappings[0].ebs is missing"},
		"AP-26 an unknown kubelet key": {class: settings(`{"fooBar":1}`), reason: "InvalidKubeletConfiguration", message: "fooBar"},
		"AP-28 AL2 drops registryPullQPS": {class: both(settings(`{"registryPullQPS":10}`), func(nc *ec2v1.EC2NodeClass) {
			nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = new("AL2"), []ec2v1.AMISelectorTerm{{Name: "mine"}}
		}), reason: "UnsupportedKubeletConfiguration", message: "not applied by the AL2 AMI family that would be silently dropped: registryPullQPS"},
		"AP-29 Bottlerocket has no podsPerCore":    {class: both(alias("bottlerocket@latest"), settings(`{"podsPerCore":2}`)), reason: "UnsupportedKubeletConfiguration", message: "podsPerCore"},
		"AP-30 soft eviction needs a grace period": {class: settings(`{"evictionSoft":{"memory.available":"5%"}}`), reason: "InvalidKubeletConfiguration", message: "has no matching evictionSoftGracePeriod"},
		"AP-31 expressions are behind a gate":      {class: settings(`{"maxPods":"vcpus*10"}`), reason: "KubeletExpressionsDisabled", message: "NodeClassCEL"},
		"AP-36 AL2 ends with Kubernetes 1.32":      {class: alias("al2@latest"), kind: ec2v1.ConditionAMIsReady, reason: "UnsupportedAlias", message: "1.32"},
		"AP-38 no subnets":                         {class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.SubnetSelectorTerms[0].Tags = map[string]string{"no": "such"} }, kind: ec2v1.ConditionSubnetsReady, reason: "SubnetsNotFound", message: "SubnetSelector did not match any Subnets"},
		"AP-38 validation waits for subnets":       {class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.SubnetSelectorTerms[0].Tags = map[string]string{"no": "such"} }, reason: "DependenciesNotReady", message: "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution"},
		"no security groups": {class: func(nc *ec2v1.EC2NodeClass) {
			nc.Spec.SecurityGroupSelectorTerms = []ec2v1.SecurityGroupSelectorTerm{{Name: "nope"}}
		}, kind: ec2v1.ConditionSecurityGroupsReady, reason: "SecurityGroupsNotFound", message: "SecurityGroupSelector did not match any SecurityGroups"},
		"no images": {class: func(nc *ec2v1.EC2NodeClass) {
			nc.Spec.AMISelectorTerms = []ec2v1.AMISelectorTerm{{Name: "nope"}}
			nc.Spec.AMIFamily = new("AL2023")
		}, kind: ec2v1.ConditionAMIsReady, reason: "AMINotFound", message: "AMISelector did not match any AMIs"},
		"a tag that only the provisioner may set": {class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.Tags = map[string]string{"karpenter.sh/nodepool": "x"} }, reason: "TagValidationFailed", message: "karpenter.sh/nodepool"},
		"WI-38 placement group that is not there": {class: func(nc *ec2v1.EC2NodeClass) {
			nc.Spec.PlacementGroupSelector = &ec2v1.PlacementGroupSelector{Name: "pg"}
		}, kind: ec2v1.ConditionPlacementGroupReady, reason: "PlacementGroupResolutionFailed"},
		"LA-14 CreateFleet is forbidden":          {world: func(w *world) { w.FailNext("CreateFleet", "UnauthorizedOperation", -1) }, reason: "CreateFleetAuthCheckFailed", message: "Controller isn't authorized to call ec2:CreateFleet: User is not authorized"},
		"CreateLaunchTemplate is forbidden":       {world: func(w *world) { w.FailNext("CreateLaunchTemplate", "UnauthorizedOperation", -1) }, reason: "CreateLaunchTemplateAuthCheckFailed", message: "ec2:CreateLaunchTemplate"},
		"RunInstances is forbidden everywhere":    {world: func(w *world) { w.FailNext("RunInstances", "UnauthorizedOperation", -1) }, reason: "RunInstancesAuthCheckFailed", message: "ec2:RunInstances"},
		"LA-18 a profile that is not there":       {class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.Role, nc.Spec.InstanceProfile = "", new("mine") }, reason: "InstanceProfileNotFound", message: `Instance profile "mine" not found`},
		"LA-19 20 KB of user data":                {class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.UserData = new(strings.Repeat("#", 20_000)) }, reason: "UserDataSizeLimitExceeded", message: "16384"},
		"user data that cannot be merged":         {class: both(alias("bottlerocket@latest"), func(nc *ec2v1.EC2NodeClass) { nc.Spec.UserData = new("[broken") }), reason: "UserDataInvalid", message: "TOML"},
		"LA-55 EKS may not be asked for the CIDR": {world: func(w *world) { w.FailNext("DescribeCluster", "AccessDeniedException", -1) }, reason: "ClusterCIDRResolutionFailed", message: "Failed to detect the cluster CIDR"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.sim)
			if tc.world != nil {
				tc.world(w)
			}
			w.class("default", tc.class)
			p := w.start()
			kind := tc.kind
			if kind == "" {
				kind = ec2v1.ConditionValidationSucceeded
			}
			w.eventually("condition is False", func() bool {
				return w.condition("default", kind).Status == metav1.ConditionFalse && w.condition("default", ec2v1.ConditionReady).Status == metav1.ConditionFalse
			})
			got := w.condition("default", kind)
			require.Equal(t, tc.reason, got.Reason, got.Message)
			require.Contains(t, got.Message, tc.message)
			require.Contains(t, w.condition("default", ec2v1.ConditionReady).Message, kind+"=False")
			require.Equal(t, "UnhealthyDependents", w.condition("default", ec2v1.ConditionReady).Reason)
			w.eventually("launches are refused", func() bool {
				_, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: []*karpv1.NodeClaim{{Spec: karpv1.NodeClaimSpec{NodeClassRef: ref("default")}}}})
				return cloud.IsClassNotReady(err)
			})
			require.Empty(t, w.running())
		})
	}
}

func TestBrokenClassDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 15 { // more than there are workers
		w.class(fmt.Sprintf("broken-%d", i), func(nc *ec2v1.EC2NodeClass) { nc.Spec.Role = "no-such-role" })
	}
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	require.Equal(t, metav1.ConditionUnknown, w.condition("broken-0", ec2v1.ConditionInstanceProfileReady).Status)
}

func TestHealthyClassStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	nc := w.getClass("default")
	require.Len(t, nc.Status.Subnets, 3)
	require.NotEmpty(t, nc.Status.Subnets[0].ZoneID)
	require.Len(t, nc.Status.SecurityGroups, 1)
	require.Len(t, nc.Status.AMIs, 5, "LA-01")
	require.Contains(t, nc.Finalizers, ec2v1.TerminationFinalizer)
	require.Equal(t, class.HashVersion, nc.Annotations[ec2v1.AnnotationNodeClassHashVersion])
	profiles := w.Profiles()
	require.Len(t, profiles, 1)
	require.Equal(t, nc.Status.InstanceProfile, profiles[0].Name)
	require.Equal(t, "/karpenter/us-east-1/berth/uid-default/", profiles[0].Path, "LA-09")
	require.Equal(t, role, profiles[0].Role)
	last := nc.Status.Conditions[len(nc.Status.Conditions)-1]
	require.Equal(t, ec2v1.ConditionReady, last.Type)
	for _, c := range nc.Status.Conditions {
		require.Equal(t, c.Type, c.Reason)
		require.Equal(t, nc.Generation, c.ObservedGeneration)
	}
	w.waitEvent("Type: Ready, Status: Unknown -> True")
}

func TestLA16OneSubnetThatWorksIsEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.FailNext("RunInstances", "UnauthorizedOperation", 1)
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	require.Equal(t, 2, w.CallCount("RunInstances"))
}

func TestLA15ThrottledDryRunDecidesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.FailNext("CreateFleet", "RequestLimitExceeded", -1)
	w.class("default", nil)
	w.start()
	w.eventually("dry run was tried", func() bool { return w.CallCount("CreateFleet") > 0 })
	require.Equal(t, metav1.ConditionUnknown, w.condition("default", ec2v1.ConditionValidationSucceeded).Status)
}

func TestLA17NoDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.change = func(c *aws.Config) { c.DisableDryRun = true }
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	for _, action := range []string{"CreateLaunchTemplate", "CreateFleet", "RunInstances"} {
		require.Zero(t, w.CallCount(action), action)
	}
}

func TestLA11MissingRoleLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.class("default", func(nc *ec2v1.EC2NodeClass) { nc.Spec.Role = "nope" })
	w.start()
	w.eventually("profile was tried", func() bool { return w.CallCount("AddRoleToInstanceProfile") > 0 })
	w.eventually("and removed", func() bool { return len(w.Profiles()) == 0 })
	require.Never(t, func() bool { return w.CallCount("AddRoleToInstanceProfile") > 1 }, 1500*time.Millisecond, 50*time.Millisecond,
		"a retry within a minute does not ask IAM again")
}

func TestAP39ThrottledDescribeChangesNoCondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.FailNext("DescribeSubnets", "RequestLimitExceeded", 2) // both attempts of the SDK
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
}

func TestAP40And41ClassWaitsForItsClaims(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	claims := w.claims("default", 7, capacity(onDemand), types("m5.large"))
	_, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	w.eventually("claims are seen", func() bool {
		list, err := p.informers.Karpenter().V1().NodeClaims().Lister().List(labels.Everything())
		return err == nil && len(list) == 7
	})
	nc := w.getClass("default")
	nc.DeletionTimestamp = new(metav1.Now())
	_, err = w.api.EC2V1().EC2NodeClasses().Update(t.Context(), nc, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.waitEvent("Waiting on NodeClaim termination for claim-0, claim-1, claim-2, claim-3, claim-4 and 2 other(s)")
	require.Contains(t, w.getClass("default").Finalizers, ec2v1.TerminationFinalizer)
	_, err = p.Create(t.Context(), cloud.Group{ID: "h", Attempt: 1, Claims: claims[:1]})
	require.True(t, cloud.IsClassNotReady(err))

	for _, c := range claims {
		require.NoError(t, w.api.KarpenterV1().NodeClaims().Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	}
	w.eventually("finalizer is off", func() bool {
		nc, err := w.api.EC2V1().EC2NodeClasses().Get(t.Context(), "default", metav1.GetOptions{})
		return apierrors.IsNotFound(err) || len(nc.Finalizers) == 0
	})
	require.Empty(t, w.Profiles())
	require.Positive(t, w.CallCount("DeleteLaunchTemplate"))
}

func TestAP46And47OldHashesAreStampedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i, c := range w.claims("default", 3) {
		c.Annotations = map[string]string{ec2v1.AnnotationNodeClassHash: "1", ec2v1.AnnotationNodeClassHashVersion: "v6"}
		if i == 1 {
			c.Status.Conditions = []metav1.Condition{{Type: karpv1.ConditionDrifted, Status: metav1.ConditionTrue}}
		}
		if i == 2 {
			c.Spec.NodeClassRef.Group = "other.example"
		}
		_, err := w.api.KarpenterV1().NodeClaims().Update(t.Context(), c, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	get := func(name string) *karpv1.NodeClaim {
		c, err := w.api.KarpenterV1().NodeClaims().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return c
	}
	hash := w.getClass("default").Annotations[ec2v1.AnnotationNodeClassHash]
	require.Equal(t, hash, get("claim-0").Annotations[ec2v1.AnnotationNodeClassHash])
	require.Equal(t, "1", get("claim-1").Annotations[ec2v1.AnnotationNodeClassHash], "it stays drifted")
	require.Equal(t, class.HashVersion, get("claim-1").Annotations[ec2v1.AnnotationNodeClassHashVersion])
	require.Equal(t, "v6", get("claim-2").Annotations[ec2v1.AnnotationNodeClassHashVersion], "claims of others are left alone")
}

func TestDrift(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	claims := w.claims("default", 1, capacity(onDemand), types("m5.large"))
	got, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	launched := func() *karpv1.NodeClaim {
		c := claims[0].DeepCopy()
		i := got[0].Instance
		c.Labels, c.Annotations = i.Labels, i.Annotations
		c.Status.ProviderID, c.Status.ImageID = i.ProviderID, i.ImageID
		return c
	}
	reason := func(c *karpv1.NodeClaim) cloud.DriftReason {
		r, err := p.IsDrifted(t.Context(), c)
		require.NoError(t, err)
		return r
	}
	require.Empty(t, reason(launched()))
	c := launched()
	c.Annotations = map[string]string{ec2v1.AnnotationNodeClassHash: "other", ec2v1.AnnotationNodeClassHashVersion: class.HashVersion}
	require.EqualValues(t, "NodeClassDrift", reason(c), "AP-44")
	c.Annotations[ec2v1.AnnotationNodeClassHashVersion] = "v6"
	require.Empty(t, reason(c), "hashes of other versions say nothing")
	c = launched()
	c.Status.ImageID = "ami-old"
	require.EqualValues(t, "AMIDrift", reason(c))
	c = launched()
	c.Spec.NodeClassRef = ref("gone")
	require.Empty(t, reason(c), "without a class there is nothing to drift from")
	c = launched()
	c.Status.ImageID = ""
	_, err = p.IsDrifted(t.Context(), c)
	require.Error(t, err)

	change := func(f func(*ec2v1.EC2NodeClassStatus)) {
		nc := w.getClass("default")
		f(&nc.Status)
		_, err := w.api.EC2V1().EC2NodeClasses().UpdateStatus(t.Context(), nc, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	subnets := w.getClass("default").Status.Subnets
	change(func(s *ec2v1.EC2NodeClassStatus) { s.Subnets = []ec2v1.Subnet{{ID: "subnet-else", Zone: "us-east-1a"}} })
	w.eventually("SubnetDrift", func() bool { return reason(launched()) == "SubnetDrift" })
	change(func(s *ec2v1.EC2NodeClassStatus) {
		s.Subnets, s.SecurityGroups = subnets, append(s.SecurityGroups, ec2v1.SecurityGroup{ID: "sg-more"})
	})
	w.eventually("SecurityGroupDrift", func() bool { return reason(launched()) == "SecurityGroupDrift" })
}

func TestAP51And52Readiness(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	p.stop() // the class controller would put the status right
	claims := w.claims("default", 1, capacity(onDemand), types("m5.large"))
	nc := w.getClass("default")
	meta.SetStatusCondition(&nc.Status.Conditions, metav1.Condition{Type: ec2v1.ConditionReady, Status: metav1.ConditionUnknown, Reason: "x"})
	require.NoError(t, p.informers.EC2().V1().EC2NodeClasses().Informer().GetStore().Update(nc))
	_, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	var failed *cloud.CreateError
	require.ErrorAs(t, err, &failed, "AP-52")
	require.Equal(t, "NodeClassReadinessUnknown", failed.Reason)

	meta.SetStatusCondition(&nc.Status.Conditions, metav1.Condition{Type: ec2v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "x", ObservedGeneration: nc.Generation})
	nc.Generation++
	_, err = p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.True(t, cloud.IsClassNotReady(err), "AP-51")
	require.ErrorContains(t, err, "status has not been reconciled against the latest spec")
}

func TestUnreachableAWSIsToldAndRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	good := w.url
	w.url = "http://127.0.0.1:1"
	w.class("default", nil)
	p := w.start()
	_, err := p.InstanceTypes(t.Context(), pool("default"))
	require.ErrorContains(t, err, "EC2 has not answered yet")
	require.ErrorContains(t, p.Ready(), "AWS has not told")
	p.stop()

	// One that comes back is noticed without a restart.
	w.url = good
	w.FailNext("DescribeInstanceTypes", "InternalError", 3)
	q := w.start()
	w.waitReady(q, "default")
}

func TestForeignClassesAreRefused(t *testing.T) {
	t.Parallel()
	_, p := ready(t, nil)
	for _, r := range []*karpv1.NodeClassReference{nil, {Group: "other", Kind: "EC2NodeClass", Name: "default"}, ref("missing")} {
		np := &karpv1.NodePool{}
		np.Spec.Template.Spec.NodeClassRef = r
		_, err := p.InstanceTypes(t.Context(), np)
		require.True(t, cloud.IsClassNotReady(err))
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := aws.New(aws.Config{})
	for _, field := range []string{"Region", "ClusterName", "ClusterEndpoint", "KubernetesVersion", "Client", "Informers", "Registry"} {
		require.ErrorContains(t, err, field+" is missing")
	}
}

func TestRepairPolicies(t *testing.T) {
	t.Parallel()
	_, p := ready(t, nil)
	policies := p.RepairPolicies()
	require.Len(t, policies, 7)
	require.Equal(t, cloud.RepairPolicy{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, Toleration: 30 * time.Minute}, policies[0])
}
