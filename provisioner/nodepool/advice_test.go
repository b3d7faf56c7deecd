package nodepool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/resources"
)

func readyClass(zones ...string) *ec2v1.EC2NodeClass {
	class := makeClass(metav1.ConditionTrue, "", "")
	for _, z := range zones {
		class.Status.Subnets = append(class.Status.Subnets, ec2v1.Subnet{ID: "subnet-" + z, Zone: z, ZoneID: "id-" + z})
	}
	return class
}

func message(pool *karpv1.NodePool, kind string) string {
	if c := meta.FindStatusCondition(pool.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// nextWarning returns the next warning event that mentions the text.
func nextWarning(t *testing.T, w *world, mention string) string {
	t.Helper()
	var last string
	require.Eventually(t, func() bool {
		select {
		case last = <-w.sink.Events:
		default:
		}
		return len(last) > 7 && last[:7] == "Warning" && strings.Contains(last, mention)
	}, 10*time.Second, time.Millisecond, "no warning about %q", mention)
	return last
}

func TestZonesWithoutSubnetAreTold(t *testing.T) {
	t.Parallel()
	requirement := func(key string, op corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
	}
	tests := map[string]struct {
		requirement karpv1.NodeSelectorRequirementWithMinValues
		want        string // in the message; "" for none
	}{
		"served":                  {requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "zone-a"), ""},
		"not served":              {requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "zone-a", "zone-z"), "names zone-z, and there is no matching subnet in EC2NodeClass"},
		"by zone ID":              {requirement(ec2v1.LabelTopologyZoneID, corev1.NodeSelectorOpIn, "id-zone-z"), "names id-zone-z"},
		"by the old key":          {requirement(corev1.LabelFailureDomainBetaZone, corev1.NodeSelectorOpIn, "zone-z"), "names zone-z"},
		"to be absent is no wish": {requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpNotIn, "zone-z"), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := makePool()
			pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, tc.requirement)
			w := start(t, pool, readyClass("zone-a", "zone-b"))
			status := metav1.ConditionTrue
			if tc.want != "" {
				status = metav1.ConditionFalse
			}
			got := w.wait(t, func(p *karpv1.NodePool) bool {
				return meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, karpv1.ConditionZonesServed, status)
			})
			require.Contains(t, message(got, karpv1.ConditionZonesServed), tc.want)
			for _, c := range got.Status.Conditions {
				require.Regexp(t, `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`, c.Reason, "the API server refuses other reasons")
			}
			w.wait(t, is(karpv1.ConditionReady, metav1.ConditionTrue, ""))
			if tc.want != "" {
				require.Contains(t, nextWarning(t, w, "ZoneWithoutSubnet"), tc.want)
			}
		})
	}
}

func TestReachedLimitsAreTold(t *testing.T) {
	t.Parallel()
	pool := makePool()
	pool.Spec.Limits = karpv1.Limits{karpv1.ResourceNodes: resource.MustParse("3"), corev1.ResourceCPU: resource.MustParse("10")}
	w := start(t, pool, readyClass("zone-a"))
	w.model.use(pool.Name, resources.Vector{MilliCPU: 6000}.With(karpv1.ResourceNodes, 3))
	require.Eventually(t, func() bool {
		w.clock.Step(5 * time.Second)
		return meta.IsStatusConditionFalse(w.get(t).Status.Conditions, karpv1.ConditionWithinLimits)
	}, 10*time.Second, 5*time.Millisecond)
	got := w.wait(t, is(karpv1.ConditionWithinLimits, metav1.ConditionFalse, karpv1.ReasonLimitReached))
	require.Contains(t, message(got, karpv1.ConditionWithinLimits), "spec.limits: the limit is reached: nodes 3 of 3")
	require.Contains(t, nextWarning(t, w, "LimitReached"), "nodes 3 of 3")
	w.model.use(pool.Name, resources.Vector{MilliCPU: 4000}.With(karpv1.ResourceNodes, 2))
	require.Eventually(t, func() bool {
		w.clock.Step(5 * time.Second)
		return meta.IsStatusConditionTrue(w.get(t).Status.Conditions, karpv1.ConditionWithinLimits)
	}, 10*time.Second, 5*time.Millisecond)
}

func TestSafetyBrakesAreToldAndForgotten(t *testing.T) {
	t.Parallel()
	pool := makePool()
	w := start(t, pool, readyClass("zone-a"))
	w.wait(t, is(karpv1.ConditionReady, metav1.ConditionTrue, ""))
	require.Nil(t, meta.FindStatusCondition(w.get(t).Status.Conditions, karpv1.ConditionLaunchesAllowed), "a pool that was never held back has no such condition")
	w.controller.RecordBrake(pool.Name, "the cluster has 10 nodes and the node cap is 10")
	got := w.wait(t, is(karpv1.ConditionLaunchesAllowed, metav1.ConditionFalse, karpv1.ReasonSafetyBrake))
	require.Contains(t, message(got, karpv1.ConditionLaunchesAllowed), "node cap is 10")
	require.Eventually(t, func() bool {
		w.clock.Step(30 * time.Second)
		return meta.IsStatusConditionTrue(w.get(t).Status.Conditions, karpv1.ConditionLaunchesAllowed)
	}, 10*time.Second, 5*time.Millisecond, "it heals by itself")
}
