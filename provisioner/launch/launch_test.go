package launch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/launch"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// stage is everything that a Launcher works with, and what it did.
type stage struct {
	ours     *fake.Clientset
	promises *promise.Table
	launcher *launch.Launcher
	usage    map[string]resources.Vector
	nodes    int
	gone     map[string]bool // pods that wait no more

	mu      sync.Mutex
	groups  []cloud.Group
	refused map[string]string // pod to reason
	tracked []string

	expected, released []string
}

func (s *stage) Start(_ context.Context, group cloud.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, group)
}

func (s *stage) Expect(claims []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = append(s.expected, claims...)
}

func (s *stage) Release(claims []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = append(s.released, claims...)
}

func newStage(t *testing.T, options launch.Options, pools ...*karpv1.NodePool) *stage {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, p := range pools {
		require.NoError(t, indexer.Add(p))
	}
	s := &stage{
		ours: fake.NewClientset(), promises: promise.NewTable(), usage: map[string]resources.Vector{},
		gone: map[string]bool{}, refused: map[string]string{},
	}
	options, err := options.Complete()
	require.NoError(t, err)
	clock := clocktesting.NewFakePassiveClock(now)
	s.launcher = launch.New(launch.Deps{
		Karpenter: s.ours, Pools: karplisters.NewNodePoolLister(indexer), Promises: s.promises,
		Events: events.NewRecorder(record.NewFakeRecorder(1000), clock), Starter: s, Clock: clock, Registry: prometheus.NewRegistry(),
		Pending: func(p *corev1.Pod) bool { return !s.gone[p.Name] },
		Usage:   func() (map[string]resources.Vector, int) { return s.usage, s.nodes },
		Track:   func(c *karpv1.NodeClaim) { s.tracked = append(s.tracked, c.Name) },
		Refuse: func(pods []*corev1.Pod, reason string) {
			for _, p := range pods {
				s.refused[p.Name] = reason
			}
		},
	}, options)
	return s
}

func (s *stage) claims(t *testing.T) []karpv1.NodeClaim {
	t.Helper()
	list, err := s.ours.KarpenterV1().NodeClaims().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func pool(name string, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "pool", Annotations: map[string]string{
		karpv1.AnnotationNodePoolHash: "1", karpv1.AnnotationNodePoolHashVersion: "berth-v1",
	}}}
	p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "standard"}
	p.Spec.Template.Labels = map[string]string{"team": "a"}
	p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	for _, f := range change {
		f(p)
	}
	return p
}

func limits(name corev1.ResourceName, quantity string) func(*karpv1.NodePool) {
	return func(p *karpv1.NodePool) { p.Spec.Limits = karpv1.Limits{name: resource.MustParse(quantity)} }
}

func planned(pool string, pods ...string) solver.Claim {
	it := &catalog.InstanceType{Name: "m5.large", Capacity: resources.Vector{MilliCPU: 2000, Pods: 29}}
	c := solver.Claim{
		Pool: pool, Types: []*catalog.InstanceType{it, {Name: "m6i.large", Capacity: resources.Vector{MilliCPU: 2000, Pods: 29}}},
		Requirements: requirement.NewSet(
			requirement.New("cell", corev1.NodeSelectorOpExists),
			requirement.New(karpv1.LabelNodePool, corev1.NodeSelectorOpIn, pool)),
		Requests: resources.Vector{MilliCPU: 1500, Pods: 2},
	}
	for _, name := range pods {
		c.Pods = append(c.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}})
	}
	return c
}

func TestClaimSaysAllThatARestartNeeds(t *testing.T) {
	t.Parallel()
	s := newStage(t, launch.Options{}, pool("default"))
	require.NoError(t, s.launcher.Apply(t.Context(), solver.Plan{Claims: []solver.Claim{planned("default", "a", "b")}}))
	claims := s.claims(t)
	require.Len(t, claims, 1)
	c := claims[0]
	require.Regexp(t, `^default-[a-z0-9]{5}$`, c.Name)
	require.Contains(t, c.Finalizers, karpv1.TerminationFinalizer, "the finalizer stands before anything is launched")
	require.Equal(t, "NodePool", c.OwnerReferences[0].Kind)
	require.True(t, *c.OwnerReferences[0].BlockOwnerDeletion)
	require.Equal(t, "a", c.Labels["team"])
	require.Equal(t, "default", c.Labels[karpv1.LabelNodePool])
	require.Equal(t, "standard", c.Labels["karpenter.k8s.aws/ec2nodeclass"])
	require.NotEmpty(t, c.Labels["cell"], "CORE-042 an open custom key gets a value")
	require.Equal(t, "1", c.Annotations[karpv1.AnnotationNodePoolHash])
	require.Equal(t, pool("default").Spec.Template.Spec.Taints, c.Spec.Taints)
	require.Contains(t, c.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
		Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m5.large", "m6i.large"},
	})
	cpu := c.Spec.Resources.Requests[corev1.ResourceCPU]
	require.Equal(t, "1500m", cpu.String())
	uids, err := promise.ParseAnnotation(c.Annotations[karpv1.AnnotationPromises])
	require.NoError(t, err)
	require.Equal(t, []types.UID{"uid-a", "uid-b"}, uids)

	ref, err := cloud.ParseGroup(c.Annotations[karpv1.AnnotationLaunchGroup], c.Name)
	require.NoError(t, err)
	require.Len(t, s.groups, 1)
	require.Equal(t, ref.ID, s.groups[0].ID)
	require.Equal(t, c.Name, s.groups[0].Claims[0].Name)
	require.Len(t, s.promises.ForClaim(c.Name), 2)
	require.Equal(t, []string{c.Name}, s.tracked)
}

