package provisioner

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/volume"
)

// demand is what a batch wants from the solver.
type demand struct {
	pods    []*corev1.Pod
	volumes map[types.UID][]requirement.Set
	// attaches counts the volumes that pods attach, by driver.
	attaches map[types.UID]resources.Vector
	// ignored are pods that no plan can help as they are now.
	ignored []solver.Unfit
	// stands says which pod of the cluster a pod stands for that is planned in another form.
	stands map[*corev1.Pod]*corev1.Pod
}

// reasonDevices is why nothing is bought for pods with resource claims: which devices a new node will
// publish is not known before it runs.
const reasonDevices = "the pod has Dynamic Resource Allocation requirements that are not yet supported (spec.resourceClaims)"

// spreader returns the topology spread constraints that apply to a pod which has none of its own.
type spreader func(pod *corev1.Pod) []corev1.TopologySpreadConstraint

// add sorts the pods into those that can be planned and those that cannot.
func (d *demand) add(pods []*corev1.Pod, volumes volume.Listers, spread spreader) {
	for _, pod := range pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			d.ignore(pod, reasonDevices)
			continue
		}
		places, fault := volumes.Demands(pod, volume.Pending)
		if fault != "" {
			d.ignore(pod, fault)
			continue
		}
		d.place(pod, pod, places, spread)
		d.attach(pod, volumes)
	}
}

// place adds a pod in the form in which it is planned, with what its volumes demand. Constraints that
// apply by default are added to it.
func (d *demand) place(pod, planned *corev1.Pod, places []requirement.Set, spread spreader) {
	if len(places) > 0 {
		if d.volumes == nil {
			d.volumes = map[types.UID][]requirement.Set{}
		}
		d.volumes[pod.UID] = places
	}
	if spread != nil {
		if constraints := spread(planned); len(constraints) > 0 {
			spreadOut := *planned
			spreadOut.Spec.TopologySpreadConstraints = constraints
			planned = &spreadOut
		}
	}
	if planned != pod {
		if d.stands == nil {
			d.stands = map[*corev1.Pod]*corev1.Pod{}
		}
		d.stands[planned] = pod
	}
	d.pods = append(d.pods, planned)
}

// translate puts the cluster's own pods into the plan for those that stood for them.
func (d *demand) translate(plan *solver.Plan) {
	if len(d.stands) == 0 {
		return
	}
	own := func(pod *corev1.Pod) *corev1.Pod { return cmp.Or(d.stands[pod], pod) }
	for i := range plan.Claims {
		for j, pod := range plan.Claims[i].Pods {
			plan.Claims[i].Pods[j] = own(pod)
		}
	}
	for i := range plan.Existing {
		plan.Existing[i].Pod = own(plan.Existing[i].Pod)
	}
	for i := range plan.Unfit {
		plan.Unfit[i].Pod = own(plan.Unfit[i].Pod)
	}
	for i := range plan.Disagreements {
		plan.Disagreements[i].Pod = own(plan.Disagreements[i].Pod)
	}
}

func (d *demand) attach(pod *corev1.Pod, volumes volume.Listers) {
	if amounts := volumes.Attachments(pod); !amounts.IsZero() {
		if d.attaches == nil {
			d.attaches = map[types.UID]resources.Vector{}
		}
		d.attaches[pod.UID] = amounts
	}
}

// drivers are the names under which the pods' volumes are counted.
func (d *demand) drivers() []corev1.ResourceName {
	var all resources.Vector
	for _, amounts := range d.attaches {
		all = all.Max(amounts)
	}
	return all.Names()
}

func (d *demand) ignore(pod *corev1.Pod, reason string) {
	d.ignored = append(d.ignored, solver.Unfit{Pod: pod, Reasons: []solver.PoolReason{{Reason: reason}}})
}
