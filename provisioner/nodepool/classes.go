package nodepool

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	ec2listers "github.com/berth-dev/berth/provisioner/generated/listers/ec2/v1"
)

// classKind is the one kind of class that there is in the group that this provider serves.
const classKind = "EC2NodeClass"

// Classes finds the classes that pools refer to.
type Classes interface {
	// Get returns the class as it is known now; a zero Class when there is none.
	Get(ref *karpv1.NodeClassReference) (Class, error)
}

// Class is what a pool needs to know of its class.
type Class struct {
	Found, Deleting bool
	Generation      int64
	// Ready is the class's Ready condition, nil while it has none.
	Ready *metav1.Condition
	// Zones and ZoneIDs are those of its subnets, sorted; empty while they are not known.
	Zones, ZoneIDs []string
}

// ec2Classes reads EC2NodeClasses from the cache.
type ec2Classes struct {
	lister ec2listers.EC2NodeClassLister
}

func (c ec2Classes) Get(ref *karpv1.NodeClassReference) (Class, error) {
	if ref.Group != ec2v1.Group || ref.Kind != classKind {
		return Class{}, nil
	}
	class, err := c.lister.Get(ref.Name)
	if apierrors.IsNotFound(err) {
		return Class{}, nil
	}
	if err != nil {
		return Class{}, err
	}
	out := Class{
		Found: true, Deleting: class.DeletionTimestamp != nil, Generation: class.Generation,
		Ready: meta.FindStatusCondition(class.Status.Conditions, ec2v1.ConditionReady),
	}
	for _, subnet := range class.Status.Subnets {
		out.Zones, out.ZoneIDs = append(out.Zones, subnet.Zone), append(out.ZoneIDs, subnet.ZoneID)
	}
	out.Zones, out.ZoneIDs = distinct(out.Zones), distinct(out.ZoneIDs)
	return out, nil
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}

// readiness turns the state of the class into the pool's NodeClassReady condition.
func readiness(ref *karpv1.NodeClassReference, class Class) metav1.Condition {
	c := metav1.Condition{Type: karpv1.ConditionNodeClassReady, Status: metav1.ConditionFalse}
	switch {
	case !class.Found:
		c.Reason, c.Message = karpv1.ReasonNodeClassNotFound, "There is no "+ref.Kind+" "+ref.Name+" in "+ref.Group
	case class.Deleting:
		c.Reason, c.Message = karpv1.ReasonNodeClassTerminating, ref.Kind+" "+ref.Name+" is being deleted"
	case class.Ready == nil || class.Ready.Status == metav1.ConditionUnknown:
		c.Reason, c.Message = karpv1.ReasonNodeClassReadinessUnknown, ref.Kind+" "+ref.Name+" does not say yet whether it is ready"
	case class.Ready.Status == metav1.ConditionTrue:
		c.Status = metav1.ConditionTrue
	default:
		c.Reason, c.Message = class.Ready.Reason, class.Ready.Message
	}
	return c
}
