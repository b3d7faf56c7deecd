package resources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// Vector holds amounts: CPU in millicores, memory and ephemeral storage in bytes, pods as a count, and
// every other resource in its unit. The zero value is nothing of everything. Vectors are values: no
// method changes its receiver, and Extended slices may be shared.
type Vector struct {
	MilliCPU, Memory, EphemeralStorage, Pods int64
	// Extended is sorted by name, without zero amounts.
	Extended []Amount
}

// Amount of one resource that has no field of its own.
type Amount struct {
	Name  corev1.ResourceName
	Value int64
}

// FromList converts API quantities. Amounts that are finer than the unit are rounded up.
func FromList(list corev1.ResourceList) Vector {
	var v Vector
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			v.MilliCPU = q.MilliValue()
		case corev1.ResourceMemory:
			v.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			v.EphemeralStorage = q.Value()
		case corev1.ResourcePods:
			v.Pods = q.Value()
		default:
			if n := q.Value(); n != 0 {
				v.Extended = append(v.Extended, Amount{Name: name, Value: n})
			}
		}
	}
	slices.SortFunc(v.Extended, func(a, b Amount) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// PodRequests returns what the scheduler counts for the pod (init and sidecar containers, pod-level
// resources, overhead, the allocated amounts during an in-place resize) plus one pod.
func PodRequests(pod *corev1.Pod) Vector {
	if v, ok := plainRequests(pod); ok {
		return v
	}
	v := FromList(helpers.PodRequests(pod, helpers.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true, // as the scheduler does by default
	}))
	v.Pods++
	return v
}

// plainRequests sums the containers of pods that have nothing else to count and are not being resized,
// which are nearly all. It is there for speed: a large cluster has its pods counted at every solve.
func plainRequests(pod *corev1.Pod) (v Vector, ok bool) {
	if len(pod.Spec.InitContainers) > 0 || pod.Spec.Resources != nil || len(pod.Spec.Overhead) > 0 || resizing(pod) {
		return v, false
	}
	for i := range pod.Spec.Containers {
		requests := pod.Spec.Containers[i].Resources.Requests
		for name, q := range requests {
			switch name {
			case corev1.ResourceCPU:
				v.MilliCPU += q.MilliValue()
			case corev1.ResourceMemory:
				v.Memory += q.Value()
			case corev1.ResourceEphemeralStorage:
				v.EphemeralStorage += q.Value()
			default:
				return Vector{}, false
			}
		}
	}
	v.Pods = 1
	return v, true
}

// resizing reports whether the kubelet has told of amounts other than the spec's.
func resizing(pod *corev1.Pod) bool {
	if pod.Status.Resources != nil {
		return true
	}
	for i := range pod.Status.Conditions {
		if t := pod.Status.Conditions[i].Type; t == corev1.PodResizePending || t == corev1.PodResizeInProgress {
			return true
		}
	}
	for i := range pod.Status.ContainerStatuses {
		told := &pod.Status.ContainerStatuses[i]
		if told.Resources == nil && len(told.AllocatedResources) == 0 {
			continue
		}
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == told.Name })
		if at < 0 {
			return true
		}
		wanted := pod.Spec.Containers[at].Resources.Requests
		if above(told.AllocatedResources, wanted) || told.Resources != nil && above(told.Resources.Requests, wanted) {
			return true
		}
	}
	return false
}

// above reports whether some amount is greater than the same of the other list.
func above(list, other corev1.ResourceList) bool {
	for name, q := range list {
		if have := other[name]; q.Cmp(have) > 0 {
			return true
		}
	}
	return false
}

// ToList converts to API quantities, leaving out zero amounts.
func (v Vector) ToList() corev1.ResourceList {
	list := corev1.ResourceList{}
	set := func(name corev1.ResourceName, q *resource.Quantity) {
		if !q.IsZero() {
			list[name] = *q
		}
	}
	set(corev1.ResourceCPU, resource.NewMilliQuantity(v.MilliCPU, resource.DecimalSI))
	set(corev1.ResourceMemory, resource.NewQuantity(v.Memory, resource.BinarySI))
	set(corev1.ResourceEphemeralStorage, resource.NewQuantity(v.EphemeralStorage, resource.BinarySI))
	set(corev1.ResourcePods, resource.NewQuantity(v.Pods, resource.DecimalSI))
	for _, a := range v.Extended {
		set(a.Name, resource.NewQuantity(a.Value, resource.DecimalSI))
	}
	return list
}

