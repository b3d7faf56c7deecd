package nodeprovision

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/promise"
)

// NeedsAsk is promise.NeedsAsk, the counterpart of PostFilter for pods that never get there.
func NeedsAsk(pod *corev1.Pod, schedulerNames []string) bool {
	return promise.NeedsAsk(pod, schedulerNames)
}

func nodeCouldBeFor(pod *corev1.Pod) bool { return promise.NodeCouldBeFor(pod) }
