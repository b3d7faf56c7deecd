package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// scheduler is a berth-scheduler process.
type scheduler struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	once sync.Once
	done chan struct{}
}

// startScheduler runs the scheduler as a process of its own, against the shared cluster.
func startScheduler(t *testing.T, env ...string) *scheduler {
	t.Helper()
	s := &scheduler{t: t, log: filepath.Join(t.TempDir(), fmt.Sprintf("scheduler-%d.log", time.Now().UnixNano())), done: make(chan struct{})}
	binary, err := os.Executable()
	require.NoError(t, err)
	values := map[string]string{}
	for _, line := range shared.Environment() {
		key, value, _ := strings.Cut(line, "=")
		values[key] = value
	}
	s.cmd = exec.Command(binary, "--kubeconfig="+values["KUBECONFIG"], "--secure-port=0", "-v=2", //nolint:gosec // the test binary itself
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms")
	s.cmd.Env = append(append(append(os.Environ(), asScheduler+"=1", "METRICS_PORT=0", "HEALTH_PROBE_PORT=0"), shared.Environment()...), env...)
	log, err := os.Create(s.log)
	require.NoError(t, err)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		_ = log.Close()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.stop(syscall.SIGTERM)
		if t.Failed() {
			s.showLog()
			abandon()
		}
	})
	return s
}

// abandon takes finalizers off and deletes what a failed test left, so that the next one starts clean.
func abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	pools, classes, claims := shared.Karpenter.KarpenterV1().NodePools(), shared.Karpenter.EC2V1().EC2NodeClasses(), shared.Karpenter.KarpenterV1().NodeClaims()
	_ = pools.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if list, err := claims.List(ctx, metav1.ListOptions{}); err == nil {
		for _, c := range list.Items {
			_ = claims.Delete(ctx, c.Name, metav1.DeleteOptions{})
			_, _ = claims.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	if list, err := classes.List(ctx, metav1.ListOptions{}); err == nil {
		for _, c := range list.Items {
			_ = classes.Delete(ctx, c.Name, metav1.DeleteOptions{})
			_, _ = classes.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	if list, err := shared.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, n := range list.Items {
			_, _ = shared.Kube.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			_ = shared.Kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
		}
	}
	for _, i := range shared.EC2.Instances() {
		shared.EC2.Terminate(i.ID)
	}
}

// stop sends the signal and waits for the end.
func (s *scheduler) stop(signal syscall.Signal) {
	s.once.Do(func() {
		_ = s.cmd.Process.Signal(signal)
		select {
		case <-s.done:
		case <-time.After(15 * time.Second):
			s.t.Errorf("the scheduler did not end within 15 s of %s", signal)
			_ = s.cmd.Process.Kill()
		}
	})
}

func (s *scheduler) showLog() {
	raw, err := os.ReadFile(s.log)
	if err != nil {
		return
	}
	const tail = 20_000
	s.t.Logf("end of the scheduler's log:\n%s", raw[max(0, len(raw)-tail):])
}

// logged reports whether the text is in the log.
func (s *scheduler) logged(text string) bool {
	raw, err := os.ReadFile(s.log)
	return err == nil && strings.Contains(string(raw), text)
}

// scene is one test's part of the shared cluster: a namespace, and pools that go when the test ends.
type scene struct {
	t         *testing.T
	namespace string
	applier   *allinone.Applier
}

func newScene(t *testing.T) *scene {
	t.Helper()
	applier, err := allinone.NewApplier(shared.Config)
	require.NoError(t, err)
	s := &scene{t: t, applier: applier, namespace: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))}
	_, err = shared.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := shared.Kube.CoreV1().ServiceAccounts(s.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	return s
}

// clear takes away what the test made and waits until nothing is left to pay for. The scheduler must
// run.
func (s *scene) clear() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	require.NoError(s.t, shared.Kube.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}))
	require.NoError(s.t, shared.Karpenter.KarpenterV1().NodePools().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.eventually("nothing is left", func() bool {
		claims, err := shared.Karpenter.KarpenterV1().NodeClaims().List(ctx, metav1.ListOptions{})
		return err == nil && len(claims.Items) == 0 && shared.LivingInstances() == 0
	})
	require.NoError(s.t, shared.Karpenter.EC2V1().EC2NodeClasses().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.eventually("no class is left", func() bool {
		classes, err := shared.Karpenter.EC2V1().EC2NodeClasses().List(ctx, metav1.ListOptions{})
		return err == nil && len(classes.Items) == 0
	})
}

func (s *scene) eventually(what string, holds func() bool) {
	s.t.Helper()
	require.Eventually(s.t, holds, 90*time.Second, 50*time.Millisecond, what)
}

func (s *scene) apply(manifests ...string) {
	s.t.Helper()
	for _, m := range manifests {
		require.NoError(s.t, s.applier.Apply(s.t.Context(), strings.ReplaceAll(m, "NAMESPACE", s.namespace)))
	}
}

// rejected applies a manifest that the API server must refuse, and returns the refusal.
func (s *scene) rejected(manifest string) string {
	s.t.Helper()
	err := s.applier.Apply(s.t.Context(), strings.ReplaceAll(manifest, "NAMESPACE", s.namespace))
	require.Error(s.t, err)
	return err.Error()
}

func (s *scene) pods() []corev1.Pod {
	list, err := shared.Kube.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

func (s *scene) claims() []karpv1.NodeClaim {
	list, err := shared.Karpenter.KarpenterV1().NodeClaims().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// running waits until exactly n pods are Running and nothing else is there.
func (s *scene) running(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d pods are Running", n), func() bool {
		pods := s.pods()
		for _, p := range pods {
			if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				return false
			}
		}
		return len(pods) == n
	})
}

// events returns the messages of the events about an object, by name.
func (s *scene) events(namespace, name string) string {
	list, err := shared.Kube.CoreV1().Events(namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return ""
	}
	var all strings.Builder
	for _, e := range list.Items {
		_, _ = io.WriteString(&all, e.Reason+": "+e.Message+"\n")
	}
	return all.String()
}

const nodeClass = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: KarpenterNodeRole-berth-local
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: berth-local}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: berth-local}}]
`

const nodePool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
      - {key: karpenter.k8s.aws/instance-family, operator: NotIn, values: [m5, c5]}
      - {key: karpenter.k8s.aws/instance-hypervisor, operator: Exists}
      - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["4"]}
      - {key: karpenter.k8s.aws/instance-cpu, operator: Gte, values: ["2"]}
      - {key: karpenter.k8s.aws/instance-cpu, operator: Lte, values: ["16"]}
      - {key: karpenter.k8s.aws/instance-memory, operator: Lt, values: ["131073"]}
  disruption: {consolidateAfter: 2s, budgets: [{nodes: "100%"}]}
`

func deployment(name string, replicas int, podSpec string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: NAMESPACE}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      schedulerName: berth
      terminationGracePeriodSeconds: 1
%[3]s
      containers:
      - name: app
        image: registry.k8s.io/pause:3.10
        resources: {requests: {cpu: 400m, memory: 512Mi}}
`, name, replicas, podSpec)
}

const zoneSpread = `      topologySpreadConstraints:
      - {topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}`

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
