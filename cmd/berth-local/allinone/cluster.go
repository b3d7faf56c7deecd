package allinone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/cmd/berth-local/controlplane"
	"github.com/berth-dev/berth/cmd/berth-local/kubelet"
	"github.com/berth-dev/berth/cmd/berth-scheduler/app"
	"github.com/berth-dev/berth/manifests/crds"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
)

// Options of a cluster; the zero value is a good one.
type Options struct {
	// Kubeconfig is where to write the admin's kubeconfig; empty means inside the data directory.
	Kubeconfig string
	// Port of the API server; 0 picks a free one.
	Port int
	// SchedulerConfig is a KubeSchedulerConfiguration file; empty means the shipped one.
	SchedulerConfig string
	// SchedulerArgs are further flags of berth-scheduler.
	SchedulerArgs []string
	NoScheduler   bool
	// BootDelay from launch until an instance's kubelet starts; 0 means 2 s.
	BootDelay time.Duration
	// EC2Script is a file that says what the simulated EC2 does wrong, and when.
	EC2Script string
	// SystemNodes stand for the nodes that a real cluster has before Berth; negative means none.
	SystemNodes int
	// EKSVersion that the simulated EKS reports; empty means the API server's.
	EKSVersion string
	// Seed of everything random in the simulation.
	Seed uint64
	// CatalogFile replaces the catalogue by a file in the format of provisioner/aws/facts (gzipped table).
	CatalogFile string
	// Catalog has the instance types and prices of the simulated EC2; nil means what is known of the real one.
	Catalog *facts.Catalog
	// World is what the simulated account has from the start; nil means ec2sim.DefaultWorld.
	World *ec2sim.World
}

// AddFlags registers the options as command line flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "where to write the kubeconfig, a new file that is deleted at the end; default inside a temporary directory")
	fs.IntVar(&o.Port, "port", 0, "port of the API server; 0 picks a free one")
	fs.StringVar(&o.SchedulerConfig, "scheduler-config", "", "KubeSchedulerConfiguration file; default is the shipped one")
	fs.BoolVar(&o.NoScheduler, "no-scheduler", false, "leave the scheduler out, to run your own build of it")
	fs.DurationVar(&o.BootDelay, "boot-delay", 2*time.Second, "time from launch until a simulated instance's kubelet starts")
	fs.StringVar(&o.EC2Script, "ec2-script", "", "YAML file that says what the simulated EC2 does wrong, and when")
	fs.StringVar(&o.CatalogFile, "catalog", "", "gzipped table of instance types, zones and prices, as provisioner/aws/facts has it; default is the built-in one")
	fs.IntVar(&o.SystemNodes, "system-nodes", 1, "tainted nodes that exist from the start")
	fs.StringVar(&o.EKSVersion, "eks-version", "", "Kubernetes version that the simulated EKS reports; default is the API server's")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of the simulation")
}

// ClusterName and Region are the same for every cluster of this package.
const (
	ClusterName = "berth-local"
	Region      = "us-east-1"
)

const readyDelay = 500 * time.Millisecond

// Cluster is a running all-in-one cluster.
type Cluster struct {
	Config    *rest.Config
	Kube      kubernetes.Interface
	Karpenter versioned.Interface
	// EC2 is the simulator; tests and the demo may look behind its scene.
	EC2 *ec2sim.Server

	control *controlplane.ControlPlane
	ec2URL  string
	cancel  context.CancelFunc
	running sync.WaitGroup
	failed  chan error
}

// Start brings everything up and returns when the API server and the scheduler are ready. What was
// started is stopped again when a later part fails.
func Start(ctx context.Context, options Options) (_ *Cluster, err error) {
	if options.CatalogFile != "" {
		if options.Catalog, err = readCatalog(options.CatalogFile); err != nil {
			return nil, err
		}
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Cluster{cancel: cancel, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			stopCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer stop()
			err = errors.Join(err, c.Stop(stopCtx))
		}
	}()
	c.control, err = controlplane.Start(ctx, controlplane.Options{Port: options.Port, KubeconfigPath: options.Kubeconfig})
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	c.Config = c.control.RESTConfig()
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, err
	}
	if c.Karpenter, err = versioned.NewForConfig(jsonConfig(c.Config)); err != nil {
		return nil, err
	}
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	if err := controlplane.InstallCRDs(ctx, c.Config, definitions); err != nil {
		return nil, fmt.Errorf("install CRDs: %w", err)
	}
	if err := c.startEC2(options); err != nil {
		return nil, err
	}
	c.startKubelets(runCtx, options)
	if options.NoScheduler {
		return c, nil
	}
	return c, c.startScheduler(ctx, runCtx, options)
}

// jsonConfig returns a copy for custom resources, which have no protobuf.
func jsonConfig(config *rest.Config) *rest.Config {
	out := rest.CopyConfig(config)
	out.ContentType, out.AcceptContentTypes = "application/json", "application/json"
	return out
}

