package nodeclass

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/fleet"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	"github.com/berth-dev/berth/provisioner/requirement"
)

const (
	validateAgain = 10 * time.Minute
	keepVerdict   = 30 * time.Minute
	retrySoon     = 5 * time.Second
)

// Reasons of ValidationSucceeded beyond those of the API package.
const (
	reasonInvalidBlockDevices  = "InvalidBlockDeviceMappings"
	reasonClusterCIDR          = "ClusterCIDRResolutionFailed"
	reasonUserDataSize         = "UserDataSizeLimitExceeded"
	reasonUserDataInvalid      = "UserDataInvalid"
	reasonProfileNotFound      = "InstanceProfileNotFound"
	messageDependenciesPending = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution"
)

// verdict is the outcome of a validation: a True condition when reason is empty.
type verdict struct{ reason, message string }

// validations remembers verdicts, because finding one costs calls that write.
type validations struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	kept  map[string]judged // by class name
}

type judged struct {
	key uint64
	verdict
	until time.Time
}

func (v *validations) init(clock clock.PassiveClock) { v.clock, v.kept = clock, map[string]judged{} }

func (v *validations) get(name string, key uint64) (verdict, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	j, ok := v.kept[name]
	if !ok || j.key != key || !j.until.After(v.clock.Now()) {
		return verdict{}, false
	}
	return j.verdict, true
}

func (v *validations) put(name string, key uint64, found verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept[name] = judged{key, found, v.clock.Now().Add(keepVerdict)}
}

func (v *validations) drop(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.kept, name)
}

// validate decides whether machines could be launched from the class. It comes last, as it needs what
// the other steps resolved; the first fault ends it.
func (c *Controller) validate(ctx context.Context, nc *ec2v1.EC2NodeClass) (time.Duration, error) {
	family := class.Family(nc)
	if family == ec2v1.AMIFamilyAL2023 {
		if err := c.deps.EKS.Resolve(ctx); err != nil {
			if apierror.IsServerFault(err) || apierror.Code(err) == "" {
				return 0, err // AWS did not answer; that says nothing about the class
			}
			klog.FromContext(ctx).Error(err, "Service CIDR of the cluster is unknown", "nodeClass", klog.KObj(nc))
			c.decide(nc, verdict{reasonClusterCIDR, "Failed to detect the cluster CIDR"})
			return validateAgain, nil
		}
	}
	if p := kubelet.Check(nc.Spec.Kubelet, family); p != nil {
		c.decide(nc, verdict{p.Reason, p.Message})
		return 0, nil
	}
	if message := blockDeviceFault(nc); message != "" {
		c.decide(nc, verdict{reasonInvalidBlockDevices, message})
		return 0, nil
	}
	if status := c.dependencies(nc); status != metav1.ConditionTrue {
		c.set(nc, ec2v1.ConditionValidationSucceeded, status, ec2v1.ReasonDependenciesNotReady, messageDependenciesPending)
		return validateAgain, nil
	}
	if key := class.RestrictedTag(nc); key != "" {
		c.decide(nc, verdict{ec2v1.ReasonTagValidationFailed, fmt.Sprintf("spec.tags[%s] is set by the provisioner, remove it", key)})
		return 0, nil
	}
	key, err := verdictKey(nc)
	if err != nil {
		return 0, err
	}
	if known, ok := c.validations.get(nc.Name, key); ok {
		c.decide(nc, known)
		return validateAgain, nil
	}
	if c.opts.NoDryRun {
		c.decide(nc, verdict{})
		return 0, nil
	}
	return c.dryRun(ctx, nc, key)
}

func (c *Controller) decide(nc *ec2v1.EC2NodeClass, v verdict) {
	if v.reason == "" {
		c.setTrue(nc, ec2v1.ConditionValidationSucceeded)
	} else {
		c.setFalse(nc, ec2v1.ConditionValidationSucceeded, v.reason, v.message)
	}
}

