package aws

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	corev1 "k8s.io/api/core/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// IsDrifted implements cloud.Provider. The first difference counts: the class's static fields, the
// image, the security groups, the subnet.
func (p *Provider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (_ cloud.DriftReason, err error) {
	defer p.metrics.observe("IsDrifted", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	nc, err := p.class(claim.Spec.NodeClassRef)
	if cloud.IsClassNotReady(err) {
		logger(ctx).V(4).Info("Class of a claim is gone, it cannot have drifted from it", "nodeClaim", klog.KObj(claim), "err", err)
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if isHashDrifted(claim, nc) {
		return ec2v1.DriftReasonNodeClass, nil
	}
	switch {
	case len(nc.Status.AMIs) == 0:
		return "", fmt.Errorf("class %s has no images in its status", nc.Name)
	case len(nc.Status.SecurityGroups) == 0:
		return "", fmt.Errorf("class %s has no security groups in its status", nc.Name)
	case len(nc.Status.Subnets) == 0:
		return "", fmt.Errorf("class %s has no subnets in its status", nc.Name)
	case claim.Status.ImageID == "":
		return "", fmt.Errorf("NodeClaim %s has no image in its status", claim.Name)
	}
	list, err := p.types.ForClass(nc)
	if err != nil {
		return "", err
	}
	it := typeNamed(list, claim.Labels[corev1.LabelInstanceTypeStable])
	if it == nil {
		return "", fmt.Errorf("NodeClaim %s is of instance type %q, which EC2 does not describe", claim.Name, claim.Labels[corev1.LabelInstanceTypeStable])
	}
	if ami, ok := image.NewMatcher(nc.Status.AMIs).For(it); !ok || ami.ID != claim.Status.ImageID {
		return ec2v1.DriftReasonAMI, nil
	}
	i, err := p.known(ctx, instance.IDOf(claim.Status.ProviderID))
	if err != nil {
		return "", err
	}
	return networkDrift(i, nc), nil
}

// isHashDrifted compares hashes of one version; claims of other versions are stamped anew elsewhere.
func isHashDrifted(claim *karpv1.NodeClaim, nc *ec2v1.EC2NodeClass) bool {
	for _, key := range []string{ec2v1.AnnotationNodeClassHash, ec2v1.AnnotationNodeClassHashVersion} {
		if claim.Annotations[key] == "" || nc.Annotations[key] == "" {
			return false
		}
	}
	return claim.Annotations[ec2v1.AnnotationNodeClassHashVersion] == nc.Annotations[ec2v1.AnnotationNodeClassHashVersion] &&
		claim.Annotations[ec2v1.AnnotationNodeClassHash] != nc.Annotations[ec2v1.AnnotationNodeClassHash]
}

func networkDrift(i *instance.Instance, nc *ec2v1.EC2NodeClass) cloud.DriftReason {
	var want []string
	for _, g := range nc.Status.SecurityGroups {
		want = append(want, g.ID)
	}
	have := slices.Compact(slices.Sorted(slices.Values(i.SecurityGroupIDs)))
	slices.Sort(want)
	if len(have) > 0 && !slices.Equal(have, want) {
		return ec2v1.DriftReasonSecurityGroup
	}
	if !slices.ContainsFunc(nc.Status.Subnets, func(s ec2v1.Subnet) bool { return s.ID == i.SubnetID }) {
		return ec2v1.DriftReasonSubnet
	}
	return ""
}
