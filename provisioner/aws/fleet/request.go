package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/aws/template"
	"github.com/berth-dev/berth/provisioner/aws/userdata"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	// maxOverrides and maxConfigs are limits of EC2 Fleet.
	maxOverrides = 300
	maxConfigs   = 50
)

// prepared is a request with what is needed to read its reply.
type prepared struct {
	input     *ec2.CreateFleetInput
	templates []string
	choice    Choice
	subnets   network.Plan
	plan      bool // subnets is to be settled
}

// prepare makes the request for the given members. The same members, class and catalogue give the same
// request.
func (l *Launcher) prepare(ctx context.Context, req Request, members []*karpv1.NodeClaim, round int) (*prepared, error) {
	first := members[0]
	wish := WishOf(first)
	choice, err := Choose(req.Types, image.NewMatcher(req.Class.Status.AMIs), wish)
	if err != nil {
		return nil, &cloud.NoCapacityError{Err: err}
	}
	l.warnInflexible(ctx, first, wish, choice)
	specs, groups, err := l.templates(req, first, wish, choice)
	if err != nil {
		return nil, err
	}
	names, err := l.deps.Templates.Ensure(ctx, specs)
	if err != nil {
		return nil, fmt.Errorf("ensure launch templates: %w", err)
	}
	p := &prepared{templates: names, choice: choice, plan: true}
	p.subnets = l.deps.Subnets.Choose(req.Class.Status.Subnets, func(zone string) int64 { return minPods(choice, zone) })
	configs := configs(names, groups, p.subnets.ByZone)
	if len(configs) == 0 {
		l.deps.Subnets.Settle(p.subnets, nil)
		return nil, &cloud.NoCapacityError{Err: errors.New("no capacity offerings are currently available given the constraints")}
	}
	p.input = l.input(req, members, choice, configs, token(req.Group, round))
	return p, nil
}

// token makes calls of one round of one attempt of one group the same call to EC2.
func token(group cloud.Group, round int) string {
	sum := sha256.Sum256([]byte(group.ID + "\x00" + strconv.Itoa(group.Attempt) + "\x00" + strconv.Itoa(round)))
	return hex.EncodeToString(sum[:])
}

func (l *Launcher) warnInflexible(ctx context.Context, claim *karpv1.NodeClaim, w Wish, c Choice) {
	const few = 5
	if c.CapacityType == karpv1.CapacityTypeOnDemand && len(c.Types) < few && w.Requirements.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeSpot) {
		klog.FromContext(ctx).Info("Launching on demand although spot is allowed; more instance types would make spot likelier",
			"nodeClaim", klog.KObj(claim), "types", len(c.Types))
	}
}

// partition is what the templates of one launch differ in.
type partition struct {
	image   string
	maxPods int64
	efas    int64
}

func (l *Launcher) templates(req Request, claim *karpv1.NodeClaim, w Wish, c Choice) ([]template.Spec, [][]Chosen, error) {
	settings, err := kubelet.Parse(req.Class.Spec.Kubelet)
	if err != nil {
		return nil, nil, &cloud.ClassNotReadyError{Err: err}
	}
	tags := class.LaunchTags(req.Class, l.opts.Cluster, claim.Labels[karpv1.LabelNodePool])
	index := map[partition]int{}
	var specs []template.Spec
	var groups [][]Chosen
	for _, t := range c.Types {
		key := partition{image: t.Image.ID, maxPods: t.Capacity.Pods}
		if w.EFA && req.Class.Spec.NetworkInterfaces == nil {
			key.efas = t.Capacity.Get(ec2v1.ResourceEFA)
		}
		i, ok := index[key]
		if !ok {
			if len(specs) == maxConfigs {
				continue // the dearest types, as they come last
			}
			data, err := l.userData(req.Class, claim, settings, c.CapacityType, t)
			if err != nil {
				return nil, nil, err
			}
			i, index[key] = len(specs), len(specs)
			specs = append(specs, template.Spec{Class: req.Class, Region: l.opts.Region, ImageID: t.Image.ID, UserData: data,
				CapacityType: c.CapacityType, Tenancy: c.Tenancy, EFAs: key.efas, Enclaves: w.Enclaves, IPv6: l.opts.IPv6(), Tags: tags})
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], t)
	}
	return specs, groups, nil
}