// blockDeviceFault finds what the schema lets through and EC2 cannot use.
func blockDeviceFault(nc *ec2v1.EC2NodeClass) string {
	var faults []string
	for i, m := range nc.Spec.BlockDeviceMappings {
		if m.DeviceName == nil || *m.DeviceName == "" {
			faults = append(faults, fmt.Sprintf("spec.blockDeviceMappings[%d].deviceName is missing", i))
		}
		if m.EBS == nil {
			faults = append(faults, fmt.Sprintf("spec.blockDeviceMappings[%d].ebs is missing", i))
		}
	}
	return strings.Join(faults, "; ")
}

// dependencies is False when any of what validation needs is False, Unknown when any is not known at
// this generation.
func (c *Controller) dependencies(nc *ec2v1.EC2NodeClass) metav1.ConditionStatus {
	status := metav1.ConditionTrue
	for _, kind := range []string{ec2v1.ConditionAMIsReady, ec2v1.ConditionInstanceProfileReady, ec2v1.ConditionSecurityGroupsReady, ec2v1.ConditionSubnetsReady} {
		cond := meta.FindStatusCondition(nc.Status.Conditions, kind)
		switch {
		case cond != nil && cond.Status == metav1.ConditionFalse:
			return metav1.ConditionFalse
		case cond == nil || cond.Status == metav1.ConditionUnknown:
			status = metav1.ConditionUnknown
		}
	}
	return status
}

// verdictKey changes with everything that may change the verdict. The order of subnets follows their
// free addresses and does not matter.
func verdictKey(nc *ec2v1.EC2NodeClass) (uint64, error) {
	status := nc.Status
	subnets := slices.SortedFunc(slices.Values(status.Subnets), func(a, b ec2v1.Subnet) int { return cmp.Compare(a.ID, b.ID) })
	encoded, err := json.Marshal([]any{nc.Spec, nc.Annotations, subnets, status.SecurityGroups, status.AMIs, status.InstanceProfile})
	if err != nil {
		return 0, fmt.Errorf("encode class %s: %w", nc.Name, err)
	}
	h := fnv.New64a()
	_, _ = h.Write(encoded) // a hash never fails to write
	return h.Sum64(), nil
}

// dryRun asks EC2. Its refusals become the verdict; when it could not be asked, everything stays.
func (c *Controller) dryRun(ctx context.Context, nc *ec2v1.EC2NodeClass, key uint64) (time.Duration, error) {
	all, err := c.deps.Types.ForClass(nc)
	if err != nil {
		return retrySoon, nil //nolint:nilerr // the types are asked for elsewhere, and that failure is told there
	}
	candidate, ok := c.candidate(nc, all)
	if !ok {
		klog.FromContext(ctx).V(2).Info("No instance type to validate the class with", "nodeClass", klog.KObj(nc))
		c.decide(nc, verdict{})
		return validateAgain, nil
	}
	err = c.deps.Launcher.DryRun(ctx, c.deps.EC2, nc, candidate, c.tenancy(nc))
	if err == nil {
		c.validations.put(nc.Name, key, verdict{})
		c.decide(nc, verdict{})
		return validateAgain, nil
	}
	refused, isRefusal := errors.AsType[*fleet.DryRunError](err)
	switch {
	case isRefusal && isMissingProfile(refused):
		// A profile made a moment ago takes a while to be seen everywhere; a given one may be made later.
		if nc.Spec.InstanceProfile != nil {
			c.decide(nc, verdict{reasonProfileNotFound, fmt.Sprintf("Instance profile %q not found", *nc.Spec.InstanceProfile)})
		}
		return retrySoon, nil
	case isRefusal && apierror.IsServerFault(err):
		return retrySoon, nil
	}
	v, final := judge(err, refused)
	if !final {
		return 0, err
	}
	c.validations.put(nc.Name, key, v)
	c.decide(nc, v)
	return validateAgain, nil
}

func isMissingProfile(refused *fleet.DryRunError) bool {
	return refused.Call == "RunInstances" && apierror.Code(refused) == apierror.InvalidParameterValue &&
		strings.Contains(refused.Error(), "Invalid IAM Instance Profile name")
}

