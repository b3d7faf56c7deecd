package provisioner_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
	oursfake "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/overlay"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// openOverlaid starts a world with these overlays, and with the controller that the gate turns on.
func openOverlaid(t *testing.T, overlays []*v1alpha1.NodeOverlay, pods ...*corev1.Pod) *world {
	t.Helper()
	client := oursfake.NewSimpleClientset(pool())
	for _, o := range overlays {
		_, err := client.KarpenterV1alpha1().NodeOverlays().Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w := openAround(t, plainConfig, client, func(deps *provisioner.Deps) func(*provisioner.Provisioner) func(context.Context) {
		var controller *overlay.Controller
		deps.Adjust = func(pool *karpv1.NodePool, list []*catalog.InstanceType) ([]*catalog.InstanceType, string) {
			return controller.Adjust(pool, list)
		}
		deps.Lacking = func(pool, instanceType string, name corev1.ResourceName) bool {
			return controller.Lacking(pool, instanceType, name)
		}
		return func(p *provisioner.Provisioner) func(context.Context) {
			var err error
			controller, err = overlay.New(overlay.Deps{
				Karpenter: client, Ours: deps.Ours, State: p.State(), Cloud: deps.Cloud, Events: deps.Events, Clock: deps.Clock, Changed: p.WorldChanged,
			}, overlay.Options{LookInterval: 5 * time.Millisecond, Grace: 20 * time.Millisecond})
			require.NoError(t, err)
			return controller.Run
		}
	})
	for _, pod := range pods { // after the start, when pools may not have been evaluated yet
		_, err := w.kube.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return w
}

func overlayOf(name string, change func(*v1alpha1.NodeOverlaySpec), instanceTypes ...string) *v1alpha1.NodeOverlay {
	o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
	o.Spec.Requirements = []v1alpha1.NodeSelectorRequirement{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: instanceTypes}}
	change(&o.Spec)
	return o
}

// placed waits until every pod has a place on a new node, and returns the claims of those. Until the pool is
// evaluated the pods may be refused.
func (w *world) placed(t *testing.T, pods ...*corev1.Pod) map[string]*karpv1.NodeClaim {
	t.Helper()
	claims := map[string]*karpv1.NodeClaim{}
	for _, pod := range pods {
		var e promise.Entry
		require.Eventually(t, func() bool {
			e, _ = w.promises.Lookup(pod.UID)
			return e.State == promise.Promised
		}, 20*time.Second, 5*time.Millisecond, "the pod has a place")
		claim := w.claim(t, e)
		claims[claim.Name] = claim
	}
	return claims
}

func typesOf(claim *karpv1.NodeClaim) []string {
	return requirement.FromClaim(claim.Spec.Requirements).Get(corev1.LabelInstanceTypeStable).Values()
}

func TestOverlays(t *testing.T) {
	t.Parallel()
	priced := func(price string) func(*v1alpha1.NodeOverlaySpec) {
		return func(s *v1alpha1.NodeOverlaySpec) { s.Price = &price }
	}
	declare := func(s *v1alpha1.NodeOverlaySpec) {
		s.Capacity = v1alpha1.ResourceList{"vendor/x": resource.MustParse("2")}
	}
	wants := func(p *corev1.Pod) {
		devices := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), "vendor/x": resource.MustParse("2")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: devices, Limits: corev1.ResourceList{"vendor/x": devices["vendor/x"]}}
	}
	list := func(o ...*v1alpha1.NodeOverlay) []*v1alpha1.NodeOverlay { return o }
	t.Run("PROV-071 as the provider has it, two small nodes are cheaper than a large one", func(t *testing.T) {
		t.Parallel()
		p, q := waiting("p", "1500m"), waiting("q", "1500m")
		w := openOverlaid(t, nil, p, q)
		claims := w.placed(t, p, q)
		require.Len(t, claims, 2)
		for _, claim := range claims {
			require.NotContains(t, claim.Annotations, karpv1.AnnotationPriceOverlayApplied)
			require.NotContains(t, claim.Annotations, karpv1.AnnotationCapacityOverlayApplied)
		}
		require.InDelta(t, 0.1, w.price(t, "m.large"), 1e-9)
	})
	t.Run("PROV-071", func(t *testing.T) {
		t.Parallel()
		p, q := waiting("p", "1500m"), waiting("q", "1500m")
		w := openOverlaid(t, list(overlayOf("dear", priced("5.00"), "m.large")), p, q)
		claims := w.placed(t, p, q)
		require.Len(t, claims, 1)
		for _, claim := range claims {
			require.Equal(t, []string{"m.2xlarge"}, typesOf(claim))
			require.NotContains(t, claim.Annotations, karpv1.AnnotationPriceOverlayApplied, "no candidate has an overlay")
		}
		require.InDelta(t, 5, w.price(t, "m.large"), 1e-9)
	})
	t.Run("PROV-071 the claim says that a price was set", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1")
		for _, claim := range openOverlaid(t, list(overlayOf("cheap", priced("0.01"), "m.large")), pod).placed(t, pod) {
			require.Equal(t, "true", claim.Annotations[karpv1.AnnotationPriceOverlayApplied])
			require.NotContains(t, claim.Annotations, karpv1.AnnotationCapacityOverlayApplied)
		}
	})
	t.Run("PROV-072", func(t *testing.T) {
		t.Parallel()
		w := openOverlaid(t, list(overlayOf("a", priced("7"), "m.large"), overlayOf("b", priced("5"), "m.large")))
		require.Eventually(t, func() bool {
			o, err := w.ours.KarpenterV1alpha1().NodeOverlays().Get(t.Context(), "a", metav1.GetOptions{})
			c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionValidationSucceeded)
			return err == nil && c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonConflict
		}, 20*time.Second, 5*time.Millisecond)
		require.InDelta(t, 5, w.price(t, "m.large"), 1e-9)
	})
	t.Run("PROV-073", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1", wants)
		for _, claim := range openOverlaid(t, list(overlayOf("devices", declare, "m.2xlarge")), pod).placed(t, pod) {
			require.Equal(t, []string{"m.2xlarge"}, typesOf(claim))
			require.Equal(t, "true", claim.Annotations[karpv1.AnnotationCapacityOverlayApplied])
			require.NotContains(t, claim.Annotations, karpv1.AnnotationPriceOverlayApplied)
			require.Equal(t, "2", devices(claim))
		}
	})
	t.Run("PROV-073 without the overlay no type has it", func(t *testing.T) {
		t.Parallel()
		pod := waiting("p", "1", wants)
		w := openOverlaid(t, nil, pod)
		require.Eventually(t, func() bool {
			e, _ := w.promises.Lookup(pod.UID)
			return e.State == promise.Refused && strings.Contains(e.Reason, "vendor/x")
		}, 20*time.Second, 5*time.Millisecond)
		require.Empty(t, w.claims(t))
	})
}

