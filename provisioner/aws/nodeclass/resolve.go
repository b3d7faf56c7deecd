package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/condition"
)

// dependents are what Ready depends on.
var dependents = []string{
	ec2v1.ConditionAMIsReady, ec2v1.ConditionSubnetsReady, ec2v1.ConditionSecurityGroupsReady, ec2v1.ConditionInstanceProfileReady,
	ec2v1.ConditionCapacityReservationsReady, ec2v1.ConditionPlacementGroupReady, ec2v1.ConditionValidationSucceeded,
}

// step brings a part of the status up to date. again is when it wants to look next. An error says that
// AWS could not be asked: the status stays as it was.
type step func(ctx context.Context, nc *ec2v1.EC2NodeClass) (again time.Duration, err error)

// resolve runs every step, whatever becomes of the others, and sums up.
func (c *Controller) resolve(ctx context.Context, nc *ec2v1.EC2NodeClass) (again time.Duration, err error) {
	condition.Init(&nc.Status.Conditions, ec2v1.ConditionReady, dependents, nc.CreationTimestamp.Time)
	var errs []error
	for _, s := range []step{c.resolveSubnets, c.resolveGroups, c.resolveImages, c.resolveProfile, c.resolveReservations, c.resolvePlacement, c.validate} {
		wait, err := s(ctx, nc)
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
		errs = append(errs, err)
	}
	condition.Roll(&nc.Status.Conditions, ec2v1.ConditionReady, dependents, nc.Generation, c.deps.Clock.Now())
	return again, errors.Join(errs...)
}

func (c *Controller) set(nc *ec2v1.EC2NodeClass, kind string, status metav1.ConditionStatus, reason, message string) {
	condition.Set(&nc.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: nc.Generation}, c.deps.Clock.Now())
}

func (c *Controller) setTrue(nc *ec2v1.EC2NodeClass, kind string) {
	c.set(nc, kind, metav1.ConditionTrue, "", "")
}

func (c *Controller) setFalse(nc *ec2v1.EC2NodeClass, kind, reason, message string) {
	c.set(nc, kind, metav1.ConditionFalse, reason, message)
}

func (c *Controller) resolveSubnets(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	subnets, err := c.subnets.get(nc, func() ([]ec2v1.Subnet, error) { return c.deps.Subnets.Resolve(ctx, nc.Spec.SubnetSelectorTerms) })
	if err != nil {
		return 0, err
	}
	nc.Status.Subnets = slices.Clone(subnets)
	if len(subnets) == 0 {
		c.setFalse(nc, ec2v1.ConditionSubnetsReady, ec2v1.ReasonSubnetsNotFound, "SubnetSelector did not match any Subnets")
	} else {
		c.setTrue(nc, ec2v1.ConditionSubnetsReady)
	}
	return c.opts.SubnetInterval, nil
}

func (c *Controller) resolveGroups(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	groups, err := c.groups.get(nc, func() ([]ec2v1.SecurityGroup, error) {
		return network.ResolveGroups(ctx, c.deps.EC2, nc.Spec.SecurityGroupSelectorTerms)
	})
	if err != nil {
		return 0, err
	}
	nc.Status.SecurityGroups = slices.Clone(groups)
	if len(groups) == 0 {
		c.setFalse(nc, ec2v1.ConditionSecurityGroupsReady, ec2v1.ReasonSecurityGroupsNotFound, "SecurityGroupSelector did not match any SecurityGroups")
		return time.Minute, nil
	}
	c.setTrue(nc, ec2v1.ConditionSecurityGroupsReady)
	return 5 * time.Minute, nil
}

func (c *Controller) resolveImages(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	if alias, ok := class.AliasOf(nc); ok {
		if why := image.Unsupported(alias, c.deps.Images.Kubernetes()); why != "" {
			nc.Status.AMIs = nil
			c.setFalse(nc, ec2v1.ConditionAMIsReady, ec2v1.ReasonUnsupportedAlias, why)
			return 0, nil
		}
	}
	amis, err := c.images.get(nc, func() ([]ec2v1.AMI, error) { return c.deps.Images.Resolve(ctx, nc) })
	if err != nil {
		return 0, fmt.Errorf("resolve images: %w", err)
	}
	nc.Status.AMIs = slices.Clone(amis)
	if len(amis) == 0 {
		c.setFalse(nc, ec2v1.ConditionAMIsReady, ec2v1.ReasonAMINotFound, "AMISelector did not match any AMIs")
		return time.Minute, nil
	}
	c.setTrue(nc, ec2v1.ConditionAMIsReady)
	return 5 * time.Minute, nil
}

func (c *Controller) resolveProfile(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	if nc.Spec.InstanceProfile != nil {
		nc.Status.InstanceProfile = *nc.Spec.InstanceProfile
		c.setTrue(nc, ec2v1.ConditionInstanceProfileReady)
		return 0, nil
	}
	name, err := c.deps.Profiles.Ensure(ctx, nc, class.Tags(nc, c.opts.Cluster))
	if err != nil {
		return 0, fmt.Errorf("ensure instance profile: %w", err)
	}
	nc.Status.InstanceProfile = name
	c.setTrue(nc, ec2v1.ConditionInstanceProfileReady)
	return 0, nil
}