// judge turns a refusal into a verdict. final is false for errors that say nothing about the class.
func judge(err error, refused *fleet.DryRunError) (v verdict, final bool) {
	if refused == nil {
		if create, ok := errors.AsType[*cloud.CreateError](err); ok {
			reason := create.Reason
			if reason != reasonUserDataSize {
				reason = reasonUserDataInvalid
			}
			return verdict{reason, create.Error()}, true
		}
		return verdict{}, false
	}
	classified := apierror.Classify(refused.Err.Error())
	switch {
	case refused.Call == "CreateLaunchTemplate" && classified.Reason == reasonUserDataSize:
		return verdict{reasonUserDataSize, "ec2:CreateLaunchTemplate rejected the rendered user data as too large: " + classified.Message}, true
	case apierror.Code(refused) == apierror.UnauthorizedOperation:
		return verdict{refused.Call + "AuthCheckFailed", "Controller isn't authorized to call ec2:" + refused.Call + ": " + classified.Message}, true
	}
	return verdict{}, false
}

// candidate is the type to validate with: one that a pool of the class would take, else a common one.
func (c *Controller) candidate(nc *ec2v1.EC2NodeClass, all []*catalog.InstanceType) (fleet.Chosen, bool) {
	images := image.NewMatcher(nc.Status.AMIs)
	pools := c.poolRequirements(nc.Name)
	if class.IsWindows(class.Family(nc)) {
		pools = nil
	}
	common := func(it *catalog.InstanceType) bool { return it.Name == "m5.large" || it.Name == "m6g.large" }
	for _, fits := range []func(*catalog.InstanceType) bool{
		func(it *catalog.InstanceType) bool {
			return slices.ContainsFunc(pools, func(r requirement.Set) bool { return it.Requirements.Intersects(r) == nil })
		},
		common,
		func(*catalog.InstanceType) bool { return true },
	} {
		var second *fleet.Chosen
		for _, it := range all {
			if !fits(it) {
				continue
			}
			chosen, plain, ok := onDemand(it, images)
			if ok && plain {
				return chosen, true
			}
			if ok && second == nil {
				second = &chosen
			}
		}
		if second != nil {
			return *second, true
		}
	}
	return fleet.Chosen{}, false
}

// onDemand is the type with its on-demand offerings. plain says that it needs no special image.
func onDemand(it *catalog.InstanceType, images image.Matcher) (chosen fleet.Chosen, plain, ok bool) {
	ami, ok := images.For(it)
	if !ok {
		return fleet.Chosen{}, false, false
	}
	chosen = fleet.Chosen{InstanceType: it, Image: ami}
	for _, o := range it.Offerings {
		if o.CapacityType == karpv1.CapacityTypeOnDemand && o.ZoneID != "" && it.Requirements.Get(corev1.LabelTopologyZone).Has(o.Zone) {
			chosen.Offerings = append(chosen.Offerings, o)
		}
	}
	plain = it.Requirements.Get(ec2v1.LabelInstanceGPUCount).IsEmpty() && it.Requirements.Get(ec2v1.LabelInstanceAcceleratorCount).IsEmpty()
	return chosen, plain, len(chosen.Offerings) > 0
}

func (c *Controller) poolsOf(name string) []*karpv1.NodePool {
	all, err := c.pools.List(labels.Everything())
	if err != nil {
		return nil // a lister over an informer does not fail
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *karpv1.NodePool) bool {
		ref := p.Spec.Template.Spec.NodeClassRef
		return !isOurs(ref) || ref.Name != name
	})
}

func (c *Controller) poolRequirements(name string) []requirement.Set {
	var out []requirement.Set
	for _, p := range c.poolsOf(name) {
		set := requirement.FromClaim(p.Spec.Template.Spec.Requirements)
		set.Merge(requirement.FromLabels(p.Spec.Template.Labels))
		out = append(out, set)
	}
	return out
}

// tenancy is dedicated when a pool of the class allows it, so that it is validated, too.
func (c *Controller) tenancy(nc *ec2v1.EC2NodeClass) string {
	for _, set := range c.poolRequirements(nc.Name) {
		if set.Has(ec2v1.LabelInstanceTenancy) && set.Get(ec2v1.LabelInstanceTenancy).Has("dedicated") {
			return "dedicated"
		}
	}
	return "default"
}