// A node was bought for a device that it turns out not to have: no other node is bought for it, the overlay
// tells why, and the node can be used for what it is.
func TestTheFirstNodeTellsWhatAnOverlayGotWrong(t *testing.T) {
	t.Parallel()
	declared := overlayOf("devices", func(s *v1alpha1.NodeOverlaySpec) {
		s.Capacity = v1alpha1.ResourceList{"vendor/x": resource.MustParse("2")}
	}, "m.2xlarge")
	w := openOverlaid(t, []*v1alpha1.NodeOverlay{declared})
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "first", UID: "first", CreationTimestamp: metav1.Now(), Finalizers: []string{karpv1.TerminationFinalizer},
		Labels: map[string]string{karpv1.LabelNodePool: "default", corev1.LabelInstanceTypeStable: "m.2xlarge"},
	}}
	claim.Spec.NodeClassRef = pool().Spec.Template.Spec.NodeClassRef
	claim.Spec.Resources.Requests = corev1.ResourceList{"vendor/x": resource.MustParse("2")}
	claim.Status.ProviderID, claim.Status.Capacity = "id-n", corev1.ResourceList{"vendor/x": resource.MustParse("2")}
	claim.Status.Conditions = []metav1.Condition{{Type: karpv1.ConditionLaunched, Status: metav1.ConditionTrue, Reason: karpv1.ConditionLaunched, LastTransitionTime: metav1.Now()}}
	_, err := w.ours.KarpenterV1().NodeClaims().Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	bare := node("n", "a", "8", func(n *corev1.Node) {
		n.Labels[corev1.LabelInstanceTypeStable] = "m.2xlarge"
		n.Spec.Taints = []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}
	})
	_, err = w.kube.Client.CoreV1().Nodes().Create(t.Context(), bare, metav1.CreateOptions{})
	require.NoError(t, err)

	var told *metav1.Condition
	require.Eventually(t, func() bool {
		o, err := w.ours.KarpenterV1alpha1().NodeOverlays().Get(t.Context(), "devices", metav1.GetOptions{})
		told = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionCapacityObserved)
		return err == nil && told != nil && told.Status == metav1.ConditionFalse
	}, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, told.Message, "spec.capacity[vendor/x]: 2 is declared, but node n of NodePool default came up with 0")

	pod := waiting("p", "1", func(p *corev1.Pod) {
		devices := corev1.ResourceList{"vendor/x": resource.MustParse("1")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: devices, Limits: devices}
	})
	_, err = w.kube.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	e := w.verdicts(t, pod)["p"]
	require.Equal(t, promise.Refused, e.State)
	require.Contains(t, e.Reason, "vendor/x")
	require.Len(t, w.claims(t), 1, "nothing more is bought")

	require.Eventually(t, func() bool { // the kubelet tells something from time to time
		n, err := w.kube.Client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil || n.Labels[karpv1.LabelInitialized] == karpv1.ValueTrue {
			return err == nil
		}
		n.Annotations = map[string]string{"beat": time.Now().String()}
		_, _ = w.kube.Client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return false
	}, 20*time.Second, 10*time.Millisecond, "the node does not wait for ever")
}

// price waits until the pool is evaluated, and returns what plans reckon with for the type.
func (w *world) price(t *testing.T, instanceType string) float64 {
	t.Helper()
	var found float64
	require.Eventually(t, func() bool {
		for _, it := range w.facade.World(t.Context()).Types("default") {
			if it.Name == instanceType {
				found = it.Offerings[0].Price
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond)
	return found
}

func devices(claim *karpv1.NodeClaim) string {
	requested := claim.Spec.Resources.Requests["vendor/x"]
	return requested.String()
}
