package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apioptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kcmapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// startEtcd runs etcd without fsync: the data is not worth keeping.
func (c *ControlPlane) startEtcd(ctx context.Context) (endpoint string, err error) {
	config := embed.NewConfig()
	config.Dir = c.dir.join("etcd")
	config.LogLevel, config.LogOutputs = "error", []string{c.log.Name()}
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 4 << 30
	config.AutoCompactionMode, config.AutoCompactionRetention = "periodic", "5m"
	var urls []url.URL
	for range 2 {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		urls = append(urls, url.URL{Scheme: "http", Host: fmt.Sprintf("%s:%d", host, port)})
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = urls[:1], urls[:1]
	config.ListenPeerUrls, config.AdvertisePeerUrls = urls[1:], urls[1:]
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	if c.etcd, err = embed.StartEtcd(config); err != nil {
		return "", err
	}
	select {
	case <-c.etcd.Server.ReadyNotify():
		return urls[0].String(), nil
	case err := <-c.etcd.Err():
		return "", err
	case <-time.After(readyTimeout):
		return "", fmt.Errorf("not ready after %s", readyTimeout)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// globals are set once: feature gates are process-wide.
var globals sync.Once

func gates(features map[string]bool) string {
	var pairs []string
	for name, on := range features {
		pairs = append(pairs, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// parse fills options from flags as the component's own command would.
func parse(sets cliflag.NamedFlagSets, args []string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	return flags.Parse(args)
}

func (c *ControlPlane) startAPIServer(ctx context.Context, keys *pki, etcd string, port int, features map[string]bool) error {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	options := apioptions.NewServerRunOptions()
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + host, fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + keys.dir, "--tls-cert-file=" + keys.path("apiserver.crt"), "--tls-private-key-file=" + keys.path("apiserver.key"),
		"--client-ca-file=" + keys.path("ca.crt"), "--anonymous-auth=false", "--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keys.path("sa.key"), "--service-account-signing-key-file=" + keys.path("sa.key"),
		"--service-cluster-ip-range=" + serviceRange, "--endpoint-reconciler-type=none", "--allow-privileged=true",
		"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500", "--profiling=false",
		"--shutdown-watch-termination-grace-period=1s", // watches of other programs must not hold the end up
	}
	if len(features) > 0 {
		args = append(args, "--feature-gates="+gates(features))
	}
	if err := parse(options.Flags(), args); err != nil {
		return err
	}
	var errGlobals error
	globals.Do(func() { errGlobals = options.GenericServerRunOptions.ComponentGlobalsRegistry.Set() })
	if errGlobals != nil {
		return fmt.Errorf("set feature gates: %w", errGlobals)
	}
	apiCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	completed, err := options.Complete(apiCtx)
	if err != nil {
		cancel()
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		cancel()
		return errors.Join(errs...)
	}
	c.stopAPI, c.api = cancel, make(chan error, 1)
	go func() {
		c.api <- apiapp.Run(apiCtx, completed)
		close(c.api)
	}()
	return c.awaitReady(ctx)
}

// awaitReady polls /readyz; a server that ends instead tells why.
func (c *ControlPlane) awaitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-c.api:
			return false, fmt.Errorf("it ended: %w", err)
		default:
		}
		_, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// unwanted controllers have nothing to do without kubelets that ask for certificates, pod networks and
// pod metrics.
const unwanted = "-node-ipam-controller,-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller," +
	"-certificatesigningrequest-cleaner-controller,-bootstrap-signer-controller,-token-cleaner-controller,-horizontal-pod-autoscaler-controller"

func (c *ControlPlane) startManager(ctx context.Context, keys *pki) error {
	options, err := kcmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, disabled, aliases := kcmapp.KnownControllers(), kcmapp.ControllersDisabledByDefault(), kcmapp.ControllerAliases()
	sets := options.Flags(known, disabled, aliases)
	options.ParsedFlags = &sets
	err = parse(sets, []string{
		"--kubeconfig=" + c.kubeconfig, "--secure-port=0", "--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + keys.path("sa.key"), "--root-ca-file=" + keys.path("ca.crt"),
		"--controllers=*," + unwanted,
		"--node-monitor-period=2s", "--node-monitor-grace-period=20s", "--kube-api-qps=1000", "--kube-api-burst=2000",
		"--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20", "--concurrent-gc-syncs=20", "--concurrent-job-syncs=20",
		"--concurrent-namespace-syncs=20", "--min-resync-period=12h",
	})
	if err != nil {
		return err
	}
	managerCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	config, err := options.Config(managerCtx, known, disabled, aliases)
	if err != nil {
		cancel()
		return err
	}
	c.stopManager, c.manager = cancel, make(chan error, 1)
	go func() {
		c.manager <- kcmapp.Run(managerCtx, config.Complete())
		close(c.manager)
	}()
	return nil
}

// awaitAccount waits for the default service account, without which no pod can be created.
func (c *ControlPlane) awaitAccount(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-c.manager:
			return false, fmt.Errorf("kube-controller-manager ended: %w", err)
		default:
		}
		_, last = client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default service account: %w", errors.Join(err, last))
	}
	return nil
}
