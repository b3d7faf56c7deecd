package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/cli"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	"github.com/berth-dev/berth/cmd/berth-scheduler/app"
	"github.com/berth-dev/berth/examples/custom-plugin/racktested"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// actAs makes the test binary act as a scheduler: as this program, or as one without the plugin.
const actAs = "BERTH_TEST_ACT_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(actAs) {
	case "custom-plugin":
		main()
	case "berth-scheduler":
		os.Exit(cli.Run(app.NewCommand()))
	}
	os.Exit(m.Run())
}

// start runs the program until the test ends; its log is shown when the test fails.
func start(t *testing.T, cluster *allinone.Cluster, program string, args ...string) {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd := exec.Command(binary, append(args, "--secure-port=0", "--leader-elect=false")...) //nolint:gosec // the test binary itself
	cmd.Env = append(append(os.Environ(), actAs+"="+program, "METRICS_PORT=0", "HEALTH_PROBE_PORT=0"), cluster.Environment()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("end of the log of %s:\n%s", program, text[max(0, len(text)-10_000):])
		}
	})
}

// The pool whose nodes the plugin refuses is heavier and cheaper, and is bought without the plugin.
func TestPlannerHonoursThePlugin(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	cluster, err := allinone.Start(t.Context(), allinone.Options{Kubeconfig: kubeconfig, NoScheduler: true, BootDelay: 100 * time.Millisecond, SystemNodes: 1})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		require.NoError(t, cluster.Stop(ctx))
	})
	applier, err := allinone.NewApplier(cluster.Config)
	require.NoError(t, err)
	apply := func(t *testing.T, path string, change ...string) {
		t.Helper()
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, applier.Apply(t.Context(), strings.NewReplacer(change...).Replace(string(raw))))
	}
	apply(t, "../quickstart/nodeclass.yaml")
	apply(t, "nodepools.yaml")

	raw, err := os.ReadFile("scheduler.yaml")
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(string(raw), "/tmp/berth-local.kubeconfig", kubeconfig)), 0o600))

	tests := []struct {
		program, workload string
		args              []string
		pool              string
	}{
		{"custom-plugin", "with", []string{"--config=" + config}, "tested"},
		{"berth-scheduler", "without", []string{"--kubeconfig=" + kubeconfig}, "untested"},
	}
	for _, tc := range tests {
		t.Run(tc.program, func(t *testing.T) {
			start(t, cluster, tc.program, tc.args...)
			apply(t, "../quickstart/deployment.yaml", "web", tc.workload, "cpu: 500m", "cpu: 1500m")
			pods := running(t, cluster, "app="+tc.workload, 5)
			nodes := map[string]bool{}
			for _, pod := range pods {
				nodes[pod.Spec.NodeName] = true
			}
			for name := range nodes {
				node, err := cluster.Kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, tc.pool, node.Labels[karpv1.LabelNodePool])
				require.Equal(t, tc.pool == "tested", node.Labels[racktested.Label] == "true")
			}
			claims, err := cluster.Karpenter.KarpenterV1().NodeClaims().List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, claims.Items, len(nodes), "nothing was bought in vain")

			background := metav1.DeletePropagationBackground
			require.NoError(t, cluster.Kube.AppsV1().Deployments("default").Delete(t.Context(), tc.workload, metav1.DeleteOptions{PropagationPolicy: &background}))
			eventually(t, "no pod is left", func() bool {
				list, err := cluster.Kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
				return err == nil && len(list.Items) == 0
			})
			require.NoError(t, cluster.Karpenter.KarpenterV1().NodeClaims().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			eventually(t, "no claim is left", func() bool {
				claims, err := cluster.Karpenter.KarpenterV1().NodeClaims().List(t.Context(), metav1.ListOptions{})
				return err == nil && len(claims.Items) == 0
			})
		})
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, 90*time.Second, 50*time.Millisecond, what)
}

// running waits until n pods of the selector run, and returns them.
func running(t *testing.T, cluster *allinone.Cluster, selector string, n int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, "the pods run", func() bool {
		list, err := cluster.Kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false
		}
		pods = list.Items
		for _, pod := range pods {
			if pod.Status.Phase != corev1.PodRunning {
				return false
			}
		}
		return len(pods) == n
	})
	return pods
}
