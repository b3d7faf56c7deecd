package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

const lease = "karpenter-leader-election"

func heldLease(namespace, holder string, renewed time.Time) *coordinationv1.Lease {
	seconds := int32(15)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
			AcquireTime: &metav1.MicroTime{Time: renewed}, RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

type gateFixture struct {
	*gate
	client  *fake.Clientset
	running atomic.Int32
	started atomic.Int32
	decided atomic.Int32
	events  *events.FakeRecorder
	stop    func()
}

func startGate(t *testing.T, run func(context.Context) error, objects ...runtime.Object) *gateFixture {
	t.Helper()
	f := &gateFixture{client: fake.NewSimpleClientset(objects...), events: events.NewFakeRecorder(100)} //nolint:staticcheck // no field managers here
	f.gate = &gate{
		name: lease, namespace: "kube-system", identity: "me", client: f.client, recorder: f.events,
		metrics: newGateMetrics(prometheus.NewRegistry()), clock: clock.RealClock{},
		timing: gateTiming{lease: 600 * time.Millisecond, renew: 400 * time.Millisecond, retry: 50 * time.Millisecond, look: 30 * time.Millisecond},
		run: func(ctx context.Context) error {
			f.started.Add(1)
			f.running.Add(1)
			defer f.running.Add(-1)
			return run(ctx)
		},
		decided: func() { f.decided.Add(1) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	f.stop = func() { cancel(); <-done }
	t.Cleanup(f.stop)
	return f
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, 2*time.Millisecond, what)
}

func (f *gateFixture) holder(t *testing.T) string {
	t.Helper()
	l, err := f.client.CoordinationV1().Leases("kube-system").Get(t.Context(), lease, metav1.GetOptions{})
	require.NoError(t, err)
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func TestGateRunsTheProvisionerWhileItHoldsTheLease(t *testing.T) {
	t.Parallel()
	f := startGate(t, untilDone)
	eventually(t, "running", func() bool { return f.running.Load() == 1 && f.decided.Load() > 0 })
	require.Empty(t, f.Passive())
	require.InDelta(t, 1, testutil.ToFloat64(f.metrics.active), 0)
	require.Equal(t, "me", f.holder(t))
	f.stop()
	require.Zero(t, f.running.Load())
	require.Empty(t, f.holder(t), "a lease that is given up is free at once")
	require.InDelta(t, 0, testutil.ToFloat64(f.metrics.active), 0)
}

func TestGateStandsByWhileAnotherHoldsTheLease(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ namespace, want string }{
		"in its own namespace": {"kube-system", "nodes are bought by karpenter, which holds the lease " + lease},
		"in any other":         {"karpenter", "nodes are bought by karpenter in namespace karpenter, which holds the lease " + lease},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startGate(t, untilDone, heldLease(tc.namespace, "karpenter", time.Now()))
			eventually(t, "decided", func() bool { return f.decided.Load() > 0 })
			require.Equal(t, tc.want, f.Passive())
			require.InDelta(t, 1, testutil.ToFloat64(f.metrics.blocked), 0)
			require.Contains(t, <-f.events.Events, "ProvisionerStandsBy")
			require.Zero(t, f.started.Load())
			require.NoError(t, f.client.CoordinationV1().Leases(tc.namespace).Delete(t.Context(), lease, metav1.DeleteOptions{}))
			eventually(t, "running once it is free", func() bool { return f.running.Load() == 1 })
			require.Empty(t, f.Passive())
			require.InDelta(t, 0, testutil.ToFloat64(f.metrics.blocked), 0)
		})
	}
}

// A process that was stopped, and does not know yet that its lease has run out.
func TestLeadsEndsWithTheLeaseEvenIfNobodyNoticed(t *testing.T) {
	t.Parallel()
	var stopped atomic.Bool
	goOn := make(chan struct{})
	f := startGate(t, untilDone)
	f.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if stopped.Load() {
			<-goOn
		}
		return false, nil, nil
	})
	eventually(t, "running", func() bool { return f.running.Load() == 1 })
	require.NoError(t, f.Leads())
	stopped.Store(true)
	eventually(t, "not certain any more", func() bool { return f.Leads() != nil })
	require.EqualValues(t, 1, f.running.Load(), "the provisioner still runs")
	close(goOn)
	f.stop()
	require.ErrorContains(t, f.Leads(), "is not held by me")
}