// Get returns the amount of a resource: millicores for cpu, else units.
func (v Vector) Get(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return v.MilliCPU
	case corev1.ResourceMemory:
		return v.Memory
	case corev1.ResourceEphemeralStorage:
		return v.EphemeralStorage
	case corev1.ResourcePods:
		return v.Pods
	default:
	}
	if i, ok := slices.BinarySearchFunc(v.Extended, name, byName); ok {
		return v.Extended[i].Value
	}
	return 0
}

func byName(a Amount, name corev1.ResourceName) int { return cmp.Compare(a.Name, name) }

// With returns the vector with the amount of one extended or core resource replaced.
func (v Vector) With(name corev1.ResourceName, value int64) Vector {
	switch name {
	case corev1.ResourceCPU:
		v.MilliCPU = value
	case corev1.ResourceMemory:
		v.Memory = value
	case corev1.ResourceEphemeralStorage:
		v.EphemeralStorage = value
	case corev1.ResourcePods:
		v.Pods = value
	default:
		v.Extended = zip(v.without(name), []Amount{{Name: name, Value: value}}, add)
	}
	return v
}

func (v Vector) without(name corev1.ResourceName) []Amount {
	return slices.DeleteFunc(slices.Clone(v.Extended), func(a Amount) bool { return a.Name == name })
}

// Names lists the resources with an amount other than zero, core ones first.
func (v Vector) Names() []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, core := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	} {
		if v.Get(core) != 0 {
			names = append(names, core)
		}
	}
	for _, a := range v.Extended {
		names = append(names, a.Name)
	}
	return names
}

func add(a, b int64) int64    { return a + b }
func sub(a, b int64) int64    { return a - b }
func larger(a, b int64) int64 { return max(a, b) }
func lesser(a, b int64) int64 { return min(a, b) }

// Add returns the sum.
func (v Vector) Add(o Vector) Vector {
	if len(v.Extended)+len(o.Extended) > 0 {
		return v.combine(o, add)
	}
	return Vector{MilliCPU: v.MilliCPU + o.MilliCPU, Memory: v.Memory + o.Memory, EphemeralStorage: v.EphemeralStorage + o.EphemeralStorage, Pods: v.Pods + o.Pods}
}

// Sub returns the difference; amounts may become negative.
func (v Vector) Sub(o Vector) Vector {
	if len(v.Extended)+len(o.Extended) > 0 {
		return v.combine(o, sub)
	}
	return Vector{MilliCPU: v.MilliCPU - o.MilliCPU, Memory: v.Memory - o.Memory, EphemeralStorage: v.EphemeralStorage - o.EphemeralStorage, Pods: v.Pods - o.Pods}
}

// Max returns the greater amount of each resource.
func (v Vector) Max(o Vector) Vector { return v.combine(o, larger) }

// Min returns the lesser amount of each resource; one that either lacks becomes 0.
func (v Vector) Min(o Vector) Vector { return v.combine(o, lesser) }

// Scale returns n times the vector.
func (v Vector) Scale(n int64) Vector {
	v.MilliCPU, v.Memory, v.EphemeralStorage, v.Pods = n*v.MilliCPU, n*v.Memory, n*v.EphemeralStorage, n*v.Pods
	if len(v.Extended) > 0 {
		v.Extended = zip(v.Extended, nil, func(a, _ int64) int64 { return n * a })
	}
	return v
}

func (v Vector) combine(o Vector, f func(a, b int64) int64) Vector {
	out := Vector{
		MilliCPU: f(v.MilliCPU, o.MilliCPU), Memory: f(v.Memory, o.Memory),
		EphemeralStorage: f(v.EphemeralStorage, o.EphemeralStorage), Pods: f(v.Pods, o.Pods),
	}
	if len(v.Extended)+len(o.Extended) > 0 {
		out.Extended = zip(v.Extended, o.Extended, f)
	}
	return out
}

