package app

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/plugins/nodeprovision"
)

// forgetSeen ends the reservations of pods whose binding, or end, is in the informer's store: whoever
// reads pods from there now sees them. It must be called before the informer starts.
func forgetSeen(pods cache.SharedIndexInformer, hidden *nodeprovision.Hidden) error {
	seen := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			hidden.Forget(pod.UID)
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, obj any) { seen(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				hidden.Forget(pod.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	return nil
}
