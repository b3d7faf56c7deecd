package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/events"
	"github.com/berth-dev/berth/provisioner/generated/clientset/versioned"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// Starter launches a group whose claims are written. It returns at once and owns the group from then on.
type Starter interface {
	Start(ctx context.Context, group cloud.Group)
	// Expect keeps the claims, by name, from being launched one by one while they are written.
	Expect(claims []string)
	// Release takes Expect back for claims that will not be started.
	Release(claims []string)
}

// Deps of a Launcher; all are required.
type Deps struct {
	Karpenter versioned.Interface
	Pools     karplisters.NodePoolLister
	Promises  *promise.Table
	Events    *events.Recorder
	Starter   Starter
	Clock     clock.PassiveClock
	Registry  prometheus.Registerer
	// Pending reports whether the pod still waits for a node, by the newest knowledge.
	Pending func(pod *corev1.Pod) bool
	// Usage returns what counts against each pool's limits now, and the number of nodes in all.
	Usage func() (byPool map[string]resources.Vector, nodes int)
	// Track tells the model of a claim before the watch does.
	Track func(claim *karpv1.NodeClaim)
	// Refuse tells pods why their part of the plan is not carried out now.
	Refuse func(pods []*corev1.Pod, reason string)
	// Braked hears which pool a safety brake holds back, and why; may be nil.
	Braked func(pool, why string)
}

// Options of a Launcher. The zero value is valid; Complete fills defaults and reports every fault.
type Options struct {
	// PromiseDeadline is how long a claim is kept for its pods; default 15 min, the time a node has to
	// register.
	PromiseDeadline time.Duration
	// GroupSize caps the claims of one cloud call; default 20.
	GroupSize int
	// NodeCap is the number of nodes beyond which nothing is launched; default 10,000.
	NodeCap int
	// LaunchesPerMinute brakes a runaway; default 3,000, with bursts of as much.
	LaunchesPerMinute int
}

// Complete fills in defaults and validates.
func (o Options) Complete() (Options, error) {
	o.PromiseDeadline = cmp.Or(o.PromiseDeadline, 15*time.Minute)
	o.GroupSize, o.NodeCap, o.LaunchesPerMinute = cmp.Or(o.GroupSize, 20), cmp.Or(o.NodeCap, 10_000), cmp.Or(o.LaunchesPerMinute, 3_000)
	var errs []error
	for name, value := range map[string]int64{
		"promiseDeadline": int64(o.PromiseDeadline), "groupSize": int64(o.GroupSize),
		"nodeCap": int64(o.NodeCap), "launchesPerMinute": int64(o.LaunchesPerMinute),
	} {
		if value < 0 {
			errs = append(errs, fmt.Errorf("%s %d is negative; use a positive value or leave it out", name, value))
		}
	}
	return o, errors.Join(errs...)
}

// Launcher applies plans. One Apply runs at a time.
type Launcher struct {
	deps    Deps
	options Options
	brake   flowcontrol.PassiveRateLimiter
	metrics *metrics
}

// New makes a Launcher; the options must be complete.
func New(deps Deps, options Options) *Launcher {
	perSecond := float32(options.LaunchesPerMinute) / 60
	return &Launcher{
		deps: deps, options: options, metrics: newMetrics(deps.Registry),
		brake: flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, options.LaunchesPerMinute),
	}
}

// draft is a claim on its way into the API.
type draft struct {
	claim *karpv1.NodeClaim
	pods  []*corev1.Pod
	err   error
}

// Apply carries out the plan's claims. Parts that do not hold any more are left out and their pods are
// told; a failure of one claim does not touch the others. The error joins what failed.
func (l *Launcher) Apply(ctx context.Context, plan solver.Plan) error {
	return l.ApplyFor(ctx, plan, "provisioned")
}

// ApplyFor is Apply for claims that replace others; reason says why, in lower case, for the metric.
func (l *Launcher) ApplyFor(ctx context.Context, plan solver.Plan, reason string) error {
	return l.carryOut(ctx, l.verify(ctx, plan.Claims), reason)
}