// zip merges two sorted lists; an absent amount counts as 0, and results of 0 are left out.
func zip(a, b []Amount, f func(a, b int64) int64) []Amount {
	out := make([]Amount, 0, len(a)+len(b))
	keep := func(name corev1.ResourceName, value int64) {
		if value != 0 {
			out = append(out, Amount{Name: name, Value: value})
		}
	}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || (len(a) > 0 && a[0].Name < b[0].Name):
			keep(a[0].Name, f(a[0].Value, 0))
			a = a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			keep(b[0].Name, f(0, b[0].Value))
			b = b[1:]
		default:
			keep(a[0].Name, f(a[0].Value, b[0].Value))
			a, b = a[1:], b[1:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Fits reports whether the amounts, as far as they are positive, are within free.
func (v Vector) Fits(free Vector) bool {
	if exceeds(v.MilliCPU, free.MilliCPU) || exceeds(v.Memory, free.Memory) ||
		exceeds(v.EphemeralStorage, free.EphemeralStorage) || exceeds(v.Pods, free.Pods) {
		return false
	}
	for _, a := range v.Extended {
		if exceeds(a.Value, free.Get(a.Name)) {
			return false
		}
	}
	return true
}

// Within reports whether no amount is greater than the other's, negative ones included.
func (v Vector) Within(o Vector) bool {
	if v.MilliCPU > o.MilliCPU || v.Memory > o.Memory || v.EphemeralStorage > o.EphemeralStorage || v.Pods > o.Pods {
		return false
	}
	if len(v.Extended)+len(o.Extended) == 0 {
		return true
	}
	for _, a := range v.Extended {
		if a.Value > o.Get(a.Name) {
			return false
		}
	}
	for _, a := range o.Extended {
		if a.Value < v.Get(a.Name) {
			return false
		}
	}
	return true
}

func exceeds(want, have int64) bool { return want > 0 && want > have }

// Exceeds lists the resources of which v has more than free, core ones first.
func (v Vector) Exceeds(free Vector) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, name := range v.Names() {
		if exceeds(v.Get(name), free.Get(name)) {
			names = append(names, name)
		}
	}
	return names
}

// Times returns how many copies of v fit into free; a v of nothing fits math.MaxInt32 times.
func (v Vector) Times(free Vector) int64 {
	n := int64(1<<31 - 1)
	for _, pair := range [...][2]int64{
		{v.MilliCPU, free.MilliCPU}, {v.Memory, free.Memory}, {v.EphemeralStorage, free.EphemeralStorage}, {v.Pods, free.Pods},
	} {
		if pair[0] > 0 {
			n = min(n, max(pair[1], 0)/pair[0])
		}
	}
	for _, a := range v.Extended {
		if a.Value > 0 {
			n = min(n, max(free.Get(a.Name), 0)/a.Value)
		}
	}
	return n
}

// Share returns the greatest part of any resource of free that v takes, 0 when free has none of what v
// asks for.
func (v Vector) Share(free Vector) float64 {
	most := 0.0
	part := func(want, have int64) {
		if have > 0 {
			most = max(most, float64(want)/float64(have))
		}
	}
	part(v.MilliCPU, free.MilliCPU)
	part(v.Memory, free.Memory)
	part(v.EphemeralStorage, free.EphemeralStorage)
	part(v.Pods, free.Pods)
	for _, a := range v.Extended {
		part(a.Value, free.Get(a.Name))
	}
	return most
}

// NonNegative returns the vector with negative amounts raised to 0.
func (v Vector) NonNegative() Vector { return v.Max(Vector{}) }

// IsZero reports whether there is nothing of anything.
func (v Vector) IsZero() bool {
	return v.MilliCPU == 0 && v.Memory == 0 && v.EphemeralStorage == 0 && v.Pods == 0 && len(v.Extended) == 0
}

// Equal reports whether all amounts are the same.
func (v Vector) Equal(o Vector) bool {
	return v.MilliCPU == o.MilliCPU && v.Memory == o.Memory && v.EphemeralStorage == o.EphemeralStorage &&
		v.Pods == o.Pods && slices.Equal(v.Extended, o.Extended)
}

// Format renders one resource of the vector for people, for example "cpu 1.5" or "memory 2Gi".
func (v Vector) Format(name corev1.ResourceName) string {
	q, ok := v.ToList()[name]
	if !ok {
		return string(name) + " 0"
	}
	return fmt.Sprintf("%s %s", name, q.String())
}

// String lists every amount, for example "cpu 1, memory 2Gi, pods 3".
func (v Vector) String() string {
	names := v.Names()
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = v.Format(name)
	}
	return strings.Join(parts, ", ")
}
