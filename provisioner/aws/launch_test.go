package aws_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	onDemand = karpv1.CapacityTypeOnDemand
	spot     = karpv1.CapacityTypeSpot
)

// ready is a world with a ready class, a running provider and an empty journal.
func ready(t *testing.T, change func(*ec2sim.Options)) (*world, *process) {
	t.Helper()
	w := newWorld(t, change)
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	w.ResetCalls()
	return w, p
}

func types(names ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return in(corev1.LabelInstanceTypeStable, names...)
}

func capacity(kinds ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return in(karpv1.LabelCapacityType, kinds...)
}

// fleets are the CreateFleet requests that EC2 got, dry runs apart.
func (w *world) fleets() []url.Values {
	var out []url.Values
	for _, c := range w.Calls() {
		if form := c.Form(); c.Action == "CreateFleet" && form.Get("DryRun") != "true" {
			out = append(out, form)
		}
	}
	return out
}

func (w *world) template() url.Values {
	w.t.Helper()
	for _, c := range slices.Backward(w.Calls()) {
		if c.Action == "CreateLaunchTemplate" {
			return c.Form()
		}
	}
	w.t.Fatal("no launch template was made")
	return nil
}

func providerIDs(t *testing.T, created []cloud.Created) []string {
	t.Helper()
	ids := make([]string, len(created))
	for i, c := range created {
		require.NoError(t, c.Err)
		ids[i] = c.Instance.ProviderID
	}
	return ids
}

func distinct(ids []string) int { return len(slices.Compact(slices.Sorted(slices.Values(ids)))) }

func TestWI11LA20AGroupIsOneCall(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	group := cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", 20, capacity(onDemand), types("m5.large"))}
	got, err := p.Create(t.Context(), group)
	require.NoError(t, err)
	require.Equal(t, 20, distinct(providerIDs(t, got)))
	require.Len(t, w.fleets(), 1)
	require.Equal(t, "20", w.fleets()[0].Get("TargetCapacitySpecification.TotalTargetCapacity"))
	require.Equal(t, "lowest-price", w.fleets()[0].Get("OnDemandOptions.AllocationStrategy"))
	require.Equal(t, "instant", w.fleets()[0].Get("Type"))

	again, err := p.Create(t.Context(), group)
	require.NoError(t, err)
	require.Equal(t, providerIDs(t, got), providerIDs(t, again))
	require.Len(t, w.running(), 20)
}

// A process dies after CreateFleet and before any status was written; the next one repeats the group.
func TestRestartNeverLaunchesTwice(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		members int
		before  func(w *world) // before the first process launches
		between func(w *world) // the two processes
		dies    bool           // the first process gets no reply
	}{
		"alone, with the reply":    {members: 1},
		"alone, without the reply": {members: 1, before: func(w *world) { w.DropReplyNext("CreateFleet", 2) }, dies: true},
		"20, with the reply":       {members: 20},
		"20, without the reply":    {members: 20, before: func(w *world) { w.DropReplyNext("CreateFleet", 2) }, dies: true},
		"20, and the class has changed since": {members: 20, between: func(w *world) {
			nc := w.getClass("default")
			nc.Spec.UserData, nc.Generation = new("echo changed"), 2
			_, err := w.api.EC2V1().EC2NodeClasses().Update(w.t.Context(), nc, metav1.UpdateOptions{})
			require.NoError(w.t, err)
		}},
		"20, and the price has changed since": {members: 20, between: func(w *world) { w.SetOnDemandPrice("m5.large", 1) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, first := ready(t, nil)
			if tc.before != nil {
				tc.before(w)
			}
			group := cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", tc.members, capacity(onDemand), types("m5.large"))}
			want, err := first.Create(t.Context(), group)
			if tc.dies {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
			first.stop()
			require.Len(t, w.running(), tc.members)
			if tc.between != nil {
				tc.between(w)
			}
			second := w.start()
			w.waitReady(second, "default")
			var got []cloud.Created
			w.eventually("second process answers", func() bool {
				got, err = second.Create(t.Context(), replayed(group))
				return err == nil
			})
			require.Equal(t, tc.members, distinct(providerIDs(t, got)))
			require.Len(t, w.running(), tc.members, "no second instance")
			if !tc.dies {
				require.ElementsMatch(t, providerIDs(t, want), providerIDs(t, got))
			}
			for i, c := range group.Claims {
				require.Equal(t, c.Name, got[i].Instance.ClaimName)
			}
		})
	}
}