// readCatalog reads a catalogue from a file.
func readCatalog(path string) (*facts.Catalog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read --catalog: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := facts.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("read --catalog %s: %w", path, err)
	}
	catalog, err := facts.NewCatalog(data)
	if err != nil {
		return nil, fmt.Errorf("use --catalog %s: %w", path, err)
	}
	return &catalog, nil
}

func (c *Cluster) startEC2(options Options) error {
	var script ec2sim.Script
	if options.EC2Script != "" {
		raw, err := os.ReadFile(options.EC2Script)
		if err != nil {
			return fmt.Errorf("read --ec2-script: %w", err)
		}
		if script, err = ec2sim.ParseScript(raw); err != nil {
			return fmt.Errorf("parse --ec2-script %s: %w", options.EC2Script, err)
		}
	}
	version := options.EKSVersion
	if version == "" {
		version = "1.37"
	}
	server, err := ec2sim.New(ec2sim.Options{
		Region: Region, ClusterName: ClusterName, ClusterEndpoint: c.Config.Host, EKSVersion: version,
		Seed: options.Seed, BootDelay: options.BootDelay, Script: script, World: options.World, Catalog: options.Catalog,
	})
	if err != nil {
		return fmt.Errorf("make the EC2 simulator: %w", err)
	}
	c.EC2 = server
	if c.ec2URL, err = server.Start("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the EC2 simulator: %w", err)
	}
	return nil
}

func (c *Cluster) startKubelets(ctx context.Context, options Options) {
	kubelets := kubelet.New(kubelet.Deps{Kube: c.Kube, Clock: clock.RealClock{}}, kubelet.Options{Version: c.control.Version()})
	catalog := facts.Default()
	if options.Catalog != nil {
		catalog = *options.Catalog
	}
	events := make(chan kubelet.Event)
	c.running.Go(func() { kubelets.Run(ctx, events) })
	c.running.Go(func() {
		for i := range max(options.SystemNodes, 0) {
			select {
			case events <- kubelet.Event{Machine: kubelet.SystemNode(i + 1)}:
			case <-ctx.Done():
				return
			}
		}
		for event := range machineEvents(ctx, c.EC2.Subscribe(ctx), catalog) {
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (c *Cluster) startScheduler(ctx, runCtx context.Context, options Options) error {
	ready := make(chan struct{})
	c.running.Go(func() {
		err := app.Run(runCtx, app.Options{
			Config: c.Config, ConfigFile: options.SchedulerConfig, ClusterName: ClusterName,
			AWS:  app.AWSOptions{Region: Region, EndpointURL: c.ec2URL, AccessKey: "local", SecretKey: "local"},
			Args: options.SchedulerArgs, Ready: func() { close(ready) },
		})
		if err != nil && runCtx.Err() == nil {
			klog.FromContext(runCtx).Error(err, "The scheduler ended")
			c.failed <- fmt.Errorf("the scheduler ended: %w", err)
		}
	})
	select {
	case <-ready:
		return nil
	case err := <-c.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Version of the API server, for example "v1.37.2".
func (c *Cluster) Version() string { return c.control.Version() }

// Failed tells when a part has ended that should not have.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Environment returns the lines that other programs need to use the cluster.
func (c *Cluster) Environment() []string {
	return []string{
		"KUBECONFIG=" + c.control.KubeconfigPath(),
		"AWS_ENDPOINT_URL=" + c.ec2URL,
		"AWS_REGION=" + Region,
		"AWS_ACCESS_KEY_ID=local",
		"AWS_SECRET_ACCESS_KEY=local",
		"CLUSTER_NAME=" + ClusterName,
	}
}

// FleetCalls returns when successful CreateFleet calls arrived since the given moment, dry runs left out.
func (c *Cluster) FleetCalls(since time.Time) []time.Time {
	var times []time.Time
	for _, call := range c.EC2.Calls() {
		if call.Action == "CreateFleet" && call.Code == "" && !call.Time.Before(since) {
			times = append(times, call.Time)
		}
	}
	return times
}

// LivingInstances counts the instances that are not terminated or about to be.
func (c *Cluster) LivingInstances() int {
	n := 0
	for _, instance := range c.EC2.Instances() {
		if instance.State != "terminated" && instance.State != "shutting-down" {
			n++
		}
	}
	return n
}

// Stop ends every part in the reverse order of its start and removes temporary files.
func (c *Cluster) Stop(ctx context.Context) error {
	c.cancel()
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	var errs []error
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, errors.New("scheduler and kubelets did not end in time"))
	}
	if c.EC2 != nil {
		c.EC2.Close()
	}
	if c.control != nil {
		errs = append(errs, c.control.Stop(ctx))
	}
	return errors.Join(errs...)
}