// carryOut writes the claims and hands them on, in groups that one cloud call can serve.
func (l *Launcher) carryOut(ctx context.Context, drafts []*draft, reason string) error {
	groups := l.group(drafts)
	l.deps.Starter.Expect(namesOf(drafts))
	l.create(ctx, drafts)
	var errs []error
	for _, members := range groups {
		created, failed := split(members)
		l.deps.Starter.Release(namesOf(failed))
		for _, d := range failed {
			errs = append(errs, fmt.Errorf("create nodeclaim %s: %w", d.claim.Name, d.err))
			l.deps.Refuse(d.pods, "the NodeClaim could not be written: "+d.err.Error())
		}
		if len(created) == 0 {
			continue
		}
		if len(failed) > 0 {
			if err := l.regroup(ctx, created); err != nil {
				errs = append(errs, err)
				// Without the new membership on record the claims launch one by one from their own reconciles.
			}
		}
		l.start(ctx, created, reason)
	}
	return errors.Join(errs...)
}

// verify drops what has moved since the plan was made and builds the claims of the rest.
func (l *Launcher) verify(ctx context.Context, planned []solver.Claim) []*draft {
	usage, nodes := l.deps.Usage()
	var drafts []*draft
	for _, p := range planned {
		pods := slices.DeleteFunc(slices.Clone(p.Pods), func(pod *corev1.Pod) bool { return !l.deps.Pending(pod) })
		if len(pods) == 0 {
			continue
		}
		pool, err := l.deps.Pools.Get(p.Pool)
		if err != nil || pool.DeletionTimestamp != nil {
			l.deps.Refuse(pods, fmt.Sprintf("nodepool %s is gone", p.Pool))
			continue
		}
		if brake, why := l.braked(nodes); brake != "" {
			l.hold(ctx, pool, pods, brake, why)
			continue
		}
		charged := usage[pool.Name].Add(Charge(p))
		if over := overLimit(charged, pool.Spec.Limits); over != "" {
			l.deps.Refuse(pods, fmt.Sprintf("nodepool %s: limit of %s is reached", pool.Name, over))
			continue
		}
		usage[pool.Name] = charged
		nodes++
		p.Pods = pods
		drafts = append(drafts, &draft{claim: NewClaim(pool, p), pods: pods})
	}
	return drafts
}

// braked names the safety brake that keeps one more node from being launched and says why, "" for none.
func (l *Launcher) braked(nodes int) (brake, why string) {
	switch {
	case nodes >= l.options.NodeCap:
		return "node_cap", fmt.Sprintf("the cluster has %d nodes and the node cap is %d", nodes, l.options.NodeCap)
	case !l.brake.TryAccept():
		return "launch_rate", fmt.Sprintf("more than %d launches a minute", l.options.LaunchesPerMinute)
	}
	return "", ""
}

// hold keeps launches back for a safety brake, visibly.
func (l *Launcher) hold(ctx context.Context, pool *karpv1.NodePool, pods []*corev1.Pod, brake, why string) {
	klog.FromContext(ctx).Info("Launch held back by a safety brake", "nodePool", klog.KObj(pool), "brake", brake, "reason", why)
	l.metrics.held.WithLabelValues(brake, pool.Name).Inc()
	l.deps.Events.LaunchBraked(pool, why)
	if l.deps.Braked != nil {
		l.deps.Braked(pool.Name, why)
	}
	l.deps.Refuse(pods, "launches are held back: "+why)
}

// Charge is what a planned claim counts against its pool's limits: the most that any of its types has.
func Charge(planned solver.Claim) resources.Vector {
	var most resources.Vector
	for _, it := range planned.Types {
		most = most.Max(it.Capacity)
	}
	return most.With(karpv1.ResourceNodes, 1)
}

