package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
)

// maxPods bounds what one workload may add: more is a typo, and would fill the memory first.
const maxPods = 1_000_000

// complete defaults the objects and adds the pods that the workloads still lack.
func (s *Set) complete() error {
	for _, node := range s.Nodes {
		completeNode(node)
	}
	for _, pod := range s.Pods {
		namespaced(pod)
		s.completePod(pod)
	}
	for _, set := range s.Daemons {
		identify(set, "DaemonSet")
	}
	s.addNamespaces()
	have := s.podsByOwner()
	for _, d := range s.deployments {
		identify(d, "Deployment")
		owner := ownerOf(d, "apps/v1", "Deployment")
		if err := s.replicas(owner, d.Namespace, d.Spec.Template, number(d.Spec.Replicas, 1), have[key("Deployment", d.Namespace, d.Name)]); err != nil {
			return err
		}
	}
	for _, r := range s.replicaSets {
		identify(r, "ReplicaSet")
		s.Others = append(s.Others, r)
		if controller := metav1.GetControllerOf(r); controller != nil && s.hasDeployment(r.Namespace, controller) {
			continue // its Deployment counts the pods
		}
		err := s.replicas(ownerOf(r, "apps/v1", "ReplicaSet"), r.Namespace, r.Spec.Template, number(r.Spec.Replicas, 1), have[key("ReplicaSet", r.Namespace, r.Name)])
		if err != nil {
			return err
		}
	}
	for _, c := range s.controllers {
		identify(c, "ReplicationController")
		namespaced(c)
		s.Others = append(s.Others, c)
		if c.Spec.Template == nil {
			continue
		}
		err := s.replicas(ownerOf(c, "v1", "ReplicationController"), c.Namespace, *c.Spec.Template, number(c.Spec.Replicas, 1), have[key("ReplicationController", c.Namespace, c.Name)])
		if err != nil {
			return err
		}
	}
	for _, j := range s.jobs {
		identify(j, "Job")
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			continue
		}
		parallel := number(j.Spec.Parallelism, 1)
		if j.Spec.Completions != nil {
			parallel = min(parallel, number(j.Spec.Completions, 1)-int(j.Status.Succeeded))
		}
		if err := s.replicas(ownerOf(j, "batch/v1", "Job"), j.Namespace, j.Spec.Template, parallel, have[key("Job", j.Namespace, j.Name)]); err != nil {
			return err
		}
	}
	if err := s.addStatefulSets(have); err != nil {
		return err
	}
	for _, o := range s.Others {
		if object, err := meta.Accessor(o); err == nil {
			identify(object, fmt.Sprintf("%T", o))
		}
	}
	return nil
}

func tooMany(owner metav1.OwnerReference, namespace string, want int) error {
	if want <= maxPods {
		return nil
	}
	return fmt.Errorf("%s %s/%s: wants %d pods; a simulation takes at most %d of one workload", owner.Kind, namespace, owner.Name, want, maxPods)
}

// addStatefulSets adds the pods that are missing by name, with their volume claims.
func (s *Set) addStatefulSets(have map[string][]string) error {
	for _, set := range s.statefulSets {
		identify(set, "StatefulSet")
		s.Others = append(s.Others, set)
		first := 0
		if set.Spec.Ordinals != nil {
			first = int(set.Spec.Ordinals.Start)
		}
		owner, want := ownerOf(set, "apps/v1", "StatefulSet"), number(set.Spec.Replicas, 1)
		if err := tooMany(owner, set.Namespace, want); err != nil {
			return err
		}
		for i := range want {
			name := fmt.Sprintf("%s-%d", set.Name, first+i)
			if slices.Contains(have[key("StatefulSet", set.Namespace, set.Name)], name) {
				continue
			}
			pod := s.newPod(owner, set.Namespace, name, set.Spec.Template)
			pod.Labels["statefulset.kubernetes.io/pod-name"] = name
			for _, template := range set.Spec.VolumeClaimTemplates {
				claim := template.DeepCopy()
				claim.Namespace, claim.Name = set.Namespace, template.Name+"-"+name
				identify(claim, "PersistentVolumeClaim")
				if !s.hasClaim(claim.Namespace, claim.Name) {
					s.Others = append(s.Others, claim)
				}
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
				}})
			}
			s.Pods = append(s.Pods, pod)
		}
	}
	return nil
}

// replicas adds pods until the owner has as many as it wants.
func (s *Set) replicas(owner metav1.OwnerReference, namespace string, template corev1.PodTemplateSpec, want int, have []string) error {
	if err := tooMany(owner, namespace, want); err != nil {
		return err
	}
	missing := want - len(have)
	for i := 0; missing > 0; i++ {
		if name := fmt.Sprintf("%s-%d", owner.Name, i); !slices.Contains(have, name) {
			s.Pods = append(s.Pods, s.newPod(owner, namespace, name, template))
			missing--
		}
	}
	return nil
}

