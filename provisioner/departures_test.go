package provisioner_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/provisioner"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
	oursfake "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
)

// thinkingCloud answers launches when told to.
type thinkingCloud struct {
	slowCloud
	asked  chan struct{}
	answer chan struct{}
}

func (c thinkingCloud) Create(ctx context.Context, group cloud.Group) ([]cloud.Created, error) {
	c.asked <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.answer:
	}
	var created []cloud.Created
	for _, claim := range group.Claims {
		created = append(created, cloud.Created{Instance: &cloud.Instance{ProviderID: "id-" + claim.Name, ClaimName: claim.Name, LaunchGroup: group.ID, LaunchTime: time.Now(), Capacity: amounts("2"), Allocatable: amounts("2")}})
	}
	return created, nil
}

// doomedClaim is the claim of node n, told to go and to be gone at the deadline.
func doomedClaim(deadline time.Time) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "doomed", UID: "doomed", DeletionTimestamp: &metav1.Time{Time: time.Now()}, Finalizers: []string{karpv1.TerminationFinalizer},
		Labels: map[string]string{karpv1.LabelNodePool: "default"}, Annotations: map[string]string{},
	}}
	if !deadline.IsZero() {
		claim.Annotations[karpv1.AnnotationTerminationTimestamp] = deadline.UTC().Format(time.RFC3339)
	}
	claim.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	claim.Status.ProviderID, claim.Status.NodeName = "id-n", "n"
	return claim
}

// evictions counts the attempts to evict a pod.
func (w *world) evictions() int {
	n := 0
	for _, action := range w.kube.Client.Actions() {
		if action.GetVerb() == "create" && action.GetSubresource() == "eviction" {
			n++
		}
	}
	return n
}

func TestReplacementsAreLaunchedBeforeTheDrain(t *testing.T) {
	t.Parallel()
	sold := thinkingCloud{slowCloud{}, make(chan struct{}, 10), make(chan struct{})}
	answer := sync.OnceFunc(func() { close(sold.answer) })
	pods := runningOn("n", 2, "web", "1")
	w := openAround(t, plainConfig, oursfake.NewClientset(pool(), doomedClaim(time.Time{})), func(deps *provisioner.Deps) func(*provisioner.Provisioner) func(context.Context) {
		deps.Cloud = sold
		return func(*provisioner.Provisioner) func(context.Context) { return func(context.Context) {} }
	}, objects(pods, deleting("n", "b", "2"))...)
	t.Cleanup(answer) // before that of the world, which waits for it
	select {
	case <-sold.asked:
	case <-time.After(10 * time.Second):
		require.Fail(t, "no launch was asked for")
	}
	next := w.claim(t, w.verdicts(t, pods...)["web-0"])
	require.Never(t, func() bool { return w.evictions() > 0 }, time.Second, 10*time.Millisecond, "nobody is evicted while the launch is not through")
	answer()
	require.Eventually(t, func() bool { return w.evictions() >= 2 }, 5*time.Second, 5*time.Millisecond, "both are evicted")
	claim, err := w.ours.KarpenterV1().NodeClaims().Get(t.Context(), next.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "id-"+next.Name, claim.Status.ProviderID)
}

// Pods for which nothing can be bought leave their node at once: waiting would not help them.
func TestTheDrainDoesNotWaitForWhatCannotBeBought(t *testing.T) {
	t.Parallel()
	pods := runningOn("n", 1, "huge", "64")
	begun := time.Now()
	w := openAround(t, plainConfig, oursfake.NewClientset(pool(), doomedClaim(time.Time{})), nil, objects(pods, deleting("n", "b", "100"))...)
	require.Eventually(t, func() bool { return w.evictions() > 0 }, 5*time.Second, 5*time.Millisecond)
	require.Less(t, time.Since(begun), 5*time.Second)
	require.Len(t, w.claims(t), 1, "nothing is bought")
}

func TestPodsThatNothingMayEvictArePlannedForWhenTheirNodeEnds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		left  time.Duration
		moves bool
	}{
		"in two minutes": {2 * time.Minute, true},
		"in an hour":     {time.Hour, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stays, moves := runningOn("n", 1, "stays", "500m")[0], runningOn("n", 1, "moves", "500m")[0]
			stays.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			client := oursfake.NewClientset(pool(), doomedClaim(time.Now().Add(tc.left)))
			w := openAround(t, plainConfig, client, nil, objects([]*corev1.Pod{stays, moves}, deleting("n", "b", "2"))...)
			w.claim(t, w.verdicts(t, moves)["moves-0"])
			_, promised := w.promises.Lookup(stays.UID)
			require.Equal(t, tc.moves, promised)
		})
	}
}
