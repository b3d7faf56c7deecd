package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	"github.com/berth-dev/berth/examples"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// Options of the demo; the zero value is the one that `make demo` runs.
type Options struct {
	Cluster allinone.Options
	// Burst is how many pods the load step makes pending at once; 0 means 500, negative leaves it out.
	Burst int
}

// step is one chapter: it returns an error when what should happen was not seen.
type step func(ctx context.Context, d *demo) error

type demo struct {
	*story
	cluster *allinone.Cluster
	applier *allinone.Applier
	burst   int
	report  report
}

// Run starts a cluster, tells the story on out and returns nil only when every step was observed
// through the API.
func Run(ctx context.Context, out io.Writer, options Options) (err error) {
	s := &story{out: out, start: time.Now(), now: time.Now, watch: newTimeline()}
	s.title("A cluster from nothing")
	cluster, err := allinone.Start(ctx, options.Cluster)
	if err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		err = errors.Join(err, cluster.Stop(stopCtx))
	}()
	d := &demo{story: s, cluster: cluster, burst: options.Burst}
	if d.burst == 0 {
		d.burst = 500
	}
	d.report.ready = s.now().Sub(s.start)
	s.say("etcd, kube-apiserver %s, controllers, EC2 simulator and scheduler are ready", cluster.Version())
	if d.applier, err = allinone.NewApplier(cluster.Config); err != nil {
		return err
	}
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching() // before the cluster stops: the API server waits for its watches
	if err := watchCluster(watchCtx, cluster, s.watch); err != nil {
		return err
	}
	for _, run := range []step{poolStep, webStep, spreadStep, loneStep, burstStep, scaleDownStep} {
		if err := run(ctx, d); err != nil {
			return err
		}
	}
	d.title("Measured")
	d.report.print(out)
	return nil
}

// example applies a manifest of the examples folder.
func (d *demo) example(ctx context.Context, path string) error {
	text, err := examples.Files.ReadFile(path)
	if err != nil {
		return err
	}
	if err := d.applier.Apply(ctx, string(text)); err != nil {
		return err
	}
	d.say("applied examples/%s", path)
	return nil
}

func poolStep(ctx context.Context, d *demo) error {
	d.title("A NodePool and an EC2NodeClass, as Karpenter users have them")
	for _, path := range []string{"quickstart/nodeclass.yaml", "quickstart/nodepool.yaml"} {
		if err := d.example(ctx, path); err != nil {
			return err
		}
	}
	pools := d.cluster.Karpenter.KarpenterV1().NodePools()
	return d.expect(ctx, "NodePool default is Ready", 30*time.Second, func(view) (bool, string) {
		pool, err := pools.Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		ready := meta.FindStatusCondition(pool.Status.Conditions, karpv1.ConditionReady)
		if ready == nil {
			return false, "no Ready condition yet"
		}
		return ready.Status == metav1.ConditionTrue, ready.Reason + " " + ready.Message
	})
}

func webStep(ctx context.Context, d *demo) error {
	d.title("Five pods that fit nowhere")
	begun := d.now()
	if err := d.example(ctx, "quickstart/deployment.yaml"); err != nil {
		return err
	}
	return d.followPods(ctx, "default/web-", 5, begun)
}

// followPods waits for each stage of the main job, for n pods whose key has the prefix.
func (d *demo) followPods(ctx context.Context, prefix string, n int, begun time.Time) error {
	stages := []struct {
		what string
		seen func(view) (bool, string)
	}{
		{"pods are Pending, unschedulable", countPods(prefix, n, func(p podTimes) bool { return !p.unschedulable.IsZero() })},
		{"NodeClaims are written", func(v view) (bool, string) {
			return d.claimsSince(v, begun, func(c claimTimes) bool { return !c.created.IsZero() })
		}},
		{"CreateFleet reached EC2", func(view) (bool, string) {
			calls := d.cluster.FleetCalls(begun)
			return len(calls) > 0, fmt.Sprintf("%d call(s)", len(calls))
		}},
		{"instances are launched", func(v view) (bool, string) {
			return d.claimsSince(v, begun, func(c claimTimes) bool { return !c.launched.IsZero() })
		}},
		{"nodes registered", func(v view) (bool, string) {
			return d.claimsSince(v, begun, func(c claimTimes) bool { return !c.registered.IsZero() })
		}},
		{"nodes initialized", func(v view) (bool, string) {
			return d.claimsSince(v, begun, func(c claimTimes) bool { return !c.initialized.IsZero() })
		}},
		{"pods are bound", countPods(prefix, n, func(p podTimes) bool { return !p.bound.IsZero() })},
		{"pods are Running", countPods(prefix, n, func(p podTimes) bool { return !p.running.IsZero() })},
	}
	for _, stage := range stages {
		if err := d.expect(ctx, stage.what, 90*time.Second, stage.seen); err != nil {
			return err
		}
	}
	d.tellNodes(prefix)
	return nil
}

func countPods(prefix string, want int, holds func(podTimes) bool) func(view) (bool, string) {
	return func(v view) (bool, string) {
		n := 0
		for key, p := range v.pods {
			if strings.HasPrefix(key, prefix) && holds(p) {
				n++
			}
		}
		return n >= want, fmt.Sprintf("%d of %d", n, want)
	}
}

// claimsSince reports whether there are claims younger than begun and the mark holds for all of them.
func (d *demo) claimsSince(v view, begun time.Time, holds func(claimTimes) bool) (bool, string) {
	n, total := 0, 0
	for _, c := range v.claims {
		if c.created.Before(begun) || !c.gone.IsZero() {
			continue
		}
		total++
		if holds(c) {
			n++
		}
	}
	return total > 0 && n == total, fmt.Sprintf("%d of %d", n, total)
}

// tellNodes says where the pods with the prefix run.
func (d *demo) tellNodes(prefix string) {
	v := d.watch.view()
	pods := map[string]int{}
	for key, p := range v.pods {
		if strings.HasPrefix(key, prefix) && p.node != "" && p.gone.IsZero() {
			pods[p.node]++
		}
	}
	for name, c := range v.claims {
		if n := pods[c.node]; n > 0 && c.gone.IsZero() {
			d.say("  %s: %s %s in %s runs %d of them (%s)", name, c.instanceType, c.capacityType, c.zone, n, c.node)
		}
	}
}

func spreadStep(ctx context.Context, d *demo) error {
	d.title("Nine pods that must spread over three zones")
	begun := d.now()
	if err := d.example(ctx, "zone-spread/deployment.yaml"); err != nil {
		return err
	}
	if err := d.followPods(ctx, "default/spread-", 9, begun); err != nil {
		return err
	}
	zones, err := d.podsPerZone(ctx, "app=spread")
	if err != nil {
		return err
	}
	for _, n := range zones {
		if n != 3 {
			return fmt.Errorf("pods per zone are %v, want 3 in each of 3 zones", zones)
		}
	}
	if len(zones) != 3 {
		return fmt.Errorf("pods per zone are %v, want 3 zones", zones)
	}
	d.say("pods per zone: %v", zones)
	return nil
}

func (d *demo) podsPerZone(ctx context.Context, selector string) (map[string]int, error) {
	pods, err := d.cluster.Kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	zones := map[string]int{}
	for _, pod := range pods.Items {
		node, err := d.cluster.Kube.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get node of pod %s: %w", pod.Name, err)
		}
		zones[node.Labels[corev1.LabelTopologyZone]]++
	}
	return zones, nil
}
