package aws

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/refresh"
	"github.com/berth-dev/berth/provisioner/catalog"
)

const (
	metricsPeriod    = time.Minute
	deprecatedPeriod = 30 * time.Minute
	profilePeriod    = 30 * time.Minute
)

// Run keeps everything that is known of AWS up to date until ctx ends and every goroutine has returned.
// It needs the leadership: it writes to AWS and to node classes. AWS being unreachable does not end it.
func (p *Provider) Run(ctx context.Context) {
	p.mu.Lock()
	p.started = p.cfg.Clock.Now()
	p.mu.Unlock()
	if !cache.WaitForNamedCacheSyncWithContext(ctx, p.synced...) {
		return
	}
	loop := func(what string, period time.Duration, job func(context.Context) error) func() {
		return func() { refresh.Loop(ctx, p.cfg.Clock, what, period, job) }
	}
	var wg sync.WaitGroup
	for _, part := range []func(){
		func() { p.types.Run(ctx) },
		func() { p.prices.Run(ctx) },
		func() { p.templates.Run(ctx) },
		func() { p.nodes.Run(ctx) },
		func() { p.tagger.run(ctx) },
		loop("deprecated images", deprecatedPeriod, p.images.DropDeprecated),
		loop("instance type metrics", metricsPeriod, p.measure),
	} {
		wg.Go(part)
	}
	if !p.cfg.IsolatedVPC {
		wg.Go(loop("unused instance profiles", profilePeriod, p.collectProfiles))
	}
	wg.Wait()
}

func (p *Provider) allClasses() []*ec2v1.EC2NodeClass {
	all, err := p.classes.List(labels.Everything())
	if err != nil {
		return nil // a lister over an informer does not fail
	}
	return all
}

// measure shows what can be bought; a class without types is passed over.
func (p *Provider) measure(context.Context) error {
	var lists [][]*catalog.InstanceType
	for _, nc := range p.allClasses() {
		if list, err := p.types.ForClass(nc); err == nil {
			lists = append(lists, list)
		}
	}
	p.offers.SetOfferings(lists...)
	return nil
}

func (p *Provider) collectProfiles(ctx context.Context) error {
	used := map[string]bool{}
	for _, nc := range p.allClasses() {
		used[nc.Status.InstanceProfile] = true
	}
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, claim := range claims {
		used[claim.Annotations[ec2v1.AnnotationInstanceProfileName]] = true
	}
	return p.profiles.Collect(ctx, func(name string) bool { return used[name] })
}
