package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/lifecycle"
)

func typesUID(name string) types.UID { return types.UID("uid-" + name) }

func tooMany() error { return apierrors.NewTooManyRequests("disruption budget", 1) }

func TestLifeOfAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("c"))
	w.start(lifecycle.Options{})
	w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	launched := w.claim("c")
	require.Equal(t, "m5.large", launched.Labels[corev1.LabelInstanceTypeStable])
	require.Equal(t, "ami-1", launched.Status.ImageID)
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionUnknown, karpv1.ReasonNodeNotFound)

	w.join("n1", launched.Status.ProviderID) // PROV-059
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered)
	node := w.node("n1")
	require.Contains(t, node.Finalizers, karpv1.TerminationFinalizer)
	require.Equal(t, "c", node.OwnerReferences[0].Name)
	require.Equal(t, "a", node.Labels["team"])
	require.Equal(t, "true", node.Labels[karpv1.LabelRegistered])
	require.Equal(t, "x", node.Annotations["note"])
	require.NotContains(t, node.Annotations, karpv1.AnnotationLaunchGroup, "bookkeeping stays on the claim")
	keys := []string{}
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	require.ElementsMatch(t, []string{"dedicated", "cni", corev1.TaintNodeNotReady}, keys)
	w.eventually("the name is told", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.named["c"] == "n1" })

	w.awaitCondition("c", karpv1.ConditionInitialized, metav1.ConditionUnknown, karpv1.ReasonNodeNotReady)
	w.settle("n1")
	w.awaitCondition("c", karpv1.ConditionInitialized, metav1.ConditionUnknown, karpv1.ReasonStartupTaintsExist)
	w.changeNode("n1", func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "cni" })
	})
	w.awaitCondition("c", karpv1.ConditionInitialized, metav1.ConditionTrue, karpv1.ConditionInitialized)
	require.Equal(t, "true", w.node("n1").Labels[karpv1.LabelInitialized])
	w.awaitCondition("c", karpv1.ConditionReady, metav1.ConditionTrue, karpv1.ConditionReady)

	require.NoError(t, w.ours.KarpenterV1().NodeClaims().Delete(t.Context(), "c", metav1.DeleteOptions{}))
	w.eventually("claim and node are gone", func() bool { return w.claim("c") == nil && w.node("n1") == nil })
	living, _, deletes := w.cloud.counts()
	require.Zero(t, living)
	require.Equal(t, 1, deletes)
}

// A node that will never have what an overlay declared of it can be used, and consolidated, all the same.
func TestNoNodeWaitsForWhatItsTypeIsKnownToLack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("c", func(c *karpv1.NodeClaim) {
		c.Spec.StartupTaints = nil
		c.Spec.Resources.Requests = corev1.ResourceList{"vendor/x": resource.MustParse("2")}
	}))
	w.start(lifecycle.Options{})
	w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	w.join("n1", w.claim("c").Status.ProviderID)
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered)
	w.settle("n1")
	w.awaitCondition("c", karpv1.ConditionInitialized, metav1.ConditionUnknown, karpv1.ReasonResourceNotRegistered)
	w.mu.Lock()
	w.lacking = "default m5.large vendor/x"
	w.mu.Unlock()
	w.changeNode("n1", func(n *corev1.Node) { n.Status.Allocatable = list("1800m") }) // as the kubelet tells from time to time
	w.awaitCondition("c", karpv1.ConditionInitialized, metav1.ConditionTrue, karpv1.ConditionInitialized)
}