func (s *Set) newPod(owner metav1.OwnerReference, namespace, name string, template corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.Name, pod.UID = namespace, name, ""
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	s.completePod(pod)
	return pod
}

func (s *Set) completePod(pod *corev1.Pod) {
	identify(pod, "Pod")
	corev1defaults.SetObjectDefaults_Pod(pod)
	if pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodPending
		if pod.Spec.NodeName != "" {
			pod.Status.Phase = corev1.PodRunning
		}
	}
	if pod.Spec.Priority == nil {
		value, policy := s.priorityOf(pod)
		pod.Spec.Priority = &value
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = policy
		}
	}
}

// priorityOf does what admission does: the named class, else the global default.
func (s *Set) priorityOf(pod *corev1.Pod) (int32, *corev1.PreemptionPolicy) {
	name := pod.Spec.PriorityClassName
	switch name {
	case scheduling.SystemNodeCritical:
		return scheduling.SystemCriticalPriority + 1000, nil
	case scheduling.SystemClusterCritical:
		return scheduling.SystemCriticalPriority, nil
	}
	for _, class := range s.priorities {
		if name == class.Name || name == "" && class.GlobalDefault {
			return class.Value, class.PreemptionPolicy
		}
	}
	if name != "" {
		s.note(fmt.Sprintf("PriorityClass %s is named by pods and not in the files; its pods count as priority 0", name))
	}
	return 0, nil
}

func (s *Set) note(text string) {
	if !slices.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

// completeNode fills what a hand-written Node leaves out and a kubelet would report.
func completeNode(node *corev1.Node) {
	identify(node, "Node")
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Labels[corev1.LabelHostname] == "" {
		node.Labels[corev1.LabelHostname] = node.Name
	}
	if len(node.Status.Conditions) == 0 {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	if len(node.Status.Allocatable) == 0 {
		node.Status.Allocatable = node.Status.Capacity
	}
	if len(node.Status.Capacity) == 0 {
		node.Status.Capacity = node.Status.Allocatable
	}
}

// addNamespaces adds those that pods are in and the files do not have.
func (s *Set) addNamespaces() {
	have := map[string]bool{}
	for _, o := range s.Others {
		if ns, ok := o.(*corev1.Namespace); ok {
			identify(ns, "Namespace")
			if ns.Labels == nil {
				ns.Labels = map[string]string{}
			}
			ns.Labels[corev1.LabelMetadataName] = ns.Name
			have[ns.Name] = true
		}
	}
	var missing []string
	for _, pod := range s.Pods {
		missing = append(missing, pod.Namespace)
	}
	for _, d := range s.deployments {
		missing = append(missing, d.Namespace)
	}
	for _, name := range missing {
		if !have[name] {
			have[name] = true
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
			identify(ns, "Namespace")
			s.Others = append(s.Others, ns)
		}
	}
}

// podsByOwner names the unfinished pods of the files by the workload that counts them.
func (s *Set) podsByOwner() map[string][]string {
	deploymentOf := map[string]string{} // ReplicaSet to Deployment
	for _, r := range s.replicaSets {
		if c := metav1.GetControllerOf(r); c != nil && c.Kind == "Deployment" {
			deploymentOf[r.Namespace+"/"+r.Name] = c.Name
		}
	}
	out := map[string][]string{}
	for _, pod := range s.Pods {
		c := metav1.GetControllerOf(pod)
		if c == nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		out[key(c.Kind, pod.Namespace, c.Name)] = append(out[key(c.Kind, pod.Namespace, c.Name)], pod.Name)
		if c.Kind != "ReplicaSet" {
			continue
		}
		deployment, ok := deploymentOf[pod.Namespace+"/"+c.Name]
		if cut := strings.LastIndexByte(c.Name, '-'); !ok && cut > 0 {
			deployment = c.Name[:cut] // a ReplicaSet of a Deployment ends in a hash
		}
		out[key("Deployment", pod.Namespace, deployment)] = append(out[key("Deployment", pod.Namespace, deployment)], pod.Name)
	}
	return out
}

func (s *Set) hasDeployment(namespace string, owner *metav1.OwnerReference) bool {
	for _, d := range s.deployments {
		if owner.Kind == "Deployment" && d.Namespace == namespace && d.Name == owner.Name {
			return true
		}
	}
	return false
}

func (s *Set) hasClaim(namespace, name string) bool {
	return slices.ContainsFunc(s.Others, func(o runtime.Object) bool {
		claim, ok := o.(*corev1.PersistentVolumeClaim)
		return ok && claim.Namespace == namespace && claim.Name == name
	})
}

// epoch is the creation time of objects that name none: the same files give the same plan.
var epoch = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// identify gives an object the UID and the creation time that the API server would.
func identify(o metav1.Object, kind string) {
	if o.GetUID() == "" {
		o.SetUID(types.UID(strings.ToLower(kind) + "/" + o.GetNamespace() + "/" + o.GetName()))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(epoch)
	}
}

func ownerOf(o metav1.Object, apiVersion, kind string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}
}

func key(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

func number(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(*n)
}
