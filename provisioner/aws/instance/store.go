package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	windowIdle  = 100 * time.Millisecond
	windowMax   = time.Second
	windowItems = 500
	// singles is how many calls run at once when a joint call has to be taken apart.
	singles = 10
)

// TagLaunchGroup has the ID of the launch group on every instance of it.
const TagLaunchGroup = karpv1.AnnotationLaunchGroup

// EC2 is what the store asks of EC2.
type EC2 interface {
	ec2.DescribeInstancesAPIClient
	TerminateInstances(context.Context, *ec2.TerminateInstancesInput, ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
	CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
}

// Store reads and ends the instances of a cluster. Safe for concurrent use.
type Store struct {
	api     EC2
	cluster string
	metrics *Metrics

	describe  window[string, *Instance]
	terminate window[string, struct{}]
}

// NewStore makes a Store for a cluster.
func NewStore(api EC2, clock clock.Clock, cluster string, metrics *Metrics) *Store {
	s := &Store{api: api, cluster: cluster, metrics: metrics}
	s.describe = window[string, *Instance]{name: "describe_instances", clock: clock, idle: windowIdle, max: windowMax,
		items: windowItems, run: s.describeAll, metrics: metrics}
	s.terminate = window[string, struct{}]{name: "terminate_instances", clock: clock, idle: windowIdle, max: windowMax,
		items: windowItems, run: s.terminateAll, metrics: metrics}
	return s
}

// Get returns a living instance, or a *cloud.NotFoundError.
func (s *Store) Get(ctx context.Context, id string) (*Instance, error) {
	if id == "" {
		return nil, &cloud.NotFoundError{Err: fmt.Errorf("instance ID is empty")}
	}
	return s.describe.do(ctx, id)
}

func stateFilter() ec2types.Filter {
	return network.Filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down")
}

func (s *Store) describeAll(ctx context.Context, ids []string) []result[*Instance] {
	found := map[string]*Instance{}
	err := s.pages(ctx, &ec2.DescribeInstancesInput{InstanceIds: slices.Sorted(slices.Values(ids)), Filters: []ec2types.Filter{stateFilter()}},
		func(i *Instance) { found[i.ID] = i })
	out := make([]result[*Instance], len(ids))
	fanOut(ids, func(i int, id string) {
		switch instance, ok := found[id]; {
		case ok:
			out[i].value = instance
		case len(ids) == 1 && err != nil:
			out[i].err = describeError(id, err)
		case len(ids) == 1:
			out[i].err = gone(id)
		default:
			out[i].value, out[i].err = s.describeOne(ctx, id)
		}
	})
	return out
}

func (s *Store) describeOne(ctx context.Context, id string) (*Instance, error) {
	var found *Instance
	err := s.pages(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}, Filters: []ec2types.Filter{stateFilter()}},
		func(i *Instance) { found = i })
	switch {
	case err != nil:
		return nil, describeError(id, err)
	case found == nil:
		return nil, gone(id)
	}
	return found, nil
}

func describeError(id string, err error) error {
	switch {
	case apierror.IsNotFound(err):
		return &cloud.NotFoundError{Err: fmt.Errorf("describe instance %s: %w", id, err)}
	case apierror.IsThrottled(err):
		return &cloud.ThrottledError{Err: fmt.Errorf("describe instance %s: %w", id, err)}
	}
	return fmt.Errorf("describe instance %s: %w", id, err)
}

func gone(id string) error {
	return &cloud.NotFoundError{Err: fmt.Errorf("instance %s is terminated", id)}
}

// fanOut calls each for every item, several at once.
func fanOut(items []string, each func(i int, item string)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, singles)
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			each(i, item)
		})
	}
	wg.Wait()
}

func (s *Store) pages(ctx context.Context, in *ec2.DescribeInstancesInput, see func(*Instance)) error {
	for pages := ec2.NewDescribeInstancesPaginator(s.api, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.Reservations {
			for i := range r.Instances {
				see(FromEC2(&r.Instances[i]))
			}
		}
	}
	return nil
}

