package provisioner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/volume"
)

// demand is what a batch wants from the solver.
type demand struct {
	pods    []*corev1.Pod
	volumes map[types.UID][]requirement.Set
	// ignored are pods that no plan can help as they are now.
	ignored []solver.Unfit
}

// reasonDevices is why nothing is bought for pods with resource claims: which devices a new node will
// publish is not known before it runs.
const reasonDevices = "the pod has Dynamic Resource Allocation requirements that are not yet supported (spec.resourceClaims)"

// add sorts the pods into those that can be planned and those that cannot.
func (d *demand) add(pods []*corev1.Pod, volumes volume.Listers, purpose volume.Purpose) {
	for _, pod := range pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			d.ignore(pod, reasonDevices)
			continue
		}
		places, fault := volumes.Demands(pod, purpose)
		if fault != "" {
			d.ignore(pod, fault)
			continue
		}
		if len(places) > 0 {
			if d.volumes == nil {
				d.volumes = map[types.UID][]requirement.Set{}
			}
			d.volumes[pod.UID] = places
		}
		d.pods = append(d.pods, pod)
	}
}

func (d *demand) ignore(pod *corev1.Pod, reason string) {
	d.ignored = append(d.ignored, solver.Unfit{Pod: pod, Reasons: []solver.PoolReason{{Reason: reason}}})
}
