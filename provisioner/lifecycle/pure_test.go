package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestOrphans(t *testing.T) {
	t.Parallel()
	old, young := now.Add(-time.Minute), now.Add(-10*time.Second)
	claim := func(name, id, group string) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		c.Status.ProviderID = id
		if group != "" {
			c.Annotations[karpv1.AnnotationLaunchGroup] = cloud.GroupRef{ID: group, Attempt: 1, Members: []string{name}}.Encode()
		}
		return c
	}
	tests := map[string]struct {
		instance cloud.Instance
		claims   []*karpv1.NodeClaim
		orphan   bool
	}{
		"nobody's":                       {instance: cloud.Instance{ProviderID: "i", LaunchTime: old}, orphan: true},
		"just launched":                  {instance: cloud.Instance{ProviderID: "i", LaunchTime: young}},
		"going already":                  {instance: cloud.Instance{ProviderID: "i", LaunchTime: old, Terminating: true}},
		"owned by provider ID":           {instance: cloud.Instance{ProviderID: "i", LaunchTime: old}, claims: []*karpv1.NodeClaim{claim("c", "i", "")}},
		"its claim has no status yet":    {instance: cloud.Instance{ProviderID: "i", LaunchTime: old, ClaimName: "c"}, claims: []*karpv1.NodeClaim{claim("c", "", "")}},
		"its group has no status yet":    {instance: cloud.Instance{ProviderID: "i", LaunchTime: old, LaunchGroup: "g"}, claims: []*karpv1.NodeClaim{claim("c", "", "g")}},
		"the claim has another instance": {instance: cloud.Instance{ProviderID: "i", LaunchTime: old, ClaimName: "c", LaunchGroup: "g"}, claims: []*karpv1.NodeClaim{claim("c", "j", "g")}, orphan: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.orphan, len(orphans([]*cloud.Instance{&tc.instance}, tc.claims, now)) == 1)
		})
	}
}

func TestForced(t *testing.T) {
	t.Parallel()
	grace := int64(30)
	running := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	late := metav1.NewTime(now.Add(5 * time.Minute))
	ending := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &late}}
	tests := map[string]struct {
		pod      *corev1.Pod
		deadline time.Time
		force    bool
		grace    int64
	}{
		"no deadline":                        {pod: running},
		"time enough":                        {pod: running, deadline: now.Add(time.Minute), grace: 60},
		"its own grace reaches the deadline": {pod: running, deadline: now.Add(20 * time.Second), force: true, grace: 20},
		"past the deadline, still a second":  {pod: running, deadline: now.Add(-time.Hour), force: true, grace: 1},
		"ending too late":                    {pod: ending, deadline: now.Add(time.Minute), force: true, grace: 60},
		"ending in time":                     {pod: ending, deadline: now.Add(time.Hour), grace: 3600},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, force := forced(tc.pod, tc.deadline, now)
			require.Equal(t, tc.force, force)
			require.Equal(t, tc.grace, got)
		})
	}
}

func TestDrainOrder(t *testing.T) {
	t.Parallel()
	daemon := []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "critical-daemon", OwnerReferences: daemon}, Spec: corev1.PodSpec{PriorityClassName: "system-node-critical"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "critical"}, Spec: corev1.PodSpec{PriorityClassName: "system-cluster-critical"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "daemon", OwnerReferences: daemon}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
	}
	for len(pods) > 0 {
		first := firstGroup(pods)
		require.Len(t, first, 1)
		require.Equal(t, pods[len(pods)-1].Name, first[0].Name)
		pods = pods[:len(pods)-1]
	}
}

func TestPodEventTimesSurviveARestart(t *testing.T) {
	t.Parallel()
	bound := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
	}}}
	require.Equal(t, now.Add(-time.Hour), podEventTime(nil, bound, now).UTC(), "seen anew, the pod tells when it was bound")
	require.Zero(t, podEventTime(bound, bound, now))
	done := bound.DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	require.Equal(t, now, podEventTime(bound, done, now))
	ending, grace := bound.DeepCopy(), int64(30)
	at := metav1.NewTime(now.Add(30 * time.Second))
	ending.DeletionTimestamp, ending.DeletionGracePeriodSeconds = &at, &grace
	require.Equal(t, now, podEventTime(bound, ending, now).UTC())
}

func TestIsProtected(t *testing.T) {
	t.Parallel()
	started := metav1.NewTime(now.Add(-10 * time.Minute))
	tests := map[string]struct {
		value string
		want  bool
	}{
		"true": {"true", true}, "false": {"false", false}, "still within": {"30m", true}, "over": {"5m", false}, "nonsense": {"banana", false}, "negative": {"-5m", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{karpv1.AnnotationDoNotDisrupt: tc.value}}, Status: corev1.PodStatus{StartTime: &started}}
			require.Equal(t, tc.want, isProtected(pod, now))
		})
	}
}

// The planner may start a group while the controller stops: that launch would outlive it.
func TestNothingTakesOffAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := newFlights(clock.RealClock{})
	group := func(uid types.UID) cloud.Group {
		return cloud.Group{Claims: []*karpv1.NodeClaim{{ObjectMeta: metav1.ObjectMeta{UID: uid}}}}
	}
	first := group("a")
	require.True(t, f.takeOff(first))
	f.land(first, []cloud.Created{{Err: errors.New("no capacity")}})
	f.wait()
	require.False(t, f.takeOff(group("b")))
}
