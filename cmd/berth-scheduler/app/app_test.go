package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/cmd/berth-local/controlplane"
	"github.com/berth-dev/berth/cmd/berth-scheduler/app"
)

// buyer stands for the provisioner: it notes who asks and whether it may act.
type buyer struct {
	in      app.Inputs
	mu      sync.Mutex
	asked   []string
	running atomic.Int32
	runs    atomic.Int32
}

func (b *buyer) Ask(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.in.Promises.Ask(pod, time.Unix(0, 0)) {
		b.asked = append(b.asked, pod.Name)
	}
}

func (b *buyer) Run(ctx context.Context) error {
	b.runs.Add(1)
	b.running.Add(1)
	defer b.running.Add(-1)
	<-ctx.Done()
	return nil
}

func (b *buyer) wanted(pod string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.asked, pod)
}

// replica is one Run in this process.
type replica struct {
	*buyer
	ready  chan struct{}
	cancel context.CancelFunc
	result chan error
}

func run(t *testing.T, config *rest.Config, o app.Options) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{buyer: &buyer{}, ready: make(chan struct{}), cancel: cancel, result: make(chan error, 1)}
	o.Config, o.Ready = config, func() { close(r.ready) }
	if o.ClusterName == "" {
		o.ClusterName = "test"
	}
	o.Build = func(_ context.Context, in app.Inputs) (app.Provisioner, error) {
		r.in = in
		return r.buyer, nil
	}
	o.Args = append([]string{"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms"}, o.Args...)
	go func() { r.result <- app.Run(ctx, o) }()
	t.Cleanup(cancel)
	return r
}

func (r *replica) awaitReady(t *testing.T) {
	t.Helper()
	select {
	case <-r.ready:
	case err := <-r.result:
		t.Fatalf("ended before it was ready: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("not ready in time")
	}
}

func (r *replica) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.result:
		require.NoError(t, err)
	case <-time.After(15 * time.Second):
		t.Fatal("did not stop in time")
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 20*time.Second, 10*time.Millisecond, what)
}

func pod(name, scheduler string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
}

func configFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+content), 0o600))
	return file
}

// profileOf is the shipped profile under another name.
func profileOf(name string) string {
	return fmt.Sprintf(`profiles:
- schedulerName: %s
  plugins:
    multiPoint: {enabled: [{name: NodeProvision}]}
    preFilter: {enabled: [{name: NodeProvision}]}
    filter: {enabled: [{name: NodeProvision}]}
    reserve: {enabled: [{name: NodeProvision}]}
    postFilter: {disabled: [{name: "*"}], enabled: [{name: NodeProvision}, {name: DynamicResources}, {name: DefaultPreemption}]}
`, name)
}

