package volume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/berth-dev/berth/provisioner/requirement"
)

// Listers show the objects that stand behind a pod's volumes. Errors count as not found.
type Listers struct {
	Claims  corelisters.PersistentVolumeClaimLister
	Volumes corelisters.PersistentVolumeLister
	Classes storagelisters.StorageClassLister
}

// Purpose says what the demands are wanted for.
type Purpose int

const (
	// Pending pods are to be bound by the scheduler, so every demand counts.
	Pending Purpose = iota
	// Moving pods leave a node that goes away. A volume on that node's own disk goes with it, so the host
	// name in such a volume's node affinity says nothing about where the successor runs.
	Moving
)

// bindCompleted is set on a claim once both it and its volume name each other.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// ClaimNames are the names of the claims behind the pod's volumes, in the order of the volumes, in the
// pod's namespace.
func ClaimNames(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		if name := claimName(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func claimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

// Demands returns what the pod's volumes demand of a node: alternatives, one of which must hold, or nil
// when they do not care. When the pod cannot run anywhere because of its volumes, fault says why.
func (l Listers) Demands(pod *corev1.Pod, purpose Purpose) (alternatives []requirement.Set, fault string) {
	all := []requirement.Set{{}}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := claimName(pod, v)
		if name == "" {
			continue
		}
		places, why := l.places(pod, v, name, purpose)
		if why != "" {
			return nil, fmt.Sprintf("PersistentVolumeClaim %q of volume %q %s", name, v.Name, why)
		}
		if len(places) == 0 {
			continue
		}
		if all = requirement.Product(all, places); len(all) == 0 {
			return nil, fmt.Sprintf("PersistentVolumeClaim %q of volume %q is at a place where the pod's other volumes cannot be", name, v.Name)
		}
	}
	if slices.ContainsFunc(all, func(s requirement.Set) bool { return len(s) == 0 }) {
		return nil, ""
	}
	return all, ""
}

// Portable returns the pod's volumes without the claims whose data is on a node's own disk: that data
// does not come along, and a filter that looks for it would refuse every other node.
func (l Listers) Portable(pod *corev1.Pod) []corev1.Volume {
	return slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool {
		name := claimName(pod, &v)
		if name == "" {
			return false
		}
		claim, err := l.Claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil || claim.Spec.VolumeName == "" {
			return false
		}
		pv, err := l.Volumes.Get(claim.Spec.VolumeName)
		return err == nil && IsOnNode(pv)
	})
}

// places returns where the volume behind the claim can be used, nil for everywhere.
func (l Listers) places(pod *corev1.Pod, v *corev1.Volume, name string, purpose Purpose) (places []requirement.Set, fault string) {
	claim, err := l.Claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	switch {
	case err != nil && v.Ephemeral != nil:
		return nil, "is not made yet"
	case err != nil:
		return nil, "does not exist"
	case v.Ephemeral != nil && ephemeral.VolumeIsForPod(pod, claim) != nil:
		return nil, "was not made for this pod; delete it or rename the volume"
	case claim.DeletionTimestamp != nil:
		return nil, "is being deleted"
	case claim.Status.Phase == corev1.ClaimLost:
		return nil, "has lost its volume"
	case claim.Spec.VolumeName == "":
		return l.unbound(claim)
	}
	if _, done := claim.Annotations[bindCompleted]; !done {
		return nil, fmt.Sprintf("is being bound to PersistentVolume %q", claim.Spec.VolumeName)
	}
	pv, err := l.Volumes.Get(claim.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, fmt.Sprintf("is bound to PersistentVolume %q, which does not exist", claim.Spec.VolumeName)
	case pv.DeletionTimestamp != nil:
		return nil, fmt.Sprintf("is bound to PersistentVolume %q, which is being deleted", claim.Spec.VolumeName)
	}
	if places = reachable(pv, purpose); len(places) == 0 {
		return nil, fmt.Sprintf("is bound to PersistentVolume %q, whose node affinity matches no node", pv.Name)
	}
	return places, ""
}

// unbound returns where the class may make a volume for the claim.
func (l Listers) unbound(claim *corev1.PersistentVolumeClaim) (places []requirement.Set, fault string) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, "is not bound and names no StorageClass (spec.storageClassName)"
	}
	class, err := l.Classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return nil, fmt.Sprintf("names StorageClass %q, which does not exist", *claim.Spec.StorageClassName)
	}
	if class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate {
		return nil, fmt.Sprintf("is not bound, and its StorageClass %q binds before there is a node; "+
			"wait for the volume or use volumeBindingMode WaitForFirstConsumer", class.Name)
	}
	for _, term := range class.AllowedTopologies {
		if len(term.MatchLabelExpressions) == 0 {
			continue // an empty term matches nothing
		}
		set := requirement.Set{}
		for _, e := range term.MatchLabelExpressions {
			set.Add(requirement.New(e.Key, corev1.NodeSelectorOpIn, e.Values...))
		}
		places = append(places, set)
	}
	if len(class.AllowedTopologies) > 0 && len(places) == 0 {
		return nil, fmt.Sprintf("is not bound, and the allowedTopologies of its StorageClass %q match no node", class.Name)
	}
	return places, ""
}

// reachable returns the nodes that can use the volume, by its node affinity and its zone labels.
func reachable(pv *corev1.PersistentVolume, purpose Purpose) []requirement.Set {
	places := []requirement.Set{labelled(pv)}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return places
	}
	var terms []requirement.Set
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if len(term.MatchExpressions) == 0 {
			continue // an empty term matches nothing
		}
		set := requirement.FromNodeSelector(term.MatchExpressions)
		if purpose == Moving && IsOnNode(pv) {
			delete(set, corev1.LabelHostname)
		}
		terms = append(terms, set)
	}
	return requirement.Product(places, terms)
}

// IsOnNode reports whether the volume's data is on a node's own disk.
func IsOnNode(pv *corev1.PersistentVolume) bool {
	return pv.Spec.Local != nil || pv.Spec.HostPath != nil
}

// labelled reads the zone and region labels that volumes of in-tree drivers have instead of node
// affinity. Several values are joined by "__".
func labelled(pv *corev1.PersistentVolume) requirement.Set {
	set := requirement.Set{}
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	} {
		if value := pv.Labels[key]; value != "" {
			set.Add(requirement.New(key, corev1.NodeSelectorOpIn, strings.Split(value, "__")...))
		}
	}
	return set
}
