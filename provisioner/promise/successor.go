package promise

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ForSuccessor reports whether the place is kept for the pod that will replace Entry.Pod: a bound pod
// needs no place itself.
func (e Entry) ForSuccessor() bool { return e.State == Promised && e.Pod.Spec.NodeName != "" }

// successorKind names the pods that can take each other's place: of one controller and template, and for
// StatefulSets of one name. It is "" for pods that nobody makes again.
func successorKind(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	if owner.Kind == "StatefulSet" {
		return string(owner.UID) + "/" + pod.Name
	}
	return string(owner.UID) + "/" + cmp.Or(pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], pod.Labels[appsv1.ControllerRevisionHashLabelKey])
}

// HasSuccessor reports whether somebody makes the pod again when it is gone.
func HasSuccessor(pod *corev1.Pod) bool { return successorKind(pod) != "" }

// Vacate notes that the pod is gone or going, so that its successor is due at the place kept for it.
func (t *Table) Vacate(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[uid]; ok && e.ForSuccessor() && !e.Vacated {
		t.drop(uid)
		e.Vacated = true
		t.put(e)
	}
}

// Inherit gives the pod a place that is kept for the successor of one like it, if there is any, until
// deadline: of those that are bought already rather than of others, and of pods that are gone rather than
// of running ones, as gone tells, which must not call the table. A pod that must be kept apart from the
// others, or near them, takes no place of a running one: it was chosen for when that one is gone, and a
// PodDisruptionBudget may keep that one until this pod runs. A pod with a place of its own inherits none.
func (t *Table) Inherit(pod *corev1.Pod, gone func(predecessor *corev1.Pod) bool, deadline, now time.Time) (Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.successors) == 0 || t.entries[pod.UID].State == Promised {
		return Entry{}, false
	}
	var left []Entry
	relative := placedRelatively(pod)
	for uid := range t.successors[successorKind(pod)] {
		if e := t.entries[uid]; !relative || gone(e.Pod) {
			left = append(left, e)
		}
	}
	if len(left) == 0 {
		return Entry{}, false
	}
	rank := func(e Entry) int {
		r := 0
		if !gone(e.Pod) {
			r += 2
		}
		if e.Node == "" {
			r++
		}
		return r
	}
	e := slices.MinFunc(left, func(a, b Entry) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Pod.UID, b.Pod.UID)) })
	t.drop(e.Pod.UID)
	e.Pod, e.Deadline, e.Since, e.Vacated = pod, deadline, now, false
	t.put(e)
	return e, true
}

// placedRelatively reports whether the places that the pod may have depend on where pods like it are.
func placedRelatively(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			return true
		}
	}
	a := pod.Spec.Affinity
	return a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0)
}

// Shorten ends the pod's promise at deadline, unless it ends sooner.
func (t *Table) Shorten(uid types.UID, deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[uid]
	if ok && e.State == Promised && (e.Deadline.IsZero() || e.Deadline.After(deadline)) {
		e.Deadline = deadline
		t.put(e)
	}
}
