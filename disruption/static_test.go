package disruption_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// filler launches claims without instances; with lost set they are gone at once.
type filler struct {
	w    *world
	lost bool

	mu    sync.Mutex
	count int
}

func (f *filler) Fill(ctx context.Context, _ string, count int, _ string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for range count {
		f.count++
		name := fmt.Sprintf("static-%d", f.count)
		names = append(names, name)
		if f.lost {
			continue
		}
		_, claim := makeNode(name)
		claim.Name, claim.Status = name, karpv1.NodeClaimStatus{}
		created, err := f.w.ours.KarpenterV1().NodeClaims().Create(ctx, claim, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		f.w.hider.model.Track(created)
	}
	return names, nil
}

func (f *filler) launched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// static makes the world one with a filler.
func (w *world) filling() *filler {
	f := &filler{w: w}
	w.static = f
	return f
}

func staticPool(replicas, limit int64) *karpv1.NodePool {
	return makePool(func(p *karpv1.NodePool) {
		p.Spec.Replicas = &replicas
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		if limit > 0 {
			p.Spec.Limits = karpv1.Limits{karpv1.ResourceNodes: *resource.NewQuantity(limit, resource.DecimalSI)}
		}
	})
}

func (w *world) claims(t *testing.T) []string {
	t.Helper()
	list, err := w.ours.KarpenterV1().NodeClaims().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, claim := range list.Items {
		if claim.DeletionTimestamp == nil {
			names = append(names, claim.Name)
		}
	}
	return names
}

func (w *world) scalePool(t *testing.T, replicas int) {
	t.Helper()
	_, err := w.ours.KarpenterV1().NodePools().Patch(t.Context(), "default", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestPROV065StaticPoolIsFilled(t *testing.T) {
	t.Parallel()
	w := newWorld(staticPool(3, 0))
	f := w.filling()
	w.start(t)
	w.rounds(t, 5)
	require.Len(t, w.claims(t), 3, "as many as it asks for, without a pod, and no more")
	require.NoError(t, w.ours.KarpenterV1().NodeClaims().Delete(t.Context(), "static-2", metav1.DeleteOptions{}))
	w.eventually(t, func() bool { return f.launched() == 4 }, "one that is lost is made up for")
	w.scalePool(t, 5)
	w.eventually(t, func() bool { return len(w.claims(t)) == 5 }, "more replicas, more nodes")
}

func TestStaticPoolWithTheGateOffIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(append(nodes("n1", "n2"), staticPool(1, 0))...)
	w.start(t)
	w.rounds(t, 3)
	require.Len(t, w.claims(t), 2)
}

func TestPROV067LimitOfNodesBoundsAStaticPool(t *testing.T) {
	t.Parallel()
	w := newWorld(staticPool(3, 2))
	w.filling()
	w.start(t)
	w.rounds(t, 40)
	require.Len(t, w.claims(t), 2)
}

// Without pods that wait nothing but this slows a pool down whose nodes never come.
func TestStaticPoolWhoseNodesDoNotComeIsSlowedDown(t *testing.T) {
	t.Parallel()
	w := newWorld(staticPool(1, 0))
	f := w.filling()
	f.lost = true
	w.start(t)
	w.rounds(t, 160)
	require.LessOrEqual(t, f.launched(), 6, "after 10 s, 20 s, 40 s, 80 s")
	require.GreaterOrEqual(t, f.launched(), 4, "it goes on trying")
}

func TestPROV066SurplusNodesGoEmptyOnesFirst(t *testing.T) {
	t.Parallel()
	protect := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }
	dear := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationPodDeletionCost: "1000000000"} }
	objects := append(nodes("n-busy", "n-dear", "n-empty", "n-protected"), staticPool(4, 0),
		makePod("a", "n-busy"), makePod("b", "n-dear", dear), makePod("c", "n-protected", protect))
	_, claim := makeNode("n-new")
	claim.Status = karpv1.NodeClaimStatus{}
	w := newWorld(append(objects, claim)...)
	w.filling()
	w.start(t)
	w.rounds(t, 3)
	require.Equal(t, []string{"n-busy-claim", "n-dear-claim", "n-empty-claim", "n-protected-claim"}, w.claims(t), "what has no instance goes first")
	for _, step := range []struct {
		replicas int
		left     []string
	}{
		{3, []string{"n-busy-claim", "n-dear-claim", "n-protected-claim"}},
		{2, []string{"n-dear-claim", "n-protected-claim"}},
		{1, []string{"n-protected-claim"}},
		{0, nil},
	} {
		w.scalePool(t, step.replicas)
		w.eventually(t, func() bool { return len(w.claims(t)) == step.replicas }, "the budget of zero is not asked")
		require.Equal(t, step.left, w.claims(t))
	}
}

// drifted says that all claims with this prefix have drifted.
type oldOnes struct{ prefix string }

func (d oldOnes) IsDrifted(_ context.Context, claim *karpv1.NodeClaim) (cloud.DriftReason, error) {
	if len(claim.Name) > len(d.prefix) && claim.Name[:len(d.prefix)] == d.prefix {
		return "AMIDrift", nil
	}
	return "", nil
}

func TestDISR055StaticPoolIsRolledOneByOne(t *testing.T) {
	t.Parallel()
	pool := staticPool(2, 3)
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	objects := append(nodes("n1", "n2"), pool, makePod("p", "n1", owned("web")))
	for _, o := range objects {
		if claim, ok := o.(*karpv1.NodeClaim); ok {
			claim.Status.Conditions = append(claim.Status.Conditions, metav1.Condition{Type: karpv1.ConditionLaunched, Status: metav1.ConditionTrue})
		}
	}
	w := newWorld(objects...)
	w.planning(0).homeless = true // its pods are not planned for: the new node is like the old one
	w.drifts = oldOnes{"n"}
	f := w.filling()
	w.start(t)
	w.eventually(t, func() bool { return f.launched() == 1 }, "one replacement")
	w.rounds(t, 5)
	require.Equal(t, 1, f.launched(), "the limit has room for one at a time")
	require.Len(t, w.claims(t), 3, "the old node stays until the new one is ready")
	w.come(t, "static-1")
	w.eventually(t, func() bool { return f.launched() == 2 }, "then the next")
	require.Len(t, w.claims(t), 3)
	w.come(t, "static-2")
	w.eventually(t, func() bool { return len(w.claims(t)) == 2 }, "both are replaced")
	w.rounds(t, 5)
	require.Equal(t, []string{"static-1", "static-2"}, w.claims(t))
}

func TestStaticPoolWithoutRoomDoesNotDrift(t *testing.T) {
	t.Parallel()
	pool := staticPool(1, 1)
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	node, claim := makeNode("n1")
	claim.Status.Conditions = append(claim.Status.Conditions, metav1.Condition{Type: karpv1.ConditionLaunched, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0.Add(-time.Hour))})
	w := newWorld(node, claim, pool)
	w.planning(0)
	w.drifts = oldOnes{"n"}
	f := w.filling()
	w.start(t)
	w.rounds(t, 5)
	require.Zero(t, f.launched())
	require.False(t, w.isTainted(t, "n1"))
}