// EC2 does not show new instances for a while: the token alone has to keep the launch single.
func TestRestartBeforeInstancesAreVisible(t *testing.T) {
	t.Parallel()
	w, first := ready(t, func(o *ec2sim.Options) { o.VisibilityDelay = time.Hour })
	group := cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", 5, capacity(spot), types("m5.large", "m5.xlarge"))}
	want, err := first.Create(t.Context(), group)
	require.NoError(t, err)
	first.stop()
	second := w.start()
	w.waitReady(second, "default")
	got, err := second.Create(t.Context(), replayed(group))
	require.NoError(t, err)
	require.Equal(t, providerIDs(t, want), providerIDs(t, got))
	require.Len(t, w.running(), 5)
}

// Another request under the same token is refused, and EC2 shows the instances of the first one late.
func TestRestartWithAChangedClassBeforeInstancesAreVisible(t *testing.T) {
	t.Parallel()
	w, first := ready(t, func(o *ec2sim.Options) { o.VisibilityDelay = 2500 * time.Millisecond })
	group := cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", 5, capacity(onDemand), types("m5.large"))}
	want, err := first.Create(t.Context(), group)
	require.NoError(t, err)
	first.stop()
	nc := w.getClass("default")
	nc.Spec.UserData = new("echo changed")
	_, err = w.api.EC2V1().EC2NodeClasses().Update(t.Context(), nc, metav1.UpdateOptions{})
	require.NoError(t, err)
	second := w.start()
	w.waitReady(second, "default")
	got, err := second.Create(t.Context(), replayed(group))
	require.NoError(t, err)
	require.ElementsMatch(t, providerIDs(t, want), providerIDs(t, got))
	require.Len(t, w.running(), 5)
}

// The first process asked for 5, got 2, and died; the class changed. Only 3 more are launched.
func TestRestartLaunchesOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	w, first := ready(t, nil)
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		w.SetPoolDepth("m5.large", zone, onDemand, map[bool]int{true: 2, false: 0}[zone == "us-east-1a"])
	}
	group := cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", 5, capacity(onDemand), types("m5.large"))}
	got, err := first.Create(t.Context(), group)
	require.NoError(t, err)
	require.Len(t, w.running(), 2)
	require.True(t, cloud.IsNoCapacity(got[4].Err))
	first.stop()
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		w.SetPoolDepth("m5.large", zone, onDemand, 10)
	}
	nc := w.getClass("default")
	nc.Spec.UserData = new("echo changed")
	_, err = w.api.EC2V1().EC2NodeClasses().Update(t.Context(), nc, metav1.UpdateOptions{})
	require.NoError(t, err)
	second := w.start()
	w.waitReady(second, "default")
	got, err = second.Create(t.Context(), replayed(group))
	require.NoError(t, err)
	require.Equal(t, 5, distinct(providerIDs(t, got)))
	require.Len(t, w.running(), 5)
}

