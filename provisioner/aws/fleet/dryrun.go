package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/template"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// DryRunError says which call of a dry run EC2 refused.
type DryRunError struct {
	Call string // CreateLaunchTemplate, CreateFleet or RunInstances
	Err  error  // never nil
}

func (e *DryRunError) Error() string { return "dry run of " + e.Call + ": " + e.Err.Error() }
func (e *DryRunError) Unwrap() error { return e.Err }

// Runner runs instances; it is asked for dry runs only.
type Runner interface {
	RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
}

// noRetry keeps dry runs from being repeated: they only ask whether something is allowed.
func noRetry(o *ec2.Options) { o.Retryer = aws.NopRetryer{} }

// DryRun asks EC2 whether machines of the class could be launched, by the type t. It makes a real launch
// template. A refusal is a *DryRunError; user data that cannot be rendered is a *cloud.CreateError.
func (l *Launcher) DryRun(ctx context.Context, run Runner, nc *ec2v1.EC2NodeClass, t Chosen, tenancy string) error {
	req := Request{Class: nc, Group: cloud.Group{ID: "dry-run", Claims: []*karpv1.NodeClaim{{}}}}
	choice := Choice{CapacityType: karpv1.CapacityTypeOnDemand, Tenancy: tenancy, Types: []Chosen{t}}
	specs, groups, err := l.templates(req, req.Group.Claims[0], Wish{}, choice)
	if err != nil {
		return err
	}
	names, err := l.deps.Templates.Ensure(ctx, specs)
	if err != nil {
		return &DryRunError{Call: "CreateLaunchTemplate", Err: err}
	}
	if err := l.dryFleet(ctx, req, choice, names, groups); err != nil {
		return err
	}
	return l.dryRun(ctx, run, nc, t, names[0])
}

func (l *Launcher) dryFleet(ctx context.Context, req Request, choice Choice, names []string, groups [][]Chosen) error {
	subnets := map[string]string{}
	for _, s := range req.Class.Status.Subnets {
		if subnets[s.Zone] == "" {
			subnets[s.Zone] = s.ID
		}
	}
	list := configs(names, groups, subnets)
	if len(list) == 0 {
		return nil // the type is in none of the zones: nothing to be learnt
	}
	in := l.input(req, req.Group.Claims, choice, list, "")
	in.ClientToken, in.DryRun = nil, aws.Bool(true)
	_, err := l.deps.EC2.CreateFleet(ctx, in, noRetry)
	return refusal("CreateFleet", err)
}

func refusal(call string, err error) error {
	switch {
	case apierror.IsDryRunSuccess(err):
		return nil
	case err == nil:
		return &DryRunError{Call: call, Err: errors.New("EC2 did not answer that it was a dry run")}
	}
	return &DryRunError{Call: call, Err: err}
}

// dryRun tries the subnets in order; one that works is enough, otherwise the first refusal counts.
func (l *Launcher) dryRun(ctx context.Context, run Runner, nc *ec2v1.EC2NodeClass, t Chosen, name string) error {
	var first error
	for _, subnet := range nc.Status.Subnets {
		in := &ec2.RunInstancesInput{
			DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: ec2types.InstanceType(t.Name),
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String(name), Version: aws.String("$Latest")},
		}
		if len(nc.Spec.NetworkInterfaces) == 0 {
			in.NetworkInterfaces = []ec2types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: aws.String(subnet.ID)}}
		}
		for _, n := range nc.Spec.NetworkInterfaces {
			in.NetworkInterfaces = append(in.NetworkInterfaces, ec2types.InstanceNetworkInterfaceSpecification{
				NetworkCardIndex: aws.Int32(n.NetworkCardIndex), DeviceIndex: aws.Int32(n.DeviceIndex),
				InterfaceType: aws.String(string(n.InterfaceType)), SubnetId: aws.String(subnet.ID)})
		}
		tags := template.Tags(class.LaunchTags(nc, l.opts.Cluster, ""))
		for _, kind := range []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeNetworkInterface} {
			in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: tags})
		}
		_, err := run.RunInstances(ctx, in, noRetry)
		err = refusal("RunInstances", err)
		if err == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("subnet %s: %w", subnet.ID, err)
		}
	}
	return first
}
