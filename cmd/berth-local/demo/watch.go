package demo

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
)

// watchCluster feeds the timeline from watches of its own until ctx ends; it returns once they run.
func watchCluster(ctx context.Context, cluster *allinone.Cluster, t *timeline) error {
	core := informers.NewSharedInformerFactory(cluster.Kube, 0)
	ours := externalversions.NewSharedInformerFactory(cluster.Karpenter, 0)
	pods, nodes := core.Core().V1().Pods().Informer(), core.Core().V1().Nodes().Informer()
	claims := ours.Karpenter().V1().NodeClaims().Informer()
	err := errors.Join(
		follow(pods, t.sawPod, t.lostPod),
		follow(nodes, t.sawNode, t.lostNode),
		follow(claims, t.sawClaim, t.lostClaim),
	)
	if err != nil {
		return err
	}
	core.StartWithContext(ctx)
	ours.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, nodes.HasSynced, claims.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

func follow[T corev1.Pod | corev1.Node | karpv1.NodeClaim](informer cache.SharedIndexInformer, saw, lost func(*T, time.Time)) error {
	tell := func(f func(*T, time.Time)) func(any) {
		return func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if typed, ok := object.(*T); ok {
				f(typed, time.Now())
			}
		}
	}
	see := tell(saw)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, object any) { see(object) },
		DeleteFunc: tell(lost),
	})
	return err
}
