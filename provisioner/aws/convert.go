package aws

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// convertTagged converts an instance whose class and claim are known from its tags alone.
func (p *Provider) convertTagged(ctx context.Context, i *instance.Instance) *cloud.Instance {
	var list []*catalog.InstanceType
	nc, err := p.classNamed(i.Tags[ec2v1.LabelNodeClass])
	if err == nil {
		list, err = p.types.ForClass(nc)
	}
	if err == nil && p.cfg.Adjust != nil {
		list, err = p.cfg.Adjust(i.Tags[ec2v1.TagNodePool], list)
	}
	if err != nil {
		logger(ctx).V(4).Info("Type of an instance is unknown", "instance", i.ID, "nodeClass", klog.KRef("", i.Tags[ec2v1.LabelNodeClass]), "err", err)
	}
	return p.convert(i, nc, list, i.EFAInterfaces > 0)
}

// convert describes an instance for the core. Without class or type, labels and amounts are fewer.
func (p *Provider) convert(i *instance.Instance, nc *ec2v1.EC2NodeClass, list []*catalog.InstanceType, efa bool) *cloud.Instance {
	out := &cloud.Instance{
		ProviderID: i.ProviderID(), ImageID: i.ImageID, NodeName: i.NodeName, LaunchTime: i.LaunchTime, Terminating: i.IsEnding(),
		ClaimName: i.Tags[ec2v1.TagNodeClaim], LaunchGroup: i.Tags[instance.TagLaunchGroup],
		Labels: map[string]string{}, Annotations: map[string]string{},
	}
	if it := typeNamed(list, i.Type); it != nil {
		out.Labels = it.Requirements.Labels()
		whole := it.Capacity
		if !efa && (nc == nil || nc.Spec.NetworkInterfaces == nil) {
			whole = whole.With(ec2v1.ResourceEFA, 0) // the machine could have them, but was launched without
		}
		described := *it
		described.Capacity = whole
		out.Capacity, out.Allocatable = whole.ToList(), described.Allocatable().ToList()
	}
	set := func(key, value string) {
		if value != "" {
			out.Labels[key] = value
		}
	}
	set(corev1.LabelInstanceTypeStable, i.Type)
	set(corev1.LabelTopologyZone, i.Zone)
	set(ec2v1.LabelTopologyZoneID, i.ZoneID)
	set(karpv1.LabelCapacityType, i.CapacityType)
	set(ec2v1.LabelInstanceTenancy, i.Tenancy)
	set(karpv1.LabelNodePool, i.Tags[ec2v1.TagNodePool])
	if nc != nil {
		for _, key := range []string{ec2v1.AnnotationNodeClassHash, ec2v1.AnnotationNodeClassHashVersion} {
			if value := nc.Annotations[key]; value != "" {
				out.Annotations[key] = value
			}
		}
		if nc.Spec.Role != "" && nc.Status.InstanceProfile != "" {
			out.Annotations[ec2v1.AnnotationInstanceProfileName] = nc.Status.InstanceProfile
		}
	}
	return out
}

// typeNamed finds a type in a sorted list, nil when it is not there.
func typeNamed(list []*catalog.InstanceType, name string) *catalog.InstanceType {
	i, ok := slices.BinarySearchFunc(list, name, func(it *catalog.InstanceType, name string) int { return strings.Compare(it.Name, name) })
	if !ok {
		return nil
	}
	return list[i]
}