func TestRestartLeavesInstancesOfOtherClaimsAlone(t *testing.T) {
	t.Parallel()
	w, first := ready(t, nil)
	claims := w.claims("default", 2, capacity(onDemand), types("m5.large"))
	got, err := first.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	w.FailNext("CreateTags", "InternalError", -1) // only the claim's status tells whose the instance is
	// One claim knows its instance, the one that would be taken first; the other does not.
	knows := 0
	if instance.IDOf(got[1].Instance.ProviderID) < instance.IDOf(got[0].Instance.ProviderID) {
		knows = 1
	}
	claims[knows].Status.ProviderID = got[knows].Instance.ProviderID
	_, err = w.api.KarpenterV1().NodeClaims().UpdateStatus(t.Context(), claims[knows], metav1.UpdateOptions{})
	require.NoError(t, err)
	first.stop()
	second := w.start()
	w.waitReady(second, "default")
	alone, err := second.Create(t.Context(), replayed(cloud.Group{ID: "g", Attempt: 2, Claims: []*karpv1.NodeClaim{claims[1-knows]}}))
	require.NoError(t, err)
	require.Equal(t, got[1-knows].Instance.ProviderID, alone[0].Instance.ProviderID, "adopted, not launched")
	require.Len(t, w.running(), 2)
}

func TestLA21ExtraMembersGetTheErrors(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		w.SetPoolDepth("m5.large", zone, onDemand, map[bool]int{true: 1, false: 0}[zone == "us-east-1a"])
	}
	got, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", 2, capacity(onDemand), types("m5.large"))})
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	require.True(t, cloud.IsNoCapacity(got[1].Err))
	require.ErrorContains(t, got[1].Err, "InsufficientInstanceCapacity")
}

func TestLA22DeletedTemplateIsMadeAgain(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	claims := w.claims("default", 1, capacity(onDemand), types("m5.large"))
	w.FailNext("CreateFleet", "InvalidLaunchTemplateName.NotFoundException", 1)
	got, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	require.Len(t, w.fleets(), 2)
	w.FailNext("CreateFleet", "InvalidLaunchTemplateName.NotFoundException", 2)
	_, err = p.Create(t.Context(), cloud.Group{ID: "h", Attempt: 1, Claims: claims})
	require.Error(t, err, "one retry, not more")
}

