package controlplane

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// Options of a control plane; the zero value is valid.
type Options struct {
	// DataDir keeps etcd, keys and logs; empty means a temporary folder that Stop removes.
	DataDir string
	// Port of the API server on 127.0.0.1; 0 picks a free one.
	Port int
	// KubeconfigPath is where the admin's kubeconfig goes; empty means into the data directory.
	KubeconfigPath string
	// LogFile takes what the components log; empty means into the data directory.
	LogFile string
	// FeatureGates of the API server and the controllers. They are process-wide: those of the first
	// control plane of the process count.
	FeatureGates map[string]bool
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	dir        *dataDir
	kubeconfig string
	ownsConfig bool // the kubeconfig was written outside the data directory
	config     *rest.Config
	log        *os.File

	etcd         *embed.Etcd
	stopAPI      context.CancelFunc
	stopManager  context.CancelFunc
	api, manager chan error // results; closed by their goroutines
	stopOnce     sync.Once
	stopped      error
	cancelOnDone func() bool
}

const (
	host         = "127.0.0.1"
	serviceRange = "10.96.0.0/16"
	readyTimeout = 60 * time.Second
)

// started: the API server registers names, gates and metrics that a process cannot take back.
var started atomic.Bool

// Start runs etcd, the API server and the controllers, and returns when the cluster takes pods. The
// control plane ends with ctx, too. A process can run one control plane in its life.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	if err := checkPort(options.Port); err != nil {
		return nil, err
	}
	dir, err := openDataDir(options.DataDir)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{dir: dir}
	defer func() {
		if err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = errors.Join(err, c.Stop(stopCtx))
		}
	}()
	if err := c.startLog(cmp.Or(options.LogFile, dir.join("components.log"))); err != nil {
		return nil, err
	}
	keys, err := newPKI(dir.join("pki"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(keys.serving("apiserver", net.IPv4(10, 96, 0, 1)), keys.signingKey("sa.key")); err != nil {
		return nil, err
	}
	port := options.Port
	if port == 0 {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if err := c.writeKubeconfig(keys, port, options.KubeconfigPath); err != nil {
		return nil, err
	}
	if !started.CompareAndSwap(false, true) {
		return nil, errors.New("this process has run a control plane already; start another process for another one")
	}
	endpoint, err := c.startEtcd(ctx)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if err := c.startAPIServer(ctx, keys, endpoint, port, options.FeatureGates); err != nil {
		return nil, fmt.Errorf("start kube-apiserver: %w", err)
	}
	if err := c.startManager(ctx, keys); err != nil {
		return nil, fmt.Errorf("start kube-controller-manager: %w", err)
	}
	if err := c.awaitAccount(ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = c.Stop(stopCtx)
	})
	c.cancelOnDone = stop
	return c, nil
}

// RESTConfig gives the admin's access, without client-side rate limits.
func (c *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// KubeconfigPath is the admin's kubeconfig.
func (c *ControlPlane) KubeconfigPath() string { return c.kubeconfig }

// DataDir is the folder of the cluster.
func (c *ControlPlane) DataDir() string { return c.dir.path }

// Version of the API server, for example "v1.37.2".
func (c *ControlPlane) Version() string { return Version() }

// Version of Kubernetes that this program was built with. The components' own version variables are
// empty unless the linker fills them.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	return version.Get().GitVersion
}

// Failed returns why a component has ended that should not have; nil while all is well.
func (c *ControlPlane) Failed() error {
	select {
	case err := <-c.api:
		return fmt.Errorf("kube-apiserver ended: %w", err)
	case err := <-c.manager:
		return fmt.Errorf("kube-controller-manager ended: %w", err)
	default:
		return nil
	}
}

// Stop ends the components in the reverse order of their start and removes what is temporary. It may
// be called more than once.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() { c.stopped = c.stop(ctx) })
	return c.stopped
}

func (c *ControlPlane) stop(ctx context.Context) error {
	var errs []error
	if c.cancelOnDone != nil {
		c.cancelOnDone()
	}
	if c.stopManager != nil {
		c.stopManager()
		errs = append(errs, await(ctx, c.manager, "kube-controller-manager"))
	}
	if c.stopAPI != nil {
		c.stopAPI()
		errs = append(errs, await(ctx, c.api, "kube-apiserver"))
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
	if c.ownsConfig {
		if err := os.Remove(c.kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if c.log != nil {
		klog.Flush()
		klog.LogToStderr(true)
		errs = append(errs, c.log.Close())
	}
	return errors.Join(append(errs, c.dir.close())...)
}

// await waits for a component that was told to end. What it returns then is no failure.
func await(ctx context.Context, done <-chan error, name string) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not end in time", name)
	}
}

// startLog sends what the components log to a file, so that the console is left to the product.
func (c *ControlPlane) startLog(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log file %s: %w", path, err)
	}
	c.log = file
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("set up logging: %w", err)
		}
	}
	klog.SetOutput(file)
	return nil
}

// writeKubeconfig gives the admin access and keeps the same access for this process.
func (c *ControlPlane) writeKubeconfig(keys *pki, port int, path string) error {
	cert, key, err := keys.client("admin", "system:masters")
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://%s:%d", host, port)
	config := clientcmdapi.NewConfig()
	config.Clusters["berth-local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: keys.caPEM}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["berth-local"] = &clientcmdapi.Context{Cluster: "berth-local", AuthInfo: "admin"}
	config.CurrentContext = "berth-local"
	if err := mayReplace(path); err != nil {
		return err
	}
	c.kubeconfig, c.ownsConfig = cmp.Or(path, c.dir.join("kubeconfig")), path != ""
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", c.kubeconfig, err)
	}
	c.config = &rest.Config{
		Host: server, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: keys.caPEM, CertData: cert, KeyData: key},
	}
	return nil
}

// mayReplace refuses a file that some other program wrote: it would be overwritten now and deleted at the
// end. One that an earlier cluster left behind may go.
func mayReplace(path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	config, err := clientcmd.LoadFromFile(path)
	if err == nil && len(config.Clusters) == 1 && config.Clusters["berth-local"] != nil {
		return nil
	}
	return fmt.Errorf("kubeconfig %s exists and was not written by berth-local; it would be overwritten, and deleted at the end: name a file that does not exist", path)
}

func checkPort(port int) error {
	if port == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
	if err != nil {
		return fmt.Errorf("port %d cannot be used: %w; choose another with --port, or 0 for any free one", port, err)
	}
	return listener.Close()
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: listener has address %s", listener.Addr())
	}
	return address.Port, nil
}
