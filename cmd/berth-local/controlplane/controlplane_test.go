package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/cmd/berth-local/controlplane"
	"github.com/berth-dev/berth/manifests/crds"
)

func start(t *testing.T, options controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	c, err := controlplane.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}

// One test, since a process can run one control plane.
func TestControlPlane(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	c := start(t, controlplane.Options{KubeconfigPath: kubeconfig})
	ctx := t.Context()

	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err, "the kubeconfig alone gives access")

	definitions, err := crds.All()
	require.NoError(t, err)
	require.NoError(t, controlplane.InstallCRDs(ctx, c.RESTConfig(), definitions))
	require.NoError(t, controlplane.InstallCRDs(ctx, c.RESTConfig(), definitions), "installing twice is fine")

	replicas := int32(3)
	labels := map[string]string{"app": "web"}
	_, err = client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.k8s.io/pause:3.10"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		return err == nil && len(pods.Items) == 3
	}, 20*time.Second, 50*time.Millisecond, "the deployment and replica set controllers run")
	require.NoError(t, c.Failed())

	_, err = controlplane.Start(ctx, controlplane.Options{DataDir: c.DataDir()})
	require.ErrorContains(t, err, fmt.Sprintf("in use by process %d", os.Getpid()))

	stop(t, c)
	_, err = client.Discovery().ServerVersion()
	require.Error(t, err, "nothing serves after Stop")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "a temporary data directory does not outlive the cluster")
	require.NoFileExists(t, kubeconfig)

	_, err = controlplane.Start(ctx, controlplane.Options{})
	require.ErrorContains(t, err, "start another process")
	left, err = os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	address, ok := listener.Addr().(*net.TCPAddr)
	require.True(t, ok)
	_, err = controlplane.Start(t.Context(), controlplane.Options{Port: address.Port})
	require.ErrorContains(t, err, fmt.Sprintf("port %d cannot be used", address.Port))

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = controlplane.Start(t.Context(), controlplane.Options{DataDir: filepath.Join(file, "dir")})
	require.ErrorContains(t, err, "make data directory")
}