func TestGroups(t *testing.T) {
	t.Parallel()
	closed := func(pod string) solver.Claim {
		c := planned("default", pod)
		delete(c.Requirements, "cell") // open keys get a value of their own, which makes a shape of its own
		return c
	}
	other := closed("x")
	other.Types = other.Types[:1]
	s := newStage(t, launch.Options{GroupSize: 2}, pool("default"))
	require.NoError(t, s.launcher.Apply(t.Context(), solver.Plan{Claims: []solver.Claim{closed("a"), other, closed("b"), closed("c")}}))
	var sizes []int
	for _, g := range s.groups {
		sizes = append(sizes, len(g.Claims))
		for _, c := range g.Claims {
			ref, err := cloud.ParseGroup(c.Annotations[karpv1.AnnotationLaunchGroup], c.Name)
			require.NoError(t, err)
			require.Len(t, ref.Members, len(g.Claims), "every member names all")
		}
	}
	slices.Sort(sizes)
	require.Equal(t, []int{1, 1, 2}, sizes, "equal shapes together, at most two")
}

func TestWhatHasMovedIsLeftOut(t *testing.T) {
	t.Parallel()
	deleting := func(p *karpv1.NodePool) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	tests := map[string]struct {
		pool    *karpv1.NodePool
		options launch.Options
		prepare func(*stage)
		claims  int
		refused string
	}{
		"nothing has":                   {pool: pool("default"), claims: 2},
		"the pods are bound":            {pool: pool("default"), prepare: func(s *stage) { s.gone["a"], s.gone["b"] = true, true }},
		"one pod is":                    {pool: pool("default"), prepare: func(s *stage) { s.gone["a"] = true }, claims: 1},
		"the pool is gone":              {pool: pool("other"), refused: "nodepool default is gone"},
		"the pool is being deleted":     {pool: pool("default", deleting), refused: "nodepool default is gone"},
		"PROV-043 the limit is used up": {pool: pool("default", limits("cpu", "3")), prepare: func(s *stage) { s.usage["default"] = resources.Vector{MilliCPU: 2000} }, refused: "limit of cpu is reached"},
		"the limit has room for one":    {pool: pool("default", limits("nodes", "1")), claims: 1, refused: "limit of nodes is reached"},
		"the node cap":                  {pool: pool("default"), options: launch.Options{NodeCap: 5}, prepare: func(s *stage) { s.nodes = 5 }, refused: "the node cap is 5"},
		"the launch rate":               {pool: pool("default"), options: launch.Options{LaunchesPerMinute: 1}, claims: 1, refused: "more than 1 launches a minute"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, tc.options, tc.pool)
			if tc.prepare != nil {
				tc.prepare(s)
			}
			require.NoError(t, s.launcher.Apply(t.Context(), solver.Plan{Claims: []solver.Claim{planned("default", "a"), planned("default", "b")}}))
			require.Len(t, s.claims(t), tc.claims)
			if tc.refused == "" {
				require.Empty(t, s.refused)
				return
			}
			require.Contains(t, s.refused["b"], tc.refused)
		})
	}
}

func TestAFailedWriteDoesNotTouchTheOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t, launch.Options{}, pool("default"))
	var once sync.Once
	s.ours.PrependReactor("create", "nodeclaims", func(ktesting.Action) (handled bool, _ runtime.Object, err error) {
		once.Do(func() { handled, err = true, errors.New("quota") })
		return handled, nil, err
	})
	var claims []solver.Claim
	for i := range 3 {
		c := planned("default", fmt.Sprint("p", i))
		delete(c.Requirements, "cell")
		claims = append(claims, c)
	}
	err := s.launcher.Apply(t.Context(), solver.Plan{Claims: claims})
	require.ErrorContains(t, err, "quota")
	require.Len(t, s.claims(t), 2)
	require.Len(t, s.refused, 1)
	require.Len(t, s.groups, 1)
	require.Len(t, s.groups[0].Claims, 2)
	require.Len(t, s.expected, 3, "nobody may launch a claim before its group is written")
	require.Len(t, s.released, 1, "the one that failed is nobody's")
	for _, c := range s.claims(t) {
		ref, err := cloud.ParseGroup(c.Annotations[karpv1.AnnotationLaunchGroup], c.Name)
		require.NoError(t, err)
		require.Len(t, ref.Members, 2, "the record names those that are there")
		require.Equal(t, s.groups[0].ID, ref.ID)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := launch.Options{NodeCap: -1}.Complete()
	require.ErrorContains(t, err, "nodeCap -1 is negative")
	require.True(t, strings.HasPrefix(launch.NewClaim(pool(strings.Repeat("x", 100)), planned("default")).Name, "xxx"))
	require.LessOrEqual(t, len(launch.NewClaim(pool(strings.Repeat("x", 100)), planned("default")).Name), 63)
}
