package nodeclass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/network"
)

// expiringWithin is how long before its end a capacity block counts as expiring.
const expiringWithin = 40 * time.Minute

func (c *Controller) resolveReservations(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	if len(nc.Spec.CapacityReservationSelectorTerms) == 0 {
		nc.Status.CapacityReservations = nil
		c.setTrue(nc, ec2v1.ConditionCapacityReservationsReady)
		return 0, nil
	}
	found, err := c.reservations.get(nc, func() ([]ec2v1.CapacityReservation, error) {
		return c.describeReservations(ctx, nc.Spec.CapacityReservationSelectorTerms)
	})
	if err != nil {
		return 0, err
	}
	now, again := c.deps.Clock.Now(), time.Minute
	nc.Status.CapacityReservations = nil
	for _, r := range found {
		r.State = ec2v1.CapacityReservationStateActive
		if r.EndTime != nil {
			left := r.EndTime.Sub(now)
			if left <= 0 {
				continue
			}
			if r.ReservationType == ec2v1.CapacityReservationTypeCapacityBlock {
				if left <= expiringWithin {
					r.State = ec2v1.CapacityReservationStateExpiring
				} else {
					again = min(again, left-expiringWithin)
				}
			}
			again = min(again, left)
		}
		nc.Status.CapacityReservations = append(nc.Status.CapacityReservations, r)
	}
	c.setTrue(nc, ec2v1.ConditionCapacityReservationsReady)
	return again, nil
}

func (c *Controller) describeReservations(ctx context.Context, terms []ec2v1.CapacityReservationSelectorTerm) ([]ec2v1.CapacityReservation, error) {
	found := map[string]ec2v1.CapacityReservation{}
	for _, term := range terms {
		in := &ec2.DescribeCapacityReservationsInput{Filters: []ec2types.Filter{network.Filter("state", "active")}}
		if term.ID != "" {
			in.CapacityReservationIds = []string{term.ID} // EC2 refuses a page size beside ids
		} else {
			in.MaxResults = aws.Int32(1000)
			in.Filters = append(in.Filters, network.TagFilters(term.Tags)...)
			if term.OwnerID != "" {
				in.Filters = append(in.Filters, network.Filter("owner-id", term.OwnerID))
			}
			if term.InstanceMatchCriteria != "" {
				in.Filters = append(in.Filters, network.Filter("instance-match-criteria", term.InstanceMatchCriteria))
			}
		}
		for pages := ec2.NewDescribeCapacityReservationsPaginator(c.deps.EC2, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if apierror.IsNotFound(err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("describe capacity reservations: %w", err)
			}
			for i := range page.CapacityReservations {
				if r, ok := reservation(ctx, &page.CapacityReservations[i]); ok {
					found[r.ID] = r
				}
			}
		}
	}
	out := make([]ec2v1.CapacityReservation, 0, len(found))
	for _, r := range found {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b ec2v1.CapacityReservation) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func reservation(ctx context.Context, r *ec2types.CapacityReservation) (ec2v1.CapacityReservation, bool) {
	out := ec2v1.CapacityReservation{
		ID: aws.ToString(r.CapacityReservationId), AvailabilityZone: aws.ToString(r.AvailabilityZone), InstanceType: aws.ToString(r.InstanceType),
		OwnerID: aws.ToString(r.OwnerId), InstanceMatchCriteria: string(r.InstanceMatchCriteria), Interruptible: aws.ToBool(r.Interruptible),
		ReservationType: ec2v1.CapacityReservationType(cmp.Or(string(r.ReservationType), string(ec2v1.CapacityReservationTypeDefault))),
	}
	if r.EndDate != nil {
		end := metav1.NewTime(*r.EndDate)
		out.EndTime = &end
	}
	criteria := out.InstanceMatchCriteria == ec2v1.InstanceMatchCriteriaOpen || out.InstanceMatchCriteria == ec2v1.InstanceMatchCriteriaTargeted
	kind := out.ReservationType == ec2v1.CapacityReservationTypeDefault || out.ReservationType == ec2v1.CapacityReservationTypeCapacityBlock
	if !criteria || !kind {
		klog.FromContext(ctx).Error(nil, "Capacity reservation is of an unknown kind, skipping", "capacityReservation", out.ID,
			"instanceMatchCriteria", out.InstanceMatchCriteria, "reservationType", out.ReservationType)
	}
	return out, criteria && kind
}

// PlacementGroups describes placement groups.
type PlacementGroups interface {
	DescribePlacementGroups(context.Context, *ec2.DescribePlacementGroupsInput, ...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error)
}

// PlacementGroup is a resolved placement group.
type PlacementGroup struct{ ID string }

// resolvePlacement finds the class's placement group. Launching into one is not supported yet, so a
// class that asks for one is not ready: machines outside the group would be wrong.
func (c *Controller) resolvePlacement(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	selector := nc.Spec.PlacementGroupSelector
	if selector == nil {
		c.setTrue(nc, ec2v1.ConditionPlacementGroupReady)
		return 0, nil
	}
	group, err := c.placement.get(nc, func() (*PlacementGroup, error) { return c.describePlacement(ctx, selector) })
	switch {
	case err != nil:
		c.setFalse(nc, ec2v1.ConditionPlacementGroupReady, ec2v1.ReasonPlacementGroupResolutionFailed, "Failed to resolve placement group")
		return 0, err
	case group == nil:
		c.setFalse(nc, ec2v1.ConditionPlacementGroupReady, ec2v1.ReasonPlacementGroupNotFound, fmt.Sprintf("Placement group %q not found", cmp.Or(selector.Name, selector.ID)))
	default:
		c.setFalse(nc, ec2v1.ConditionPlacementGroupReady, ec2v1.ReasonPlacementGroupResolutionFailed,
			fmt.Sprintf("Placement group %s exists, but this version cannot launch into placement groups; remove spec.placementGroupSelector", group.ID))
	}
	return time.Minute, nil
}

func (c *Controller) describePlacement(ctx context.Context, selector *ec2v1.PlacementGroupSelector) (*PlacementGroup, error) {
	in := &ec2.DescribePlacementGroupsInput{Filters: []ec2types.Filter{network.Filter("state", "available")}}
	if selector.Name != "" {
		in.GroupNames = []string{selector.Name}
	} else {
		in.GroupIds = []string{selector.ID}
	}
	out, err := c.deps.EC2.DescribePlacementGroups(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("describe placement groups: %w", err)
	}
	if len(out.PlacementGroups) == 0 {
		return nil, nil
	}
	return &PlacementGroup{ID: aws.ToString(out.PlacementGroups[0].GroupId)}, nil
}