func TestLaunchRequest(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		class    func(*ec2v1.EC2NodeClass)
		reqs     []karpv1.NodeSelectorRequirementWithMinValues
		claim    func(*karpv1.NodeClaim)
		fleet    map[string]string
		template map[string]string // "" means absent
	}{
		"LA-25 spot": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(spot, onDemand), types("m5.large")},
			fleet:    map[string]string{"SpotOptions.AllocationStrategy": "price-capacity-optimized", "TargetCapacitySpecification.DefaultTargetCapacityType": "spot"},
			template: map[string]string{"LaunchTemplateData.TagSpecification.2.ResourceType": "spot-instances-request"}},
		"LA-26 overlaid spot": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(spot), types("m5.large")},
			claim: func(c *karpv1.NodeClaim) {
				c.Annotations = map[string]string{karpv1.AnnotationPriceOverlayApplied: "true"}
			},
			fleet: map[string]string{"SpotOptions.AllocationStrategy": "capacity-optimized-prioritized"}},
		"LA-26 overlaid on-demand": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")},
			claim: func(c *karpv1.NodeClaim) {
				c.Annotations = map[string]string{karpv1.AnnotationPriceOverlayApplied: "true"}
			},
			fleet: map[string]string{"OnDemandOptions.AllocationStrategy": "prioritized"}},
		"LA-30 on-demand keeps out of open reservations": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")},
			fleet: map[string]string{"OnDemandOptions.AllocationStrategy": "lowest-price"},
			template: map[string]string{"LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference": "none",
				"LaunchTemplateData.Monitoring.Enabled": "false", "LaunchTemplateData.MetadataOptions.InstanceMetadataTags": "disabled",
				"LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit": "1", "LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize": "20",
				"LaunchTemplateData.NetworkInterface.2.DeviceIndex": "", "LaunchTemplateData.SecurityGroupId.1": ""}},
		"LA-34 four EFAs": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("p4d.24xlarge")},
			claim: func(c *karpv1.NodeClaim) {
				c.Spec.Resources.Requests = corev1.ResourceList{ec2v1.ResourceEFA: resource.MustParse("4")}
			},
			template: map[string]string{"LaunchTemplateData.NetworkInterface.1.InterfaceType": "efa", "LaunchTemplateData.NetworkInterface.1.DeviceIndex": "0",
				"LaunchTemplateData.NetworkInterface.4.NetworkCardIndex": "3", "LaunchTemplateData.NetworkInterface.4.DeviceIndex": "1", "LaunchTemplateData.NetworkInterface.5.DeviceIndex": ""}},
		"LA-35 EFA type without the request": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("p4d.24xlarge")},
			template: map[string]string{"LaunchTemplateData.NetworkInterface.1.InterfaceType": "", "LaunchTemplateData.NetworkInterface.2.DeviceIndex": ""}},
		"AP-21 Bottlerocket has two volumes": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")},
			class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.AMISelectorTerms[0].Alias = "bottlerocket@latest" },
			template: map[string]string{"LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize": "4", "LaunchTemplateData.BlockDeviceMapping.2.DeviceName": "/dev/xvdb",
				"LaunchTemplateData.BlockDeviceMapping.2.Ebs.VolumeSize": "20", "LaunchTemplateData.BlockDeviceMapping.2.Ebs.VolumeType": "gp3", "LaunchTemplateData.BlockDeviceMapping.2.Ebs.Encrypted": "true"}},
		"volume sizes are whole GiB, rounded up": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")},
			class: func(nc *ec2v1.EC2NodeClass) {
				nc.Spec.BlockDeviceMappings = []ec2v1.BlockDeviceMapping{{DeviceName: new("/dev/xvda"), EBS: &ec2v1.BlockDevice{VolumeSize: new(resource.MustParse("1T")), IOPS: new(int64(0))}}}
			},
			template: map[string]string{"LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize": "932", "LaunchTemplateData.BlockDeviceMapping.1.Ebs.Iops": ""}},
		"dedicated tenancy": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large"), in(ec2v1.LabelInstanceTenancy, "dedicated")},
			template: map[string]string{"LaunchTemplateData.Placement.Tenancy": "dedicated"}},
		"enclaves": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.xlarge")},
			claim: func(c *karpv1.NodeClaim) {
				c.Spec.Resources.Requests = corev1.ResourceList{ec2v1.ResourceNitroSandbox: resource.MustParse("1")}
			},
			template: map[string]string{"LaunchTemplateData.EnclaveOptions.Enabled": "true"}},
		"the class's context": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")},
			class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.Context = new("ctx-1") }, fleet: map[string]string{"Context": "ctx-1"}},
		"no context for relaxed minValues": {reqs: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")},
			class: func(nc *ec2v1.EC2NodeClass) { nc.Spec.Context = new("ctx-1") },
			claim: func(c *karpv1.NodeClaim) {
				c.Annotations = map[string]string{karpv1.AnnotationMinValuesRelaxed: "true"}
			},
			fleet: map[string]string{"Context": ""}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.class("default", tc.class)
			p := w.start()
			w.waitReady(p, "default")
			w.ResetCalls()
			claims := w.claims("default", 1, tc.reqs...)
			if tc.claim != nil {
				tc.claim(claims[0])
			}
			claims[0].Labels["made-up"] = name[:2] // another template than that of the dry run
			_, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
			require.NoError(t, err)
			for key, want := range tc.fleet {
				require.Equal(t, want, w.fleets()[0].Get(key), key)
			}
			form := w.template()
			for key, want := range tc.template {
				require.Equal(t, want, form.Get(key), key)
			}
		})
	}
}

