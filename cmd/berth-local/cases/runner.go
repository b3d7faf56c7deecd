package cases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

const (
	// quietTime is how long nothing may change before the cluster counts as settled. It is longer than
	// the batching windows and the first back-offs.
	quietTime   = 6 * time.Second
	poll        = 50 * time.Millisecond
	readyWait   = 20 * time.Second
	creators    = 32
	stopTimeout = 15 * time.Second
)

// runner does one scenario on a cluster of its own.
type runner struct {
	*scenario
	cluster *allinone.Cluster
	applier *allinone.Applier
	record  *record
	fresh   map[string]string // node name to its name in given.nodes
	asked   time.Time
	first   *standing
	begun   time.Time
	pods    map[string]string // pod names of the case, to the entry's bare name
	ends    sync.WaitGroup    // faults that end by themselves
}

// run does the scenario and returns what was seen.
func (s *scenario) run(ctx context.Context) (_ *observation, err error) {
	catalog, unsupported, err := s.catalogue()
	if err != nil {
		return nil, err
	}
	if len(unsupported) > 0 {
		return nil, &unsupportedError{unsupported}
	}
	world, err := s.world(*catalog)
	if err != nil {
		return nil, err
	}
	cluster, err := allinone.Start(ctx, allinone.Options{Catalog: catalog, World: world, SystemNodes: 1, Seed: 1, BootDelay: 2 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	r := &runner{scenario: s, cluster: cluster, record: newRecord(), fresh: map[string]string{}, pods: map[string]string{}}
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer func() {
		stopWatching() // before the cluster stops: the API server waits for its watches
		r.ends.Wait()
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, cluster.Stop(stopCtx))
	}()
	if r.applier, err = allinone.NewApplier(cluster.Config); err != nil {
		return nil, err
	}
	if err := r.record.follow(watchCtx, cluster); err != nil {
		return nil, err
	}
	if err := r.setUp(ctx); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	for i, st := range s.steps {
		if err := r.do(watchCtx, st); err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return r.observe(ctx)
}

// unsupportedError says that the scenario cannot be brought about.
type unsupportedError struct{ what []string }

func (e *unsupportedError) Error() string { return strings.Join(e.what, "; ") }

func (r *runner) apply(ctx context.Context, o object) error {
	text, err := manifest(o)
	if err != nil {
		return err
	}
	return r.applier.Apply(ctx, text)
}

// setUp makes what is given and waits until it is in force.
func (r *runner) setUp(ctx context.Context) error {
	if err := r.apply(ctx, classManifest()); err != nil {
		return err
	}
	for _, p := range r.given.NodePools {
		if err := r.apply(ctx, poolManifest(p)); err != nil {
			return err
		}
	}
	if err := r.awaitPools(ctx); err != nil {
		return err
	}
	for _, d := range r.given.DaemonSets {
		if _, err := r.cluster.Kube.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, daemonSetOf(d), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create DaemonSet %s: %w", d.Name, err)
		}
	}
	if err := r.makeNodes(ctx); err != nil {
		return err
	}
	r.record.startCase()
	r.begun = time.Now()
	return nil
}

// awaitPools waits until every pool is ready. A pool that is not is left as it is: the case may be about
// that. When none is ready there is nothing to observe.
func (r *runner) awaitPools(ctx context.Context) error {
	var unready []string
	err := wait.PollUntilContextTimeout(ctx, poll, readyWait, true, func(ctx context.Context) (bool, error) {
		unready = nil
		for _, p := range r.given.NodePools {
			got, err := r.cluster.Karpenter.KarpenterV1().NodePools().Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("get NodePool %s: %w", p.Name, err)
			}
			if !meta.IsStatusConditionTrue(got.Status.Conditions, karpv1.ConditionReady) {
				unready = append(unready, p.Name)
			}
		}
		return len(unready) == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil && len(unready) < len(r.given.NodePools) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("NodePools %v did not become ready: %w", unready, err)
	}
	return nil
}

// makeNodes has the given nodes bought by seeds, puts the given pods on them, and takes the seeds away.
func (r *runner) makeNodes(ctx context.Context) error {
	pods := r.cluster.Kube.CoreV1().Pods(metav1.NamespaceDefault)
	for _, n := range r.nodes {
		if _, err := pods.Create(ctx, seedOf(n), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod for node %s: %w", n.Name, err)
		}
	}
	names := map[string]string{} // given name to node name
	for _, n := range r.nodes {
		err := wait.PollUntilContextTimeout(ctx, poll, 60*time.Second, true, func(ctx context.Context) (bool, error) {
			pod, err := pods.Get(ctx, "seed-"+n.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			names[n.Name] = pod.Spec.NodeName
			return pod.Status.Phase == corev1.PodRunning, nil
		})
		if err != nil {
			return fmt.Errorf("make node %s: %w", n.Name, err)
		}
		r.fresh[names[n.Name]] = n.Name
	}
	for _, entry := range r.given.Pods {
		if entry.Node == "" {
			continue
		}
		for _, name := range entry.names() {
			pod := podOf(entry, name)
			pod.Spec.NodeName = names[entry.Node]
			if err := r.create(ctx, entry, pod); err != nil {
				return err
			}
		}
	}
	if len(r.nodes) == 0 {
		return nil
	}
	grace := int64(0)
	err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{LabelSelector: "seed=true"})
	if err != nil {
		return fmt.Errorf("delete seeds: %w", err)
	}
	return nil
}

func (r *runner) create(ctx context.Context, entry podSpec, pod *corev1.Pod) error {
	if _, err := r.cluster.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	r.pods[pod.Name] = entry.Name
	return nil
}

// do brings a step about.
func (r *runner) do(ctx context.Context, st step) error {
	switch {
	case st.pending != nil:
		return r.makePending(ctx, st.pending)
	case st.settle:
		return r.settle(ctx)
	case st.fault != nil:
		r.inject(ctx, st.fault)
		return nil
	case st.poolEdit != nil:
		return r.editPool(ctx, st.poolEdit)
	default:
		return sleep(ctx, st.advance)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// makePending creates pods: of an entry all, or one by its own name; concurrently from many clients.
func (r *runner) makePending(ctx context.Context, p *podsPending) error {
	type job struct {
		entry podSpec
		name  string
	}
	var jobs []job
	for _, wanted := range p.Pods {
		before := len(jobs)
		for _, entry := range r.given.Pods {
			for _, name := range entry.names() {
				if entry.Node == "" && (entry.Name == wanted || name == wanted) {
					jobs = append(jobs, job{entry, name})
				}
			}
		}
		if len(jobs) == before {
			return fmt.Errorf("no pod %s is given", wanted)
		}
	}
	workers := 1
	if p.Concurrently {
		workers = creators
	}
	var created sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for w := range workers {
		created.Go(func() {
			for i := w; i < len(jobs); i += workers {
				pod := podOf(jobs[i].entry, jobs[i].name)
				_, err := r.cluster.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
				if err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("create pod %s: %w", pod.Name, err))
					mu.Unlock()
				}
			}
		})
	}
	created.Wait()
	for _, j := range jobs {
		r.pods[j.name] = j.entry.Name
	}
	r.asked = time.Now()
	return errors.Join(errs...)
}

// settle waits until nothing changes any more.
func (r *runner) settle(ctx context.Context) error {
	var state string
	err := wait.PollUntilContextCancel(ctx, poll, false, func(context.Context) (done bool, _ error) {
		done, state = r.record.quiet(quietTime)
		return done, nil
	})
	if err != nil {
		return fmt.Errorf("it does not settle: %s", state)
	}
	if r.first == nil {
		seen := r.claimsAndPods()
		r.first = &standing{claims: seen.living(), pending: len(seen.pending())}
	}
	return nil
}

// inject makes the simulated EC2 fail as told, for as long as told.
func (r *runner) inject(ctx context.Context, f *ec2Fault) {
	end := func() {}
	if f.Match != nil {
		r.cluster.EC2.SetLaunchError(f.Match.InstanceType, toZone(f.Match.Zone), f.Match.CapacityType, f.Code)
		end = func() {
			r.cluster.EC2.SetLaunchError(f.Match.InstanceType, toZone(f.Match.Zone), f.Match.CapacityType, "")
		}
	} else {
		n := -1
		if f.Count != nil {
			n = *f.Count
		}
		r.cluster.EC2.FailNext(f.API, f.Code, n)
		end = func() { r.cluster.EC2.FailNext(f.API, f.Code, 0) }
	}
	if f.For == nil {
		return
	}
	r.ends.Go(func() {
		if sleep(ctx, f.For.Duration) == nil {
			end()
		}
	})
}

func (r *runner) editPool(ctx context.Context, u *updateNodePool) error {
	spec := object{}
	optional(spec, "limits", u.Limits, u.Limits != nil)
	optional(spec, "weight", u.Weight, u.Weight != nil)
	patch, err := manifest(object{"spec": spec})
	if err != nil {
		return err
	}
	r.record.poolEdited()
	_, err = r.cluster.Karpenter.KarpenterV1().NodePools().Patch(ctx, u.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change NodePool %s: %w", u.Name, err)
	}
	return nil
}

// claimsAndPods is the part of the observation that the record has.
func (r *runner) claimsAndPods() *observation {
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	o := &observation{
		pods: map[string]podSeen{}, podGroups: map[string][]string{}, asked: r.asked, first: r.first,
		mostClaims: r.record.mostClaims, mostBefore: r.record.mostBefore, counts: slices.Clone(r.record.counts),
		refused: maps.Clone(r.record.refused),
	}
	for _, name := range slices.Sorted(maps.Keys(r.record.claims)) {
		if c := r.record.claims[name]; !r.record.before[name] {
			o.claims = append(o.claims, c)
		}
	}
	for name, group := range r.pods {
		o.pods[name] = r.record.pods[name]
		o.podGroups[group] = append(o.podGroups[group], name)
	}
	return o
}
