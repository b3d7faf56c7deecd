package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	kubeschedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerappconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/plugins/config"
	"github.com/berth-dev/berth/plugins/config/scheme"
	"github.com/berth-dev/berth/plugins/nodeprovision"
	"github.com/berth-dev/berth/provisioner/fit"
	"github.com/berth-dev/berth/provisioner/promise"
)

// parts are what setup makes and run runs.
type parts struct {
	config *schedulerappconfig.CompletedConfig
	sched  *scheduler.Scheduler
	gate   *gate // nil when no profile uses the plugin
	ready  func()
	// metricsPort and probePort are 0 where nothing is served in plain HTTP.
	metricsPort, probePort int
}

// late is the asker that plugins are made with, before there is a provisioner.
type late struct{ Provisioner }

// setup makes every part and starts none.
func setup(ctx context.Context, f *flags, o Options) (*parts, error) {
	cleanup, err := prepare(f, o)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	asker, table, hidden := &late{}, promise.NewTable(), nodeprovision.NewHidden()
	p := &parts{ready: o.Ready}
	if o.Config == nil { // inside another process the ports are that process's affair
		p.metricsPort, p.probePort = f.settings.MetricsPort, f.settings.HealthProbePort
	}
	passive := func() string {
		if p.gate == nil {
			return ""
		}
		return p.gate.Passive()
	}
	ours := WithPlugin(nodeprovision.Name, nodeprovision.Factory(nodeprovision.Deps{
		Asker: asker, Promises: table, Hidden: hidden, Passive: passive,
	}))
	plugins := append([]Option{ours}, o.Plugins...)
	if p.config, p.sched, err = kubeschedulerapp.Setup(ctx, f.upstream, plugins...); err != nil {
		return nil, fmt.Errorf("set up the scheduler: %w", err)
	}
	identity := identify(p.config, o.Identity)
	users, err := profiles(p)
	if err != nil {
		return nil, err
	}
	if len(users.names) == 0 {
		klog.FromContext(ctx).Info("No profile uses the plugin, so no nodes are bought", "plugin", nodeprovision.Name)
		return p, nil
	}
	f.settings.complete(users.args)
	if err := f.settings.validate(); err != nil {
		return nil, err
	}
	in := Inputs{
		Settings: *f.settings, AWS: o.AWS, Client: p.config.Client, RESTConfig: p.config.KubeConfig, Informers: p.config.InformerFactory,
		Promises: table, Hidden: hidden, Activate: activator(p.sched), SchedulerNames: users.names, ProvisionFor: users.args.ProvisionFor,
		Metrics: newRegistry(), Recorder: p.config.EventBroadcaster.NewRecorder("berth"),
		Leads: func() error { return p.gate.Leads() },
	}
	if err := forgetSeen(p.config.InformerFactory.Core().V1().Pods().Informer(), hidden); err != nil {
		return nil, err
	}
	filters, err := newFit(ctx, p, users, plugins)
	if err != nil {
		return nil, err
	}
	in.Fit, in.DefaultSpread = filters, filters.DefaultSpread
	build := o.Build
	if build == nil {
		build = newProvisioner
	}
	if asker.Provisioner, err = build(ctx, in); err != nil {
		return nil, fmt.Errorf("set up the provisioner: %w", err)
	}
	p.gate = &gate{
		name: f.settings.LeaseName, namespace: f.settings.LeaseNamespace, identity: identity,
		client: p.config.Client, recorder: in.Recorder, metrics: newGateMetrics(in.Metrics), clock: clock.RealClock{},
		timing: timingOf(p.config.ComponentConfig.LeaderElection), run: asker.Run, decided: func() {},
	}
	return p, nil
}

// prepare turns our way of configuring into upstream's.
func prepare(f *flags, o Options) (cleanup func(), err error) {
	if o.ConfigFile != "" {
		f.upstream.ConfigFile = o.ConfigFile
	}
	if o.ClusterName != "" {
		f.settings.ClusterName = o.ClusterName
	}
	to := f.connection()
	closers := []func(){}
	cleanup = func() {
		for _, c := range closers {
			c()
		}
	}
	offer := func(content []byte) (string, error) {
		path, closeFile, err := oneTimeFile(content)
		if err == nil {
			closers = append(closers, closeFile)
		}
		return path, err
	}
	if o.Config != nil {
		if !f.changed("secure serving", "secure-port") {
			f.upstream.SecureServing.BindPort = 0
		}
		raw, err := kubeconfig(o.Config)
		if err != nil {
			return nil, err
		}
		if to.kubeconfig, err = offer(raw); err != nil {
			return nil, err
		}
	}
	raw, err := configuration(f.upstream.ConfigFile, to)
	if err == nil {
		f.upstream.ConfigFile, err = offer(raw)
	}
	if err != nil {
		cleanup()
		return nil, err
	}
	return cleanup, nil
}