func (l *Launcher) userData(nc *ec2v1.EC2NodeClass, claim *karpv1.NodeClaim, settings kubelet.Config, capacityType string, t Chosen) (string, error) {
	family := class.Family(nc)
	in := userdata.Input{
		Family: family, ClusterName: l.opts.Cluster, ClusterEndpoint: l.opts.Endpoint, CABundle: l.opts.CABundle,
		Labels: userdata.Labels(claim.Labels, capacityType, family), Taints: userdata.Taints(claim),
		Kubelet: settings, MaxPods: t.Capacity.Pods,
		RAID0:        nc.Spec.InstanceStorePolicy != nil && *nc.Spec.InstanceStorePolicy == ec2v1.InstanceStorePolicyRAID0,
		ImageVersion: image.BottlerocketVersion(nc), Custom: aws.ToString(nc.Spec.UserData),
	}
	if l.opts.DNS != "" {
		in.DNS = []string{l.opts.DNS}
	}
	if family == ec2v1.AMIFamilyAL2023 {
		if in.ClusterCIDR = l.deps.CIDR(); in.ClusterCIDR == "" {
			return "", &cloud.ClassNotReadyError{Err: fmt.Errorf("class %s: the service CIDR of the cluster is not known yet, and AL2023 needs it", nc.Name)}
		}
	}
	text, err := userdata.Render(in)
	if err != nil {
		return "", &cloud.CreateError{Reason: "LaunchFailed", Message: "User data of class " + nc.Name + " cannot be rendered", Err: err}
	}
	if len(text) > userdata.Limit {
		return "", &cloud.CreateError{Reason: "UserDataSizeLimitExceeded", Message: "Rendered user data exceeds the EC2 user data size limit",
			Err: fmt.Errorf("class %s: user data has %d bytes, EC2 takes %d (16 KiB); shorten spec.userData", nc.Name, len(text), userdata.Limit)}
	}
	return text, nil
}

// minPods is the smallest number of addresses that a launch in the zone may take.
func minPods(c Choice, zone string) int64 {
	least := int64(-1)
	for _, t := range c.Types {
		if slices.ContainsFunc(t.Offerings, func(o catalog.Offering) bool { return o.Zone == zone }) && (least < 0 || t.Capacity.Pods < least) {
			least = t.Capacity.Pods
		}
	}
	return max(least, 0)
}

// configs lists the overrides of each template, cheapest first within the limits of EC2.
func configs(names []string, groups [][]Chosen, subnets map[string]string) []ec2types.FleetLaunchTemplateConfigRequest {
	type override struct {
		template int
		item     ec2types.FleetLaunchTemplateOverridesRequest
	}
	var all []override
	for i, group := range groups {
		for _, t := range group {
			for _, o := range t.Offerings {
				subnet, ok := subnets[o.Zone]
				if !ok {
					continue
				}
				all = append(all, override{i, ec2types.FleetLaunchTemplateOverridesRequest{
					InstanceType: ec2types.InstanceType(t.Name), SubnetId: aws.String(subnet), ImageId: aws.String(t.Image.ID),
					AvailabilityZone: aws.String(o.Zone), Priority: aws.Float64(o.Price)}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b override) int {
		return cmp.Or(cmp.Compare(*a.item.Priority, *b.item.Priority), cmp.Compare(a.item.InstanceType, b.item.InstanceType),
			cmp.Compare(*a.item.AvailabilityZone, *b.item.AvailabilityZone))
	})
	byName := map[string][]ec2types.FleetLaunchTemplateOverridesRequest{}
	for _, o := range all[:min(len(all), maxOverrides)] {
		byName[names[o.template]] = append(byName[names[o.template]], o.item)
	}
	var out []ec2types.FleetLaunchTemplateConfigRequest
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, ec2types.FleetLaunchTemplateConfigRequest{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: aws.String(name), Version: aws.String("$Latest")},
			Overrides:                   byName[name],
		})
	}
	return out
}

func (l *Launcher) input(req Request, members []*karpv1.NodeClaim, c Choice, configs []ec2types.FleetLaunchTemplateConfigRequest, token string) *ec2.CreateFleetInput {
	first := members[0]
	tags := class.LaunchTags(req.Class, l.opts.Cluster, first.Labels[karpv1.LabelNodePool])
	tags[instance.TagLaunchGroup] = req.Group.ID
	if len(req.Group.Claims) == 1 && first.Name != "" {
		tags[ec2v1.TagNodeClaim] = first.Name
	}
	in := &ec2.CreateFleetInput{
		ClientToken: aws.String(token), Type: ec2types.FleetTypeInstant, LaunchTemplateConfigs: configs,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       aws.Int32(int32(len(members))), //nolint:gosec // groups are small
			DefaultTargetCapacityType: ec2types.DefaultTargetCapacityType(c.CapacityType),
		},
	}
	for _, kind := range []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeFleet} {
		in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: template.Tags(tags)})
	}
	overlaid := first.Annotations[karpv1.AnnotationPriceOverlayApplied] == karpv1.ValueTrue
	if c.CapacityType == karpv1.CapacityTypeSpot {
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
		if overlaid {
			in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized
		}
	} else {
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice}
		if overlaid {
			in.OnDemandOptions.AllocationStrategy = ec2types.FleetOnDemandAllocationStrategyPrioritized
		}
	}
	if first.Annotations[karpv1.AnnotationMinValuesRelaxed] != karpv1.ValueTrue {
		in.Context = req.Class.Spec.Context
	}
	return in
}