func TestCrashBetweenLaunchAndStatusLaunchesNothingTwice(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 20} {
		t.Run(fmt.Sprintf("a group of %d", size), func(t *testing.T) {
			t.Parallel()
			var names []string
			for i := range size {
				names = append(names, fmt.Sprintf("c%d", i))
			}
			var claims []runtime.Object
			for _, name := range names {
				claims = append(claims, newClaim(name, func(c *karpv1.NodeClaim) {
					c.Annotations[karpv1.AnnotationLaunchGroup] = cloud.GroupRef{ID: "g", Attempt: 1, Members: names}.Encode()
				}))
			}
			w := newWorld(t, nil, claims...)
			lost := true
			w.ours.PrependReactor("*", "nodeclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if lost && slices.Contains([]string{"update", "patch"}, action.GetVerb()) {
					return true, nil, errors.New("the API server is away")
				}
				return false, nil, nil
			})
			_, crash := w.start(lifecycle.Options{})
			w.eventually("launched", func() bool { living, _, _ := w.cloud.counts(); return living == size })
			crash()
			w.mu.Lock()
			lost = false
			w.mu.Unlock()
			for _, name := range names {
				require.Empty(t, w.claim(name).Status.ProviderID)
			}

			w.start(lifecycle.Options{})
			ids := map[string]bool{}
			for _, name := range names {
				w.awaitCondition(name, karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
				ids[w.claim(name).Status.ProviderID] = true
			}
			living, creates, deletes := w.cloud.counts()
			require.Equal(t, []int{size, 1, 0}, []int{living, creates, deletes}, "no second instance, no orphan")
			require.Len(t, ids, size, "each claim has an instance of its own")
		})
	}
}

// A claim is often seen before the rest of its group is written; it must wait for them.
func TestExpectedClaimsWaitForTheirGroup(t *testing.T) {
	t.Parallel()
	members := []string{"a", "b"}
	claim := func(name string) *karpv1.NodeClaim {
		return newClaim(name, func(c *karpv1.NodeClaim) {
			c.Annotations[karpv1.AnnotationLaunchGroup] = cloud.GroupRef{ID: "g", Attempt: 1, Members: members}.Encode()
		})
	}
	w := newWorld(t, nil)
	controller, _ := w.start(lifecycle.Options{})
	controller.Expect(members)
	_, err := w.ours.KarpenterV1().NodeClaims().Create(t.Context(), claim("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	w.awaitCondition("a", karpv1.ConditionReady, metav1.ConditionUnknown, karpv1.ReasonReconcilingDependents)
	_, creates, _ := w.cloud.counts()
	require.Zero(t, creates, "not alone")
	_, err = w.ours.KarpenterV1().NodeClaims().Create(t.Context(), claim("b"), metav1.CreateOptions{})
	require.NoError(t, err)
	group := cloud.Group{ID: "g", Attempt: 1, Claims: []*karpv1.NodeClaim{claim("a"), claim("b")}}
	controller.Start(t.Context(), group)
	for _, name := range members {
		w.awaitCondition(name, karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	}
	controller.Start(t.Context(), cloud.Group{ID: "late", Attempt: 1, Claims: group.Claims}) // too late: they have instances
	living, creates, _ := w.cloud.counts()
	require.Equal(t, []int{2, 1}, []int{living, creates}, "one launch for both")
}

func TestStandaloneClaimsGetAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("c", func(c *karpv1.NodeClaim) { c.Annotations, c.Labels, c.Finalizers = nil, nil, nil }))
	w.start(lifecycle.Options{})
	w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	claim := w.claim("c")
	require.Contains(t, claim.Finalizers, karpv1.TerminationFinalizer, "the finalizer stands before the launch")
	ref, err := cloud.ParseGroup(claim.Annotations[karpv1.AnnotationLaunchGroup], "c")
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, ref.Members)
}

