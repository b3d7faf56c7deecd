package provisioner

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/volume"
)

// watch registers the handlers that keep promises true: pods that are bound or gone, pods that wait
// without having asked (no node in the cluster, or asked before a restart), and changes of the world
// after which refused pods may ask again. It must be called before the informers start.
func (p *Provisioner) watch() error {
	if _, err := p.Core.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.sawPod(object) },
		UpdateFunc: func(_, object any) { p.sawPod(object) },
		DeleteFunc: func(object any) {
			if pod, ok := deleted[corev1.Pod](object); ok {
				p.podGone(pod)
			}
		},
	}); err != nil {
		return err
	}
	if _, err := p.Ours.Karpenter().V1().NodePools().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.WorldChanged() },
		UpdateFunc: func(before, after any) {
			if poolChanged(before, after) {
				p.WorldChanged()
			}
		},
		DeleteFunc: func(any) { p.WorldChanged() },
	}); err != nil {
		return err
	}
	if _, err := p.Core.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.sawClaim, UpdateFunc: func(_, object any) { p.sawClaim(object) },
	}); err != nil {
		return err
	}
	if _, err := p.Core.Storage().V1().StorageClasses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.WorldChanged() },
	}); err != nil {
		return err
	}
	_, err := p.Ours.Karpenter().V1().NodeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(object any) {
			if claim, ok := deleted[karpv1.NodeClaim](object); ok {
				p.ClaimGone(context.Background(), claim.Name)
			}
			p.WorldChanged() // its share of the limits is free
		},
	})
	return err
}

// deleted unwraps what an informer gives a delete handler.
func deleted[T any](object any) (*T, bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	typed, ok := object.(*T)
	return typed, ok
}

// poolChanged reports whether a pool may help other pods than before: its spec or readiness changed.
func poolChanged(before, after any) bool {
	a, okA := before.(*karpv1.NodePool)
	b, okB := after.(*karpv1.NodePool)
	return okA && okB && (a.Generation != b.Generation || whyNotReady(a) != whyNotReady(b))
}

func (p *Provisioner) sawPod(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	switch {
	case !waitsForNode(pod):
		p.settle(pod)
	case slices.Contains(p.options.SchedulerNames, pod.Spec.SchedulerName) && p.inherit(context.Background(), pod):
	case promise.NeedsAsk(pod, p.options.SchedulerNames):
		p.Ask(pod)
	}
}

// settle forgets a pod that waits no more, unless a place is kept for its successor.
func (p *Provisioner) settle(pod *corev1.Pod) {
	e, ok := p.Promises.Lookup(pod.UID)
	switch {
	case !ok:
	case !e.ForSuccessor() || isFinished(pod):
		p.Promises.Release(pod.UID)
	case pod.DeletionTimestamp != nil:
		p.Promises.Vacate(pod.UID)
	}
}

// successorDelay is how long a controller may take to make a pod again.
const successorDelay = time.Minute

// podGone forgets a deleted pod. A place for its successor is kept until that must have come.
func (p *Provisioner) podGone(pod *corev1.Pod) {
	if e, ok := p.Promises.Lookup(pod.UID); ok && e.ForSuccessor() && !isFinished(pod) {
		p.Promises.Vacate(pod.UID)
		p.Promises.Shorten(pod.UID, p.Clock.Now().Add(successorDelay))
		return
	}
	p.Promises.Release(pod.UID)
}

// sawClaim lets the refused pods that use the volume claim ask again.
func (p *Provisioner) sawClaim(object any) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	for _, e := range p.Promises.Refused() {
		if e.Pod.Namespace == claim.Namespace && slices.Contains(volume.ClaimNames(e.Pod), claim.Name) {
			p.Ask(e.Pod)
		}
	}
}

// WorldChanged lets refused pods ask again soon. It returns at once and may be called from informer
// handlers.
func (p *Provisioner) WorldChanged() {
	select {
	case p.changed <- struct{}{}:
	default: // a look is due already
	}
}

// NodeNamed records that the claim's node has this name; the scheduler then shows it on the pods.
func (p *Provisioner) NodeNamed(ctx context.Context, claim, node string) {
	p.Activate(ctx, podsOf(p.Promises.SetNode(claim, node)))
}

// ClaimGone takes back the promises on a claim that failed or was removed; its pods ask again.
func (p *Provisioner) ClaimGone(ctx context.Context, claim string) {
	dropped := p.Promises.DropClaim(claim)
	if len(dropped) == 0 {
		return
	}
	klog.FromContext(ctx).V(2).Info("NodeClaim is gone, its pods ask again", "nodeClaim", claim, "pods", len(dropped))
	p.metrics.broken.WithLabelValues("claim_gone").Add(float64(len(dropped)))
	p.askAgain(dropped)
}

func (p *Provisioner) askAgain(entries []promise.Entry) {
	for _, e := range entries {
		if e.Pod.Spec.NodeName != "" {
			p.nodeLeaves() // it runs, so only its successor may still need a place
			continue
		}
		p.Ask(e.Pod)
	}
}

func podsOf(entries []promise.Entry) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(entries))
	for i, e := range entries {
		pods[i] = e.Pod
	}
	return pods
}

// tend keeps the table true over time until ctx ends: promises end at their deadline, and refused
// pods ask again when the world has changed.
func (p *Provisioner) tend(ctx context.Context) {
	expire := p.Clock.NewTicker(time.Second)
	defer expire.Stop()
	// Offerings come back and prices move without an event in the API.
	offerings := p.Clock.NewTicker(p.options.RetryRefused)
	defer offerings.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-expire.C():
			if late := p.Promises.Expire(now); len(late) > 0 {
				klog.FromContext(ctx).Info("Promises ended at their deadline, the pods ask again", "pods", len(late))
				p.metrics.broken.WithLabelValues("deadline").Add(float64(len(late)))
				p.askAgain(late)
			}
		case <-offerings.C():
			p.askAgain(p.Promises.Refused())
			p.askForMovers(ctx)
		case <-p.leaving:
			p.askForMovers(ctx)
		case <-p.changed:
			p.askAgain(p.Promises.Refused())
		}
	}
}

// restore rebuilds promises from the claims that wait for their pods, after a restart.
func (p *Provisioner) restore(ctx context.Context) {
	claims, err := p.claimLister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing NodeClaims failed, promises are not restored; pods will ask again")
		return
	}
	pending := map[types.UID]*corev1.Pod{}
	pods, err := p.podLister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing pods failed, promises are not restored; pods will ask again")
		return
	}
	for _, pod := range pods {
		if waitsForNode(pod) {
			pending[pod.UID] = pod
		}
	}
	now := p.Clock.Now()
	restored := 0
	for _, claim := range claims {
		if claim.DeletionTimestamp != nil {
			continue
		}
		deadline := claim.CreationTimestamp.Add(p.options.Launch.PromiseDeadline)
		if !deadline.After(now) {
			continue
		}
		uids, err := promise.ParseAnnotation(claim.Annotations[karpv1.AnnotationPromises])
		if err != nil {
			continue // made by hand, or damaged: its pods ask again
		}
		for _, uid := range uids {
			if pod := pending[uid]; pod != nil {
				p.Promises.Promise(pod, claim.Name, claim.Status.NodeName, deadline, now)
				restored++
			}
		}
	}
	klog.FromContext(ctx).V(2).Info("Restored promises from NodeClaims", "pods", restored, "nodeClaims", len(claims))
}