// List returns the living instances of the cluster, sorted by ID. more narrows the list.
func (s *Store) List(ctx context.Context, more ...ec2types.Filter) ([]*Instance, error) {
	filters := append([]ec2types.Filter{
		network.Filter("tag-key", karpv1.LabelNodePool),
		network.Filter("tag-key", ec2v1.LabelNodeClass),
		network.Filter("tag:"+ec2v1.TagEKSClusterName, s.cluster),
		stateFilter(),
	}, more...)
	found := map[string]*Instance{}
	err := s.pages(ctx, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: aws.Int32(1000)}, func(i *Instance) { found[i.ID] = i })
	switch {
	case apierror.IsThrottled(err):
		return nil, &cloud.ThrottledError{Err: fmt.Errorf("list instances: %w", err)}
	case err != nil:
		return nil, fmt.Errorf("list instances: %w", err)
	}
	out := make([]*Instance, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[id])
	}
	return out, nil
}

// OfGroup returns the instances of a launch group that are not ending, sorted by ID.
func (s *Store) OfGroup(ctx context.Context, group string) ([]*Instance, error) {
	all, err := s.List(ctx, network.Filter("tag:"+TagLaunchGroup, group))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, (*Instance).IsEnding), nil
}

// Terminate ends an instance. It returns a *cloud.NotFoundError when the instance is gone for good.
func (s *Store) Terminate(ctx context.Context, id string) error {
	instance, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if instance.IsEnding() {
		return nil
	}
	if _, err := s.terminate.do(ctx, id); err != nil {
		s.metrics.terminations.WithLabelValues(instance.Zone, instance.ZoneID).Inc()
		return err
	}
	return nil
}

func (s *Store) terminateAll(ctx context.Context, ids []string) []result[struct{}] {
	ending, err := s.terminateCall(ctx, slices.Sorted(slices.Values(ids)))
	out := make([]result[struct{}], len(ids))
	fanOut(ids, func(i int, id string) {
		switch {
		case ending[id]:
		case len(ids) == 1:
			out[i].err = terminateError(id, err)
		default:
			single, err := s.terminateCall(ctx, []string{id})
			if !single[id] {
				out[i].err = terminateError(id, err)
			}
		}
	})
	return out
}

func (s *Store) terminateCall(ctx context.Context, ids []string) (ending map[string]bool, err error) {
	reply, err := s.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	if err != nil {
		return nil, err
	}
	ending = map[string]bool{}
	for _, change := range reply.TerminatingInstances {
		if state := change.CurrentState; state != nil {
			ending[aws.ToString(change.InstanceId)] = state.Name == ec2types.InstanceStateNameShuttingDown || state.Name == ec2types.InstanceStateNameTerminated
		}
	}
	return ending, nil
}

func terminateError(id string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("terminate instance %s: EC2 did not say that it is shutting down", id)
	case apierror.IsNotFound(err):
		return &cloud.NotFoundError{Err: fmt.Errorf("terminate instance %s: %w", id, err)}
	case apierror.IsThrottled(err):
		return &cloud.ThrottledError{Err: fmt.Errorf("terminate instance %s: %w", id, err)}
	}
	return fmt.Errorf("terminate instance %s: %w", id, err)
}

// Tag puts tags on an instance. It returns a *cloud.NotFoundError when EC2 does not know the instance,
// which may be so for a moment after its launch.
func (s *Store) Tag(ctx context.Context, id string, tags map[string]string) error {
	in := &ec2.CreateTagsInput{Resources: []string{id}}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		in.Tags = append(in.Tags, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	_, err := s.api.CreateTags(ctx, in)
	switch {
	case apierror.IsNotFound(err):
		return &cloud.NotFoundError{Err: fmt.Errorf("tag instance %s: %w", id, err)}
	case err != nil:
		return fmt.Errorf("tag instance %s: %w", id, err)
	}
	return nil
}