func TestCapacityErrors(t *testing.T) {
	t.Parallel()
	zones := []string{"us-east-1a", "us-east-1b", "us-east-1c"}
	available := func(w *world, p *process, zone, kind string) bool {
		list, err := p.InstanceTypes(w.t.Context(), pool("default"))
		require.NoError(w.t, err)
		for _, it := range list {
			if it.Name != "m5.large" {
				continue
			}
			for _, o := range it.Offerings {
				if o.Zone == zone && o.CapacityType == kind {
					return o.Available
				}
			}
		}
		w.t.Fatalf("no offering of m5.large in %s", zone)
		return false
	}
	launch := func(w *world, p *process, kinds ...string) ([]cloud.Created, error) {
		return p.Create(w.t.Context(), cloud.Group{ID: fmt.Sprint(len(w.Calls())), Attempt: 1, Claims: w.claims("default", 1, capacity(kinds...), types("m5.large"))})
	}
	t.Run("LA-31 WI-09 all out of stock gives the claim up and hides the offerings", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.SetInsufficientCapacity("m5.large", "", onDemand, true)
		got, err := launch(w, p, onDemand)
		require.NoError(t, err)
		require.True(t, cloud.IsNoCapacity(got[0].Err), got[0].Err)
		require.ErrorContains(t, got[0].Err, "with fleet error(s), InsufficientInstanceCapacity")
		for _, zone := range zones {
			require.False(t, available(w, p, zone, onDemand))
			require.True(t, available(w, p, zone, spot))
		}
	})
	t.Run("LA-32 a mix of reasons keeps the claim and still hides what is out of stock", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.SetLaunchError("m5.large", "us-east-1a", onDemand, "InsufficientInstanceCapacity")
		w.SetLaunchError("m5.large", "us-east-1b", onDemand, "UnauthorizedOperation")
		w.SetLaunchError("m5.large", "us-east-1c", onDemand, "UnauthorizedOperation")
		got, err := launch(w, p, onDemand)
		require.NoError(t, err)
		var failed *cloud.CreateError
		require.ErrorAs(t, got[0].Err, &failed)
		require.Equal(t, "Unauthorized", failed.Reason)
		require.False(t, available(w, p, "us-east-1a", onDemand))
		require.True(t, available(w, p, "us-east-1b", onDemand))
	})
	t.Run("LA-33 WI-08 an instance and the marks of the others", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.SetInsufficientCapacity("m5.large", "us-east-1a", onDemand, true)
		got, err := launch(w, p, onDemand)
		require.NoError(t, err)
		require.NoError(t, got[0].Err)
		require.False(t, available(w, p, "us-east-1a", onDemand))
		require.True(t, available(w, p, "us-east-1b", onDemand))
	})
	t.Run("IT-36 full subnets hide the zone", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.SetLaunchError("m5.large", "us-east-1a", "", "InsufficientFreeAddressesInSubnet")
		got, err := launch(w, p, onDemand)
		require.NoError(t, err)
		require.NoError(t, got[0].Err)
		require.False(t, available(w, p, "us-east-1a", onDemand))
		require.False(t, available(w, p, "us-east-1a", spot), "the subnet is full for every launch")
	})
	t.Run("IT-37 no role for spot hides all spot", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.SetLaunchError("", "", spot, "AuthFailure.ServiceLinkedRoleCreationNotPermitted")
		got, err := launch(w, p, spot, onDemand)
		require.NoError(t, err)
		require.True(t, cloud.IsNoCapacity(got[0].Err), "the next round goes on demand")
		require.False(t, available(w, p, "us-east-1b", spot))
		require.True(t, available(w, p, "us-east-1b", onDemand))
		w.waitEvent("AuthFailure.ServiceLinkedRoleCreationNotPermitted")
	})
	t.Run("nothing left to ask for is no capacity", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.SetInsufficientCapacity("m5.large", "", onDemand, true)
		_, err := launch(w, p, onDemand)
		require.NoError(t, err)
		require.NoError(t, w.api.KarpenterV1().NodeClaims().Delete(t.Context(), "claim-0", metav1.DeleteOptions{}))
		w.ResetCalls()
		got, err := launch(w, p, onDemand)
		require.NoError(t, err)
		require.True(t, cloud.IsNoCapacity(got[0].Err))
		require.ErrorContains(t, got[0].Err, "all requested instance types were unavailable during launch")
		require.Empty(t, w.fleets())
	})
	t.Run("throttling is told apart", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.FailNext("CreateFleet", "RequestLimitExceeded", 5)
		_, err := launch(w, p, onDemand)
		var throttled *cloud.ThrottledError
		require.ErrorAs(t, err, &throttled)
	})
	t.Run("a refused call keeps the claim with a reason", func(t *testing.T) {
		t.Parallel()
		w, p := ready(t, nil)
		w.FailNext("CreateFleet", "UnauthorizedOperation", 1)
		_, err := launch(w, p, onDemand)
		var failed *cloud.CreateError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "Unauthorized", failed.Reason)
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	claims := w.claims("default", 3, capacity(onDemand), types("m5.large"))
	got, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	for i, c := range claims {
		c.Status.ProviderID = got[i].Instance.ProviderID
	}
	require.NoError(t, p.Delete(t.Context(), claims[0]))
	w.ResetCalls()
	t.Run("LA-49 one that is shutting down is left alone", func(t *testing.T) {
		require.NoError(t, p.Delete(t.Context(), claims[0]))
		require.Zero(t, w.CallCount("TerminateInstances"))
	})
	t.Run("one that is gone is told", func(t *testing.T) {
		w.eventually("terminated", func() bool { return cloud.IsNotFound(p.Delete(t.Context(), claims[0])) })
		_, err := p.Get(t.Context(), claims[0].Status.ProviderID)
		require.True(t, cloud.IsNotFound(err))
	})
	t.Run("LA-50 WI-18 WI-19 a bad id does not keep the others", func(t *testing.T) {
		errs := make(chan error, 2)
		go func() { errs <- p.Delete(t.Context(), claims[1]) }()
		go func() {
			_, err := p.Get(t.Context(), "aws:///us-east-1a/i-0123456789abcdef0")
			errs <- err
		}()
		var missing, fine int
		for range 2 {
			if err := <-errs; cloud.IsNotFound(err) {
				missing++
			} else if err == nil {
				fine++
			}
		}
		require.Equal(t, []int{1, 1}, []int{missing, fine})
	})
	t.Run("a claim that does not know its instance is found by tag", func(t *testing.T) {
		lone := w.running()
		require.Len(t, lone, 1)
		stray := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-2"}}
		require.True(t, cloud.IsNotFound(p.Delete(t.Context(), stray)), "not tagged yet")
	})
	_, err = p.Get(t.Context(), "nonsense")
	require.True(t, cloud.IsNotFound(err))
}

