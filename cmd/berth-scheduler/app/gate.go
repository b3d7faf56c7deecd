package app

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// gate lets the provisioner run while this process holds the provisioner's lease and no other lease of
// that name is alive in another namespace. Contending starts with Run, so only the scheduler's leader
// does.
type gate struct {
	name, namespace, identity string
	client                    kubernetes.Interface
	recorder                  events.EventRecorderLogger
	metrics                   *gateMetrics
	clock                     clock.WithTicker
	timing                    gateTiming
	// run is the provisioner; decided is called each time it is known who acts.
	run     func(context.Context) error
	decided func()
	// holder is who acts instead of this process, nil when nobody is known to.
	holder atomic.Pointer[string]
	// elector is of the present election.
	elector atomic.Pointer[leaderelection.LeaderElector]
}

// gateTiming has the periods of the election and of the look at other namespaces.
type gateTiming struct {
	lease, renew, retry, look time.Duration
}

// timingOf gives the provisioner's lease the timing of the scheduler's, so that the two are never apart
// for longer than one lease duration.
func timingOf(c componentbaseconfig.LeaderElectionConfiguration) gateTiming {
	return gateTiming{
		lease: c.LeaseDuration.Duration, renew: c.RenewDeadline.Duration, retry: c.RetryPeriod.Duration,
		look: c.LeaseDuration.Duration / 3,
	}
}

// Passive returns why nobody in this process buys nodes, for pods that ask, or "".
func (g *gate) Passive() string {
	if h := g.holder.Load(); h != nil {
		return "nodes are bought by " + *h + ", which holds the lease " + g.name
	}
	return ""
}

// Leads returns an error unless this process holds the lease for certain. A process that was stopped for
// a while goes on where it was, and notices only seconds later that another has taken the lease.
func (g *gate) Leads() error {
	elector := g.elector.Load()
	if elector == nil || !elector.IsLeader() {
		return fmt.Errorf("the lease %s/%s is not held by %s", g.namespace, g.name, g.identity)
	}
	return elector.Check(0)
}

// Run contends for the lease until ctx ends. It returns when the provisioner has stopped.
func (g *gate) Run(ctx context.Context) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "provisioner-lease")
	ctx = klog.NewContext(ctx, logger)
	for ctx.Err() == nil {
		holder, err := g.elsewhere(ctx)
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Nodes are not bought until it is known that nobody else does", "lease", klog.KRef(g.namespace, g.name))
			holder = "perhaps somebody else"
		}
		if holder != "" {
			g.stepAside(ctx, holder)
			g.sleep(ctx, g.timing.look)
			continue
		}
		if err := g.contend(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Contending for the provisioner lease failed, will retry")
			g.sleep(ctx, g.timing.retry)
		}
	}
	g.metrics.blocked.Set(0)
}

// contend takes part in one election and runs the provisioner while it is won.
func (g *gate) contend(ctx context.Context) error {
	// The lease is given up only after the provisioner has stopped, so it has a life of its own.
	leaseCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var work sync.WaitGroup
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: g.name, ReleaseOnCancel: true,
		LeaseDuration: g.timing.lease, RenewDeadline: g.timing.renew, RetryPeriod: g.timing.retry,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.name}, Client: g.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: g.identity},
		},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != g.identity {
					g.stepAside(ctx, holder)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("make elector: %w", err)
	}
	g.elector.Store(elector)
	ended := make(chan struct{})
	work.Go(func() {
		defer close(ended)
		elector.Run(leaseCtx)
	})
	defer work.Wait()
	defer release()
	if !g.won(ctx, elector, ended) {
		return nil
	}
	g.act(ctx, ended)
	return nil
}

// won waits until the election is won; false when ctx or the election ended before.
func (g *gate) won(ctx context.Context, elector *leaderelection.LeaderElector, ended <-chan struct{}) bool {
	tick := g.clock.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !elector.IsLeader() {
		select {
		case <-ctx.Done():
			return false
		case <-ended:
			return false
		case <-tick.C():
		}
	}
	return true
}

// act runs the provisioner until ctx ends, the lease is lost, or somebody else turns up.
func (g *gate) act(ctx context.Context, lost <-chan struct{}) {
	logger := klog.FromContext(ctx)
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	g.holder.Store(nil)
	g.metrics.blocked.Set(0)
	g.metrics.active.Set(1)
	defer g.metrics.active.Set(0)
	logger.Info("This process buys and removes nodes", "lease", klog.KRef(g.namespace, g.name), "identity", g.identity)
	g.recorder.Eventf(g.lease(), nil, corev1.EventTypeNormal, "ProvisionerActive", "Lead", "%s buys and removes nodes", g.identity)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.keepRunning(runCtx)
	}()
	g.decided()
	look := g.clock.NewTicker(g.timing.look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-lost:
			logger.Error(nil, "The provisioner lease is lost, nodes are not bought any more")
		case <-look.C():
			holder, err := g.elsewhere(ctx)
			if err != nil || holder == "" {
				continue
			}
			g.stepAside(ctx, holder)
		}
		stop()
		<-stopped
		return
	}
}

// keepRunning starts the provisioner again, with back-off, when it ends before its time.
func (g *gate) keepRunning(ctx context.Context) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6, Cap: 30 * time.Second}
	for ctx.Err() == nil {
		started := g.clock.Now()
		err := recovered(func() error { return g.run(ctx) })
		if ctx.Err() != nil {
			return
		}
		if g.clock.Since(started) > time.Minute {
			backoff = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6, Cap: 30 * time.Second}
		}
		pause := backoff.Step()
		g.metrics.restarts.Inc()
		klog.FromContext(ctx).Error(err, "The provisioner ended, it will be started again", "after", pause)
		g.sleep(ctx, pause)
	}
}

// recovered turns a panic into an error: the scheduler beside goes on.
func recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if err := f(); err != nil {
		return err
	}
	return errors.New("it returned before its end")
}

// stepAside notes who acts instead, once per change.
func (g *gate) stepAside(ctx context.Context, holder string) {
	before := g.holder.Swap(&holder)
	g.metrics.blocked.Set(1)
	if before == nil || *before != holder {
		klog.FromContext(ctx).Info("Nodes are bought by another process; this one schedules only", "holder", holder, "lease", klog.KRef(g.namespace, g.name))
		g.recorder.Eventf(g.lease(), nil, corev1.EventTypeWarning, "ProvisionerStandsBy", "Lead",
			"%s schedules pods and buys no nodes, because %s holds the lease %s", g.identity, holder, g.name)
	}
	g.decided()
}

// elsewhere returns the living holder of a lease of the same name in another namespace, or "".
func (g *gate) elsewhere(ctx context.Context) (string, error) {
	list, err := g.client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, g.name).String(),
	})
	if err != nil {
		return "", fmt.Errorf("list leases named %s in all namespaces (grant list on leases.coordination.k8s.io): %w", g.name, err)
	}
	for _, lease := range list.Items {
		if lease.Name == g.name && lease.Namespace != g.namespace && alive(&lease, g.clock.Now()) && *lease.Spec.HolderIdentity != g.identity {
			return *lease.Spec.HolderIdentity + " in namespace " + lease.Namespace, nil
		}
	}
	return "", nil
}

// alive reports whether somebody holds the lease and has renewed it in time.
func alive(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}

func (g *gate) lease() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: g.namespace, Name: g.name}
}

func (g *gate) sleep(ctx context.Context, d time.Duration) {
	timer := g.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