func TestLaunchErrors(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	gone := map[string]error{
		"PROV-055 no capacity": &cloud.NoCapacityError{Err: why},
		"class not ready":      &cloud.ClassNotReadyError{Err: why},
	}
	for name, err := range gone {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, newClaim("c"))
			w.cloud.setFail(err)
			w.start(lifecycle.Options{})
			w.eventually("the claim is given up", func() bool { return w.claim("c") == nil })
			w.eventually("its pods hear of it", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return slices.Contains(w.failed, "c") })
		})
	}
	t.Run("others are retried", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil, newClaim("c"))
		w.cloud.setFail(&cloud.CreateError{Reason: "Unauthorized", Message: "not allowed", Err: why})
		w.start(lifecycle.Options{})
		w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionUnknown, "Unauthorized")
		w.cloud.setFail(nil)
		w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	})
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	old := func(c *karpv1.NodeClaim) { c.CreationTimestamp = metav1.NewTime(time.Now().Add(-10 * time.Minute)) }
	t.Run("PROV-056 launch keeps failing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil, newClaim("c", old))
		w.cloud.setFail(errors.New("no"))
		w.start(lifecycle.Options{LaunchTimeout: 5 * time.Minute})
		w.eventually("given up", func() bool { return w.claim("c") == nil })
	})
	t.Run("PROV-057 the instance never joins", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil, newClaim("c", old))
		w.start(lifecycle.Options{RegistrationTimeout: 5 * time.Minute})
		w.eventually("given up", func() bool {
			living, creates, _ := w.cloud.counts()
			return w.claim("c") == nil && living == 0 && creates == 1
		})
	})
}

func TestCORE044TwoNodesOfOneInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("c"))
	w.join("n1", firstInstance)
	w.join("n2", firstInstance)
	w.start(lifecycle.Options{})
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionFalse, karpv1.ReasonMultipleNodesFound)
	require.NoError(t, w.kube.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered)
}

func TestPROV060MissingTaintIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("c"))
	w.start(lifecycle.Options{})
	w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	w.join("n1", w.claim("c").Status.ProviderID, func(n *corev1.Node) { n.Spec.Taints = nil })
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered)
	w.eventually("event", func() bool {
		select {
		case e := <-w.sink.Events:
			return strings.Contains(e, "UnregisteredTaintMissing")
		default:
			return false
		}
	})
}

func TestPROV061TaintsAreNotSynced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("c"))
	w.start(lifecycle.Options{})
	w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	w.join("n1", w.claim("c").Status.ProviderID, func(n *corev1.Node) { n.Labels[karpv1.LabelDoNotSyncTaints] = "true" })
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered)
	for _, taint := range w.node("n1").Spec.Taints {
		require.NotEqual(t, "dedicated", taint.Key)
	}
}

