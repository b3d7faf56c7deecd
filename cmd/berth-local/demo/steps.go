package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lonePods is how many single pods loneStep measures, one after the other.
const lonePods = 5

// loneStep makes single pods pending that no running node can hold, and measures how long the request
// to EC2 took from the creation of the pod.
func loneStep(ctx context.Context, d *demo) error {
	d.title("A lone pod: how long until EC2 is asked?")
	pods := d.cluster.Kube.CoreV1().Pods("default")
	for i := range lonePods {
		begun := d.now()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("lone-%d", i)},
			Spec: corev1.PodSpec{
				SchedulerName:                 "berth",
				TerminationGracePeriodSeconds: new(int64),
				Containers: []corev1.Container{{
					Name: "app", Image: "registry.k8s.io/pause:3.10",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("15")}},
				}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
		err := d.expect(ctx, "CreateFleet for "+pod.Name, 30*time.Second, func(view) (bool, string) {
			calls := d.cluster.FleetCalls(begun)
			if len(calls) == 0 {
				return false, "no call yet"
			}
			d.report.lone = append(d.report.lone, calls[0].Sub(begun))
			return true, fmt.Sprintf("%d ms after the pod was created", calls[0].Sub(begun).Milliseconds())
		})
		if err != nil {
			return err
		}
	}
	return d.expect(ctx, "lone pods are Running", 90*time.Second,
		countPods("default/lone-", lonePods, func(p podTimes) bool { return !p.running.IsZero() }))
}

// burstStep makes many pods pending at once.
func burstStep(ctx context.Context, d *demo) error {
	if d.burst < 0 {
		d.report.bind = bindDelays(d.watch.view(), time.Time{})
		return nil
	}
	d.title(fmt.Sprintf("%d pods at once", d.burst))
	d.report.bind = bindDelays(d.watch.view(), time.Time{})
	begun := d.now()
	if err := d.applier.Apply(ctx, burstManifest(d.burst)); err != nil {
		return err
	}
	if err := d.expect(ctx, "all are bound", 3*time.Minute,
		countPods("default/burst-", d.burst, func(p podTimes) bool { return !p.bound.IsZero() })); err != nil {
		return err
	}
	v, calls := d.watch.view(), d.cluster.FleetCalls(begun)
	var lastPending time.Time
	for key, p := range v.pods {
		if strings.HasPrefix(key, "default/burst-") && p.created.After(lastPending) {
			lastPending = p.created
		}
	}
	d.report.burstPods, d.report.burstCalls = d.burst, len(calls)
	if len(calls) > 0 {
		d.report.burst = calls[len(calls)-1].Sub(lastPending)
		d.say("%d CreateFleet calls; the last one %d ms after the last pod was created", len(calls), d.report.burst.Milliseconds())
	}
	d.report.bindBurst = bindDelays(v, begun)
	return d.expect(ctx, "all are Running", 3*time.Minute,
		countPods("default/burst-", d.burst, func(p podTimes) bool { return !p.running.IsZero() }))
}

func burstManifest(replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: burst}
spec:
  replicas: %d
  selector: {matchLabels: {app: burst}}
  template:
    metadata: {labels: {app: burst}}
    spec:
      schedulerName: berth
      terminationGracePeriodSeconds: 0
      containers:
      - name: app
        image: registry.k8s.io/pause:3.10
        resources: {requests: {cpu: 700m, memory: 1Gi}}
`, replicas)
}

// scaleDownStep takes the work away and waits until the nodes and instances are gone.
func scaleDownStep(ctx context.Context, d *demo) error {
	d.title("Scale to zero: empty nodes go")
	patch := []byte(`{"spec":{"replicas":0}}`)
	deployments := []string{"web", "spread"}
	if d.burst > 0 {
		deployments = append(deployments, "burst")
	}
	for _, name := range deployments {
		_, err := d.cluster.Kube.AppsV1().Deployments("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
		if err != nil {
			return fmt.Errorf("scale deployment %s: %w", name, err)
		}
	}
	grace := int64(0)
	for i := range lonePods {
		name := fmt.Sprintf("lone-%d", i)
		if err := d.cluster.Kube.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			return fmt.Errorf("delete pod %s: %w", name, err)
		}
	}
	d.say("scaled every Deployment to 0")
	stages := []struct {
		what string
		seen func(view) (bool, string)
	}{
		{"pods are gone", func(v view) (bool, string) {
			n, left := 0, 0
			for key, p := range v.pods {
				if strings.HasPrefix(key, "default/") {
					n++
					if p.gone.IsZero() {
						left++
					}
				}
			}
			return left == 0, fmt.Sprintf("%d of %d", n-left, n)
		}},
		{"NodeClaims are being deleted", countClaims(func(c claimTimes) bool { return !c.deleting.IsZero() || !c.gone.IsZero() })},
		{"NodeClaims are gone", countClaims(func(c claimTimes) bool { return !c.gone.IsZero() })},
		{"Nodes are gone", d.nodesGone},
		{"instances are terminated", func(view) (bool, string) {
			n := d.cluster.LivingInstances()
			return n == 0, fmt.Sprintf("%d left", n)
		}},
	}
	for _, stage := range stages {
		if err := d.expect(ctx, stage.what, 2*time.Minute, stage.seen); err != nil {
			return err
		}
	}
	return nil
}

func countClaims(holds func(claimTimes) bool) func(view) (bool, string) {
	return func(v view) (bool, string) {
		n := 0
		for _, c := range v.claims {
			if holds(c) {
				n++
			}
		}
		return n == len(v.claims), fmt.Sprintf("%d of %d", n, len(v.claims))
	}
}

// nodesGone looks at the nodes of claims only; system nodes stay.
func (d *demo) nodesGone(v view) (bool, string) {
	gone, total := 0, 0
	for _, c := range v.claims {
		if c.node == "" {
			continue
		}
		total++
		if n, ok := v.nodes[c.node]; ok && !n.gone.IsZero() {
			gone++
		}
	}
	return gone == total, fmt.Sprintf("%d of %d", gone, total)
}

// bindDelays gives, for each node that became Ready since then, how long after that its first pod was
// bound.
func bindDelays(v view, since time.Time) []time.Duration {
	first := map[string]time.Time{}
	for _, p := range v.pods {
		if f := first[p.node]; p.node != "" && !p.bound.IsZero() && (f.IsZero() || p.bound.Before(f)) {
			first[p.node] = p.bound
		}
	}
	var delays []time.Duration
	for node, bound := range first {
		if n, ok := v.nodes[node]; ok && n.ready.After(since) && bound.After(n.ready) {
			delays = append(delays, bound.Sub(n.ready))
		}
	}
	return delays
}
