package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// ErrLeaseLost says that another replica may schedule now. The process must end.
var ErrLeaseLost = errors.New("the scheduler lease was lost")

// exitTimeout bounds the orderly end; what is left then ends with the process.
const exitTimeout = 8 * time.Second

// Run makes the scheduler with everything behind it and runs it until ctx ends, which returns nil. It
// handles no signals and does not exit the process.
func Run(ctx context.Context, o Options) error {
	f, err := newFlags()
	if err != nil {
		return err
	}
	if err := f.parse(o.Args); err != nil {
		return err
	}
	return run(ctx, f, o)
}

func run(ctx context.Context, f *flags, o Options) error {
	// Everything hangs on this context, so that nothing is left behind in the process.
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	p, err := setup(runCtx, f, o)
	if err != nil {
		return err
	}
	return p.run(runCtx, stop)
}

// run serves, waits for leadership and leads.
func (p *parts) run(ctx context.Context, stop context.CancelFunc) error {
	logger := klog.FromContext(ctx)
	p.config.EventBroadcaster.StartRecordingToSink(ctx.Done())
	defer p.config.EventBroadcaster.Shutdown()

	synced, leading := make(chan struct{}), make(chan struct{})
	served, err := serve(ctx, p.config, synced, func() bool { return closed(leading) })
	if err != nil {
		return err
	}
	plain, err := p.servePlain(ctx, synced)
	if err != nil {
		return err
	}
	var filling sync.Once
	fill := func() { filling.Do(func() { p.fillCaches(ctx, synced) }) }
	if !p.config.ComponentConfig.DelayCacheUntilActive || p.config.LeaderElection == nil {
		fill()
	}
	var work sync.WaitGroup
	lead := func(ctx context.Context) {
		close(leading)
		fill()
		work.Go(func() { p.sched.Run(ctx) })
		p.provision(ctx, &work)
		work.Wait()
	}
	err = nil
	if p.config.LeaderElection == nil {
		lead(ctx)
	} else {
		err = p.elect(ctx, lead, leading, stop)
	}
	stop()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		work.Wait()
		served()
		plain()
	}()
	select {
	case <-finished:
	case <-time.After(exitTimeout):
		logger.Error(nil, "Not everything stopped in time", "timeout", exitTimeout)
	}
	return err
}

// provision lets the provisioner contend for its lease, and tells Ready when it is known who acts.
func (p *parts) provision(ctx context.Context, work *sync.WaitGroup) {
	var once sync.Once
	ready := func() {
		if p.ready != nil {
			once.Do(p.ready)
		}
	}
	if p.gate == nil {
		ready()
		return
	}
	p.gate.decided = ready
	work.Go(func() { p.gate.Run(ctx) })
}

// elect waits for the lease, leads while it is held, and returns when it is given up: nil when ctx
// ended, ErrLeaseLost when it was taken.
func (p *parts) elect(ctx context.Context, lead func(context.Context), leading <-chan struct{}, stop context.CancelFunc) error {
	// The lease is given up only after the work has ended, so that no two replicas act at once.
	leaseCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	election := *p.config.LeaderElection
	election.Coordinated = false
	ended := make(chan struct{})
	election.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {
			defer close(ended)
			lead(ctx)
		},
		OnStoppedLeading: func() {},
	}
	elector, err := leaderelection.NewLeaderElector(election)
	if err != nil {
		return fmt.Errorf("make elector: %w", err)
	}
	p.config.LeaderElection.WatchDog.SetLeaderElection(elector)
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(leaseCtx)
	}()
	select {
	case <-over:
		klog.FromContext(ctx).Error(nil, "The scheduler lease is lost, this process ends")
		stop()
		return ErrLeaseLost
	case <-ctx.Done():
	}
	if closed(leading) {
		select {
		case <-ended:
		case <-time.After(exitTimeout / 2):
		}
	}
	release()
	<-over
	return nil
}

// fillCaches starts the informers and waits until their handlers have seen every object.
func (p *parts) fillCaches(ctx context.Context, synced chan<- struct{}) {
	logger := klog.FromContext(ctx)
	p.config.InformerFactory.Start(ctx.Done())
	p.config.DynInformerFactory.Start(ctx.Done())
	p.config.InformerFactory.WaitForCacheSync(ctx.Done())
	p.config.DynInformerFactory.WaitForCacheSync(ctx.Done())
	if err := p.sched.WaitForHandlersSync(ctx); err != nil {
		if ctx.Err() == nil {
			logger.Error(err, "Waiting for the handlers of informers failed")
		}
		return
	}
	close(synced)
	logger.V(2).Info("Caches are filled")
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