// inService brings the claim to a ready node with the pods on it.
func inService(t *testing.T, options lifecycle.Options, change func(*karpv1.NodeClaim), pods ...*corev1.Pod) *world {
	t.Helper()
	w := newWorld(t, nil, newClaim("c", change, func(c *karpv1.NodeClaim) { c.Spec.StartupTaints = nil }))
	w.start(options)
	w.awaitCondition("c", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	w.join("n1", w.claim("c").Status.ProviderID)
	w.awaitCondition("c", karpv1.ConditionRegistered, metav1.ConditionTrue, karpv1.ConditionRegistered)
	w.settle("n1")
	w.awaitCondition("c", karpv1.ConditionInitialized, metav1.ConditionTrue, karpv1.ConditionInitialized)
	for _, pod := range pods {
		_, err := w.kube.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return w
}

func (w *world) hasPod(name string) bool {
	_, err := w.kube.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	return err == nil
}

// Somebody took the finalizer off the Node and deleted it: what is left is paid for and of no use.
func TestNodeThatVanishedTakesItsClaimWithIt(t *testing.T) {
	t.Parallel()
	w := inService(t, lifecycle.Options{}, func(*karpv1.NodeClaim) {})
	require.NoError(t, w.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n1"))
	w.eventually("claim and instance gone", func() bool {
		living, _, _ := w.cloud.counts()
		return w.claim("c") == nil && living == 0
	})
}

func TestNodeThatWasMadeAnewIsJoinedAgain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*corev1.Node)
		taints []string
	}{
		"by its kubelet": {func(n *corev1.Node) {
			n.Labels, n.Spec.Taints = nil, []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}
		}, []string{"dedicated"}},
		"a label was taken off": {func(n *corev1.Node) {
			delete(n.Labels, karpv1.LabelRegistered)
			delete(n.Labels, karpv1.LabelInitialized)
			n.Spec.Taints = nil
		}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inService(t, lifecycle.Options{}, func(*karpv1.NodeClaim) {})
			w.changeNode("n1", tc.change)
			w.eventually("in service again", func() bool {
				n := w.node("n1")
				return n.Labels[karpv1.LabelRegistered] == "true" && n.Labels[karpv1.LabelInitialized] == "true"
			})
			var taints []string
			for _, taint := range w.node("n1").Spec.Taints {
				taints = append(taints, taint.Key)
			}
			require.Equal(t, tc.taints, taints)
			require.Nil(t, w.claim("c").DeletionTimestamp)
		})
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	stays := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	w := inService(t, lifecycle.Options{}, func(*karpv1.NodeClaim) {}, newPod("web", "n1"), newPod("log", "n1", stays))
	w.mu.Lock()
	w.blocked = true
	w.mu.Unlock()
	require.NoError(t, w.ours.KarpenterV1().NodeClaims().Delete(t.Context(), "c", metav1.DeleteOptions{}))
	w.awaitCondition("c", karpv1.ConditionDrained, metav1.ConditionUnknown, karpv1.ReasonDraining)
	w.eventually("no new pods", func() bool {
		return slices.ContainsFunc(w.node("n1").Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) })
	})
	require.Equal(t, "karpenter", w.node("n1").Labels[corev1.LabelNodeExcludeBalancers])
	require.True(t, w.hasPod("web"), "a PodDisruptionBudget holds the drain")
	living, _, _ := w.cloud.counts()
	require.Equal(t, 1, living, "the instance waits for the drain")

	w.mu.Lock()
	w.blocked = false
	w.mu.Unlock()
	w.eventually("gone", func() bool { return w.claim("c") == nil && w.node("n1") == nil })
	require.False(t, w.hasPod("web"))
	require.True(t, w.hasPod("log"), "pods that tolerate the taint are not evicted")
}

func TestDoNotDisruptHoldsTheDrainUntilTheGracePeriodEnds(t *testing.T) {
	t.Parallel()
	protected := func(p *corev1.Pod) {
		p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		zero := int64(0)
		p.Spec.TerminationGracePeriodSeconds = &zero
	}
	w := inService(t, lifecycle.Options{}, func(c *karpv1.NodeClaim) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 6 * time.Second}
	}, newPod("web", "n1", protected))
	require.NoError(t, w.ours.KarpenterV1().NodeClaims().Delete(t.Context(), "c", metav1.DeleteOptions{}))
	w.awaitCondition("c", karpv1.ConditionDrained, metav1.ConditionUnknown, karpv1.ReasonDraining)
	require.True(t, w.hasPod("web"))
	require.NotEmpty(t, w.claim("c").Annotations[karpv1.AnnotationTerminationTimestamp])
	w.eventually("forced at the deadline", func() bool { return w.claim("c") == nil && !w.hasPod("web") })
}

func TestNodeDeletedByHandTakesItsClaimAlong(t *testing.T) {
	t.Parallel()
	w := inService(t, lifecycle.Options{}, func(*karpv1.NodeClaim) {})
	require.NoError(t, w.kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	w.eventually("all gone", func() bool {
		living, _, _ := w.cloud.counts()
		return w.claim("c") == nil && w.node("n1") == nil && living == 0
	})
}

func TestForeignClaimsAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, newClaim("ours"), newClaim("foreign", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Group = "other.example.com" }))
	w.start(lifecycle.Options{})
	w.awaitCondition("ours", karpv1.ConditionLaunched, metav1.ConditionTrue, karpv1.ConditionLaunched)
	require.Empty(t, w.claim("foreign").Status.Conditions)
}