// identify returns the process's name in leases, making it the given one if there is one.
func identify(cc *schedulerappconfig.CompletedConfig, wanted string) string {
	if cc.LeaderElection == nil { // the provisioner's lease needs a name all the same
		if wanted == "" {
			host, _ := os.Hostname()
			wanted = host + "_" + string(uuid.NewUUID())
		}
		return wanted
	}
	if lock, ok := cc.LeaderElection.Lock.(*resourcelock.LeaseLock); ok && wanted != "" {
		lock.LockConfig.Identity = wanted
	}
	return cc.LeaderElection.Lock.Identity()
}

// users are the profiles that use the plugin.
type users struct {
	names    []string
	profiles []fit.Profile
	args     *config.NodeProvisionArgs
}

// profiles finds the profiles with the plugin, and checks that they agree on what holds for all.
func profiles(p *parts) (*users, error) {
	u := &users{}
	var errs []error
	for _, cfg := range p.config.ComponentConfig.Profiles {
		running := p.sched.Profiles[cfg.SchedulerName]
		plugins := running.ListPlugins()
		if !uses(plugins) {
			continue
		}
		errs = append(errs, checkOrder(cfg.SchedulerName, plugins))
		var obj runtime.Object
		for _, c := range cfg.PluginConfig {
			if c.Name == nodeprovision.Name {
				obj = c.Args
			}
		}
		args, err := scheme.Decode(obj)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", cfg.SchedulerName, err)
		}
		if u.args == nil {
			u.args = args.DeepCopy()
		} else {
			errs = append(errs, agree(cfg.SchedulerName, u, args))
		}
		u.names = append(u.names, cfg.SchedulerName)
		u.profiles = append(u.profiles, fit.Profile{Config: cfg, Running: running})
	}
	return u, errors.Join(errs...)
}

// agree reports arguments that hold for the whole process and differ between profiles, and gathers the
// foreign schedulers.
func agree(profile string, u *users, args *config.NodeProvisionArgs) error {
	first := u.names[0]
	differ := func(field string, a, b any) error {
		if a == b {
			return nil
		}
		return fmt.Errorf("profiles %s and %s: %s of %s is %v and %v; it holds for the whole process, use one value",
			first, profile, field, nodeprovision.Name, a, b)
	}
	u.args.ProvisionFor = append(u.args.ProvisionFor, args.ProvisionFor...)
	return errors.Join(
		differ("batchIdleDuration", u.args.BatchIdleDuration, args.BatchIdleDuration),
		differ("batchMaxDuration", u.args.BatchMaxDuration, args.BatchMaxDuration),
		differ("preferencePolicy", u.args.PreferencePolicy, args.PreferencePolicy),
		differ("minValuesPolicy", u.args.MinValuesPolicy, args.MinValuesPolicy))
}

// newFit builds the filters for what-ifs beside the running ones.
func newFit(ctx context.Context, p *parts, u *users, plugins []Option) (*fit.Fit, error) {
	registry := frameworkplugins.NewInTreeRegistry()
	added := frameworkruntime.Registry{}
	for _, add := range plugins {
		if err := add(added); err != nil {
			return nil, fmt.Errorf("register plugins: %w", err)
		}
	}
	if err := registry.Merge(added); err != nil {
		return nil, fmt.Errorf("register plugins: %w", err)
	}
	foreign := map[string]string{}
	for _, name := range u.args.ProvisionFor {
		foreign[name] = u.names[0]
	}
	return fit.New(ctx, fit.Options{Profiles: u.profiles, Registry: registry, Exclude: []string{nodeprovision.Name}, Foreign: foreign})
}

// activator moves pods to the front of the scheduling queue.
func activator(sched *scheduler.Scheduler) func(context.Context, []*corev1.Pod) {
	return func(ctx context.Context, pods []*corev1.Pod) {
		if len(pods) == 0 {
			return
		}
		named := make(map[string]*corev1.Pod, len(pods))
		for _, pod := range pods {
			named[pod.Namespace+"/"+pod.Name] = pod
		}
		sched.SchedulingQueue.Activate(klog.FromContext(ctx), named)
	}
}