// One test, since a process can run one control plane.
func TestRunAgainstARealControlPlane(t *testing.T) {
	control, err := controlplane.Start(t.Context(), controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, control.Stop(ctx))
	})
	config := control.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "full", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	create := func(t *testing.T, p *corev1.Pod) {
		t.Helper()
		_, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	holder := func(namespace, name string) string {
		l, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}

	t.Run("a pod that fits nowhere asks, and both leases are given up at the end", func(t *testing.T) {
		r := run(t, config, app.Options{Identity: "first"})
		r.awaitReady(t)
		require.Equal(t, []string{"berth"}, r.in.SchedulerNames)
		create(t, pod("one", "berth"))
		eventually(t, "ask", func() bool { return r.wanted("one") })
		eventually(t, "buying", func() bool { return r.running.Load() == 1 })
		require.Equal(t, "first", holder("kube-system", "berth"))
		require.Equal(t, "first", holder("kube-system", "karpenter-leader-election"))
		r.stop(t)
		require.Zero(t, r.running.Load())
		require.Empty(t, holder("kube-system", "berth"))
		require.Empty(t, holder("kube-system", "karpenter-leader-election"))
	})

	t.Run("a second Run in the process serves and names a profile default-scheduler", func(t *testing.T) {
		port := freePort(t)
		r := run(t, config, app.Options{ConfigFile: configFile(t, profileOf("default-scheduler")), Args: []string{fmt.Sprint("--secure-port=", port), "--authentication-skip-lookup", "--authorization-always-allow-paths=/livez,/readyz,/metrics"}})
		r.awaitReady(t)
		create(t, pod("two", "default-scheduler"))
		eventually(t, "ask", func() bool { return r.wanted("two") })
		require.Equal(t, "ok", get(t, port, "/livez"))
		require.Equal(t, "ok", get(t, port, "/readyz"))
		metrics := get(t, port, "/metrics")
		require.Contains(t, metrics, "berth_provisioner_active 1")
		require.Contains(t, metrics, "scheduler_pending_pods")
		r.stop(t)
	})

	t.Run("a standby buys nothing, and takes over when the leader stops", func(t *testing.T) {
		leader := run(t, config, app.Options{Identity: "leader"})
		leader.awaitReady(t)
		standby := run(t, config, app.Options{Identity: "standby"})
		create(t, pod("three", "berth"))
		eventually(t, "ask", func() bool { return leader.wanted("three") })
		require.Zero(t, standby.runs.Load())
		require.False(t, standby.wanted("three"))
		leader.stop(t)
		standby.awaitReady(t)
		eventually(t, "ask of the new leader", func() bool { return standby.wanted("three") })
		eventually(t, "buying", func() bool { return standby.running.Load() == 1 })
		standby.stop(t)
	})

	t.Run("while Karpenter holds its lease, scheduling goes on and nothing is bought", func(t *testing.T) {
		seconds, karpenter := int32(3600), "karpenter"
		_, err := client.CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "karpenter-leader-election"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &karpenter, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		r := run(t, config, app.Options{})
		r.awaitReady(t)
		create(t, pod("four", "berth"))
		eventually(t, "reason in the pod's condition", func() bool {
			p, err := client.CoreV1().Pods("default").Get(t.Context(), "four", metav1.GetOptions{})
			require.NoError(t, err)
			return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return strings.Contains(c.Message, "nodes are bought by karpenter in namespace default")
			})
		})
		require.Zero(t, r.runs.Load())
		require.NoError(t, client.CoordinationV1().Leases("default").Delete(t.Context(), "karpenter-leader-election", metav1.DeleteOptions{}))
		eventually(t, "buying", func() bool { return r.running.Load() == 1 })
		r.stop(t)
	})

	t.Run("the process must end when the scheduler lease is lost", func(t *testing.T) {
		r := run(t, config, app.Options{Identity: "loser"})
		r.awaitReady(t)
		l, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "berth", metav1.GetOptions{})
		require.NoError(t, err)
		thief := "thief"
		l.Spec.HolderIdentity = &thief
		_, err = client.CoordinationV1().Leases("kube-system").Update(t.Context(), l, metav1.UpdateOptions{})
		require.NoError(t, err)
		select {
		case err := <-r.result:
			require.ErrorIs(t, err, app.ErrLeaseLost)
		case <-time.After(20 * time.Second):
			t.Fatal("it goes on without the lease")
		}
		require.Zero(t, r.running.Load())
		require.NoError(t, client.CoordinationV1().Leases("kube-system").Delete(t.Context(), "berth", metav1.DeleteOptions{}))
	})

	t.Run("a Run leaves next to nothing behind", func(t *testing.T) {
		before := 0
		for i := range 4 {
			r := run(t, config, app.Options{})
			r.awaitReady(t)
			r.stop(t)
			if i == 0 {
				before = runtime.NumGoroutine()
			}
		}
		// Connections and upstream's own stragglers take a moment to end.
		eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() < before+15 })
	})

	t.Run("faults are told at start", func(t *testing.T) {
		tests := map[string]struct {
			o    app.Options
			want string
		}{
			"a flag that does not exist": {app.Options{Args: []string{"--no-such-flag"}}, "no-such-flag"},
			"an argument":                {app.Options{Args: []string{"argument"}}, `"argument" is not a flag`},
			"a wrong window":             {app.Options{Args: []string{"--batch-idle-duration=-1s"}}, "--batch-idle-duration has the value"},
			"a missing file":             {app.Options{ConfigFile: "/does/not/exist"}, "/does/not/exist"},
			"a plugin that stands last": {app.Options{ConfigFile: configFile(t, "profiles: [{schedulerName: x, plugins: {multiPoint: {enabled: [{name: NodeProvision}]}}}]\n")},
				"profile x: NodeProvision must come first at filter; name it there too: plugins.filter.enabled: [{name: NodeProvision}]"},
			"a word that is not a policy": {app.Options{ConfigFile: configFile(t, profileOf("x")+"  pluginConfig: [{name: NodeProvision, args: {preemption: Sometimes}}]\n")}, `Unsupported value: "Sometimes"`},
			"a field that does not exist": {app.Options{ConfigFile: configFile(t, profileOf("x")+"  pluginConfig: [{name: NodeProvision, args: {preemtion: Never}}]\n")}, `unknown field "preemtion"`},
			"profiles that differ": {app.Options{ConfigFile: configFile(t, profileOf("x")+"  pluginConfig: [{name: NodeProvision, args: {preferencePolicy: Respect}}]\n"+strings.TrimPrefix(profileOf("z"), "profiles:\n"))},
				"preferencePolicy of NodeProvision is Respect and Guide"},
		}
		for name, tc := range tests {
			t.Run(name, func(t *testing.T) {
				r := run(t, config, tc.o)
				select {
				case err := <-r.result:
					require.ErrorContains(t, err, tc.want)
				case <-r.ready:
					t.Fatal("it started")
				}
			})
		}
		o := app.Options{Config: config, ClusterName: "c", Build: func(context.Context, app.Inputs) (app.Provisioner, error) { return nil, errors.New("no region") }}
		require.ErrorContains(t, app.Run(t.Context(), o), "set up the provisioner: no region")
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
