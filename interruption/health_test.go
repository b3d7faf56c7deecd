package interruption_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
)

// ward is a cloud that tells what tests say.
type ward struct {
	mu   sync.Mutex
	list []cloud.Ailment
	err  error
	asks int
}

func (w *ward) Ailments(context.Context) ([]cloud.Ailment, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks++
	return w.list, w.err
}

func (w *ward) set(list ...cloud.Ailment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = list
}

func (w *ward) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asks
}

var morning = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)

func watch(t *testing.T, h *ward, claims ...*karpv1.NodeClaim) *world {
	t.Helper()
	w := &world{
		ours: fake.NewClientset(), kube: kubefake.NewClientset(), clock: clocktesting.NewFakeClock(morning),
		sink: record.NewFakeRecorder(1000), shortages: &shortages{}, registry: prometheus.NewRegistry(), queue: newQueue(), health: h,
	}
	for _, c := range claims {
		_, err := w.ours.KarpenterV1().NodeClaims().Create(t.Context(), c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.run(t)
	return w
}

// minutes lets n looks at the cloud pass.
func (w *world) minutes(t *testing.T, n int) {
	t.Helper()
	for range n {
		before := w.health.asked()
		require.Eventually(t, func() bool {
			if w.health.asked() > before {
				return true
			}
			w.clock.Step(time.Minute)
			return false
		}, 10*time.Second, 5*time.Millisecond)
	}
}

// leaving is a claim that is on its way out already, and so stays as it is.
func leaving(c *karpv1.NodeClaim) {
	c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: morning}, []string{karpv1.TerminationFinalizer}
}

func TestAilments(t *testing.T) {
	t.Parallel()
	const ours = "i-0a11b22c33d44e551"
	tests := map[string]struct {
		list           []cloud.Ailment
		gone, forced   bool
		counted        float64
		claimTimestamp string
	}{
		"IN-30 failed for a minute":                 {list: []cloud.Ailment{{InstanceID: ours, Category: cloud.InstanceCheckFailed, Since: morning.Add(-10 * time.Second)}}},
		"IN-31 failed for two":                      {list: []cloud.Ailment{{InstanceID: ours, Category: cloud.InstanceCheckFailed, Since: morning.Add(-130 * time.Second)}}, gone: true, forced: true, counted: 1},
		"failed since nobody knows when":            {list: []cloud.Ailment{{InstanceID: ours, Category: cloud.InstanceCheckFailed}}, gone: true, forced: true, counted: 1},
		"IN-34 its host failed":                     {list: []cloud.Ailment{{InstanceID: ours, Category: cloud.SystemCheckFailed, Since: morning.Add(-130 * time.Second)}}, gone: true, forced: true, counted: 1},
		"IN-35 it will be retired":                  {list: []cloud.Ailment{{InstanceID: ours, Category: cloud.MaintenanceScheduled}}, gone: true, counted: 1},
		"IN-38 an instance of another cluster":      {list: []cloud.Ailment{{InstanceID: "i-0fffffffffffffff0", Category: cloud.SystemCheckFailed}}},
		"IN-40 an earlier timestamp stays as it is": {list: []cloud.Ailment{{InstanceID: ours, Category: cloud.SystemCheckFailed}}, gone: true, counted: 1, claimTimestamp: "2026-05-04T09:00:00Z"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, _ := claimOf("551")
			if tc.claimTimestamp != "" {
				claim.Annotations = map[string]string{karpv1.AnnotationTerminationTimestamp: tc.claimTimestamp}
			}
			h := &ward{list: tc.list}
			w := watch(t, h, claim)
			require.Eventually(t, func() bool { return h.asked() > 0 }, 10*time.Second, time.Millisecond)
			var written []string
			if tc.gone {
				require.Eventually(t, func() bool { return w.gone(claim.Name) && w.said("TerminatingOnInterruption") == 1 }, 10*time.Second, time.Millisecond, "it is replaced")
			} else {
				require.Never(t, func() bool { return w.gone(claim.Name) }, 50*time.Millisecond, 5*time.Millisecond)
			}
			for _, a := range w.ours.Actions() {
				if a.GetVerb() == "patch" {
					written = append(written, a.GetResource().Resource)
				}
			}
			require.Equal(t, tc.forced, len(written) > 0, "the termination timestamp is written for broken machines")
			require.InDelta(t, tc.counted, w.metric(t, "karpenter_interruption_instance_status_unhealthy_total", ""), 0)
		})
	}
}

func TestIN32And33AilmentsCountOnceWhileTheyLast(t *testing.T) {
	t.Parallel()
	claim, _ := claimOf("551", leaving)
	ill := cloud.Ailment{InstanceID: "i-0a11b22c33d44e551", Category: cloud.MaintenanceScheduled}
	h := &ward{list: []cloud.Ailment{ill}}
	w := watch(t, h, claim)
	counted := func() float64 {
		return w.metric(t, "karpenter_interruption_instance_status_unhealthy_total", "EventStatus")
	}
	w.minutes(t, 3)
	require.InDelta(t, 1, counted(), 0, "IN-32")
	h.set()
	w.minutes(t, 2)
	h.set(ill)
	w.minutes(t, 2)
	require.InDelta(t, 2, counted(), 0, "IN-33")
}

// denied is what the SDK's errors look like.
type denied struct{}

func (denied) Error() string     { return "denied" }
func (denied) ErrorCode() string { return "UnauthorizedOperation" }

func TestIN39NoFurtherLookWhenDenied(t *testing.T) {
	t.Parallel()
	h := &ward{err: denied{}}
	w := watch(t, h)
	w.eventually(t, func() bool { return h.asked() == 1 }, "it is asked once")
	w.clock.Step(10 * time.Minute)
	require.Never(t, func() bool { return h.asked() > 1 }, 100*time.Millisecond, 10*time.Millisecond)

	other := &ward{err: errors.New("busy")}
	watch(t, other).minutes(t, 3)
	require.GreaterOrEqual(t, other.asked(), 3, "other errors are tried again")
}