func TestLA51InstancesGetTheNamesOfNodeAndClaim(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	claims := w.claims("default", 2, capacity(onDemand), types("m5.large"))
	got, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: claims})
	require.NoError(t, err)
	for i, c := range claims {
		c.Status.ProviderID = got[i].Instance.ProviderID
		claims[i], err = w.api.KarpenterV1().NodeClaims().UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	w.eventually("instances are tagged", func() bool {
		for i, live := range w.running() {
			if live.Tags["karpenter.sh/nodeclaim"] != claims[i].Name || live.Tags["Name"] != live.PrivateDNSName {
				return false
			}
		}
		return true
	})
	require.Equal(t, 2, w.CallCount("CreateTags"), "one call for each")
	claims[0].Status.NodeName = w.running()[0].PrivateDNSName
	_, err = w.api.KarpenterV1().NodeClaims().UpdateStatus(t.Context(), claims[0], metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("claim says so", func() bool {
		c, err := w.api.KarpenterV1().NodeClaims().Get(t.Context(), claims[0].Name, metav1.GetOptions{})
		return err == nil && c.Annotations[ec2v1.AnnotationTagged] == "true" && c.Annotations[ec2v1.AnnotationClusterNameTagged] == "true"
	})
	require.Equal(t, 2, w.CallCount("CreateTags"), "nothing was missing any more")
}
