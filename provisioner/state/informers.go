package state

import (
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

func (s *State) register() error {
	core, ours := s.deps.Core, s.deps.Ours
	return errors.Join(
		follow(s, core.Core().V1().Nodes().Informer(), s.putNode, func(n *corev1.Node) { s.dropNode(n.Name) }),
		follow(s, core.Core().V1().Pods().Informer(), s.putPod, s.dropPod),
		follow(s, core.Core().V1().Namespaces().Informer(), func(n *corev1.Namespace) {
			s.namespaces[n.Name] = n.Labels
			s.changed()
		}, func(n *corev1.Namespace) {
			delete(s.namespaces, n.Name)
			s.changed()
		}),
		follow(s, core.Apps().V1().DaemonSets().Informer(), func(d *appsv1.DaemonSet) {
			s.daemonSets[d.UID] = d
			s.changed()
		}, func(d *appsv1.DaemonSet) {
			delete(s.daemonSets, d.UID)
			delete(s.daemonPods, d.UID)
			s.changed()
		}),
		follow(s, ours.Karpenter().V1().NodeClaims().Informer(), func(c *karpv1.NodeClaim) {
			// Track may have told of a newer version already.
			if have := s.claims[c.Name]; have == nil || have.UID != c.UID || !newer(have, c) {
				s.putClaim(c)
			}
		}, s.dropClaim),
	)
}

// follow calls put and drop, under the lock, for what the informer tells.
func follow[T any](s *State, informer cache.SharedIndexInformer, put, drop func(*T)) error {
	locked := func(f func(*T)) func(any) {
		return func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if typed, ok := object.(*T); ok {
				s.mu.Lock()
				defer s.mu.Unlock()
				f(typed)
			}
		}
	}
	see := locked(put)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: locked(drop),
	})
	if err != nil {
		return err
	}
	s.synced = append(s.synced, registration.HasSynced)
	return nil
}
