package volume

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/resources"
)

// Unlimited is the room of a place that takes any number of a driver's volumes.
const Unlimited = 1 << 30

// attachPrefix names the volumes of a driver as an amount.
const attachPrefix = "attachable-volumes-csi-"

// inTree maps the drivers that were once built in to those that took over.
var inTree = map[string]string{"kubernetes.io/aws-ebs": "ebs.csi.aws.com"}

// Attachments counts the volumes that the pod attaches to its node, by driver.
func (l Listers) Attachments(pod *corev1.Pod) resources.Vector {
	var out resources.Vector
	seen := sets.New[string]()
	for _, name := range ClaimNames(pod) {
		if seen.Has(name) {
			continue
		}
		seen.Insert(name)
		if driver := l.driver(pod.Namespace, name); driver != "" {
			resource := corev1.ResourceName(attachPrefix + driver)
			out = out.With(resource, out.Get(resource)+1)
		}
	}
	return out
}

// driver returns the name of the driver that attaches the claim's volume, "" for none.
func (l Listers) driver(namespace, name string) string {
	claim, err := l.Claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return ""
	}
	if claim.Spec.VolumeName != "" {
		pv, err := l.Volumes.Get(claim.Spec.VolumeName)
		switch {
		case err != nil:
			return ""
		case pv.Spec.CSI != nil:
			return pv.Spec.CSI.Driver
		case pv.Spec.AWSElasticBlockStore != nil:
			return inTree["kubernetes.io/aws-ebs"]
		}
		return ""
	}
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	class, err := l.Classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return ""
	}
	if driver, ok := inTree[class.Provisioner]; ok {
		return driver
	}
	return class.Provisioner
}

// Room returns how many more volumes the nodes of the snapshot take, by key, and new ones, by instance
// type, for the drivers in names. A type has the limits of a living node of it. Places about which nothing
// is known have no entry.
func (l Listers) Room(snapshot *cluster.Snapshot, csiNodes []*storagev1.CSINode, names []corev1.ResourceName) (nodes, types map[string]resources.Vector) {
	if len(names) == 0 {
		return nil, nil
	}
	byNode := make(map[string]*storagev1.CSINode, len(csiNodes))
	for _, csi := range csiNodes {
		byNode[csi.Name] = csi
	}
	examples := map[string]*storagev1.CSINode{}
	for _, n := range snapshot.Nodes {
		csi, instanceType := byNode[n.Name], n.Labels[corev1.LabelInstanceTypeStable]
		if csi == nil || instanceType == "" {
			continue
		}
		// A node that is starting may not have all of its drivers yet.
		if best := examples[instanceType]; best == nil || len(csi.Spec.Drivers) > len(best.Spec.Drivers) {
			examples[instanceType] = csi
		}
	}
	nodes, types = map[string]resources.Vector{}, make(map[string]resources.Vector, len(examples))
	for instanceType, csi := range examples {
		types[instanceType] = limits(csi, names)
	}
	for _, n := range snapshot.Nodes {
		csi := byNode[n.Name]
		if csi == nil {
			csi = examples[n.Labels[corev1.LabelInstanceTypeStable]]
		}
		if csi == nil {
			continue
		}
		nodes[n.Key()] = l.left(limits(csi, names), n)
	}
	return nodes, types
}

// left takes from the limits what the node's pods attach.
func (l Listers) left(room resources.Vector, n *cluster.Node) resources.Vector {
	var used resources.Vector
	for _, pods := range [][]*corev1.Pod{n.Pods, n.Promised} {
		for _, pod := range pods {
			used = used.Add(l.Attachments(pod))
		}
	}
	var out resources.Vector
	for _, name := range room.Names() {
		out = out.With(name, max(0, room.Get(name)-used.Get(name)))
	}
	return out
}

func limits(csi *storagev1.CSINode, names []corev1.ResourceName) resources.Vector {
	var out resources.Vector
	for _, name := range names {
		out = out.With(name, Unlimited)
	}
	for _, driver := range csi.Spec.Drivers {
		name := corev1.ResourceName(attachPrefix + driver.Name)
		if driver.Allocatable != nil && driver.Allocatable.Count != nil && out.Get(name) > 0 {
			out = out.With(name, int64(*driver.Allocatable.Count))
		}
	}
	return out
}