func TestFenceStopsWritesOnly(t *testing.T) {
	t.Parallel()
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.Method) }))
	t.Cleanup(server.Close)
	var leads error
	client := http.Client{Transport: fence{next: http.DefaultTransport, leads: func() error { return leads }}}
	try := func(method string) error {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader("{}"))
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for _, method := range append(writes, http.MethodGet) {
		require.NoError(t, try(method))
	}
	require.Len(t, seen, 5)
	leads = errors.New("the lease is old")
	require.NoError(t, try(http.MethodGet))
	for _, method := range writes {
		require.ErrorContains(t, try(method), "nothing is written: the lease is old")
	}
	require.Len(t, seen, 6)
}

func TestGateIgnoresTheDead(t *testing.T) {
	t.Parallel()
	f := startGate(t, untilDone, heldLease("karpenter", "karpenter", time.Now().Add(-time.Minute)), heldLease("old", "", time.Now()))
	eventually(t, "running", func() bool { return f.running.Load() == 1 })
}

func TestGateStopsWhenSomebodyElseTurnsUp(t *testing.T) {
	t.Parallel()
	f := startGate(t, untilDone)
	eventually(t, "running", func() bool { return f.running.Load() == 1 })
	_, err := f.client.CoordinationV1().Leases("karpenter").Create(t.Context(), heldLease("karpenter", "karpenter", time.Now()), metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "stopped", func() bool { return f.running.Load() == 0 })
	require.Contains(t, f.Passive(), "karpenter in namespace karpenter")
	eventually(t, "lease given up", func() bool { return f.holder(t) == "" })
}

func TestGateStopsWhenTheLeaseIsTaken(t *testing.T) {
	t.Parallel()
	f := startGate(t, untilDone)
	eventually(t, "running", func() bool { return f.running.Load() == 1 })
	_, err := f.client.CoordinationV1().Leases("kube-system").Update(t.Context(), heldLease("kube-system", "karpenter", time.Now()), metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, "stopped", func() bool { return f.running.Load() == 0 })
	eventually(t, "told", func() bool { return strings.HasPrefix(f.Passive(), "nodes are bought by karpenter") })
}

func TestGateStartsAProvisionerThatFellOverAgain(t *testing.T) {
	t.Parallel()
	for name, fall := range map[string]func(){"with an error": func() {}, "with a panic": func() { panic("oops") }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int32
			f := startGate(t, func(ctx context.Context) error {
				if runs.Add(1) == 1 {
					fall()
					return errors.New("AWS is unreachable")
				}
				return untilDone(ctx)
			})
			eventually(t, "second run", func() bool { return runs.Load() == 2 && f.running.Load() == 1 })
			require.InDelta(t, 1, testutil.ToFloat64(f.metrics.restarts), 0)
		})
	}
}

func TestGateDoesNotBuyWithoutKnowingWhoElseDoes(t *testing.T) {
	t.Parallel()
	f := &gateFixture{client: fake.NewSimpleClientset()} //nolint:staticcheck // no field managers here
	var forbidden atomic.Bool
	forbidden.Store(true)
	g := startGate(t, untilDone)
	g.stop()
	f.client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden.Load(), nil, errors.New("forbidden")
	})
	g.gate.client = f.client
	before := g.started.Load()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); g.Run(ctx) }()
	defer func() { cancel(); <-done }()
	eventually(t, "blocked", func() bool { return testutil.ToFloat64(g.metrics.blocked) == 1 })
	require.Equal(t, before, g.started.Load())
	forbidden.Store(false)
	eventually(t, "running", func() bool { return g.running.Load() == 1 })
}