// overLimit names the first limit that the usage exceeds, "" when none.
func overLimit(usage resources.Vector, limits karpv1.Limits) string {
	caps := resources.FromList(corev1.ResourceList(limits))
	names := make([]string, 0, len(limits))
	for name := range limits {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, name := range names {
		if usage.Get(corev1.ResourceName(name)) > caps.Get(corev1.ResourceName(name)) {
			return name
		}
	}
	return ""
}

// group puts claims of one shape together and writes the membership on each of them.
func (l *Launcher) group(drafts []*draft) [][]*draft {
	byShape := map[string][]*draft{}
	var order []string
	for _, d := range drafts {
		key := shape(d.claim)
		if byShape[key] == nil {
			order = append(order, key)
		}
		byShape[key] = append(byShape[key], d)
	}
	var groups [][]*draft
	for _, key := range order {
		for members := range slices.Chunk(byShape[key], l.options.GroupSize) {
			stampGroup(members, string(uuid.NewUUID()), 1)
			groups = append(groups, members)
		}
	}
	return groups
}

func stampGroup(members []*draft, id string, attempt int) {
	ref := cloud.GroupRef{ID: id, Attempt: attempt}
	for _, d := range members {
		ref.Members = append(ref.Members, d.claim.Name)
	}
	for _, d := range members {
		d.claim.Annotations[karpv1.AnnotationLaunchGroup] = ref.Encode()
	}
}

// writers bounds the parallel writes to the API server.
const writers = 32

// create writes the claims. A name that is taken gets another one through the caller's next plan.
func (l *Launcher) create(ctx context.Context, drafts []*draft) {
	var wg sync.WaitGroup
	work := make(chan *draft)
	for range min(writers, len(drafts)) {
		wg.Go(func() {
			for d := range work {
				created, err := l.deps.Karpenter.KarpenterV1().NodeClaims().Create(ctx, d.claim, metav1.CreateOptions{})
				if err != nil {
					d.err = err
					continue
				}
				d.claim = created
			}
		})
	}
	for _, d := range drafts {
		work <- d
	}
	close(work)
	wg.Wait()
}

func namesOf(drafts []*draft) []string {
	names := make([]string, len(drafts))
	for i, d := range drafts {
		names[i] = d.claim.Name
	}
	return names
}

func split(members []*draft) (created, failed []*draft) {
	for _, d := range members {
		if d.err == nil {
			created = append(created, d)
		} else {
			failed = append(failed, d)
		}
	}
	return created, failed
}

// regroup records that the group has fewer members than its claims say. The request changes with it,
// so it is a new group.
func (l *Launcher) regroup(ctx context.Context, members []*draft) error {
	stampGroup(members, string(uuid.NewUUID()), 1)
	var errs []error
	for _, d := range members {
		updated, err := l.deps.Karpenter.KarpenterV1().NodeClaims().Update(ctx, d.claim, metav1.UpdateOptions{})
		if err != nil {
			errs = append(errs, fmt.Errorf("record launch group on nodeclaim %s: %w", d.claim.Name, err))
			d.err = err
			continue
		}
		d.claim = updated
	}
	return errors.Join(errs...)
}

// start promises the claims to their pods and hands the group on.
func (l *Launcher) start(ctx context.Context, members []*draft, reason string) {
	now := l.deps.Clock.Now()
	group := cloud.Group{}
	for _, d := range members {
		l.deps.Track(d.claim)
		for _, pod := range d.pods {
			l.deps.Promises.Promise(pod, d.claim.Name, "", now.Add(l.options.PromiseDeadline), now)
			l.deps.Events.Nominated(pod, d.claim.Name, "")
		}
		l.metrics.created.WithLabelValues(reason, d.claim.Labels[karpv1.LabelNodePool], d.claim.Annotations[karpv1.AnnotationMinValuesRelaxed]).Inc()
		klog.FromContext(ctx).V(2).Info("Created NodeClaim", "nodeClaim", klog.KObj(d.claim),
			"nodePool", d.claim.Labels[karpv1.LabelNodePool], "pods", len(d.pods))
		group.Claims = append(group.Claims, d.claim)
	}
	ref, err := cloud.ParseGroup(members[0].claim.Annotations[karpv1.AnnotationLaunchGroup], members[0].claim.Name)
	if err != nil || slices.ContainsFunc(members, func(d *draft) bool { return d.err != nil }) {
		l.deps.Starter.Release(namesOf(members)) // they are grouped anew
		return
	}
	group.ID, group.Attempt = ref.ID, ref.Attempt
	l.deps.Starter.Start(ctx, group)
}
