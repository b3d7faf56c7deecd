package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/aws/refresh"
	"github.com/berth-dev/berth/provisioner/aws/userdata"
)

const (
	keep = time.Minute // since the last use
	// parallel is how many templates are made at once.
	parallel = 8
	// nameBatch is how many names one query asks for.
	nameBatch = 150
)

// EC2 is what the store asks of EC2.
type EC2 interface {
	ec2.DescribeLaunchTemplatesAPIClient
	CreateLaunchTemplate(context.Context, *ec2.CreateLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error)
	DeleteLaunchTemplate(context.Context, *ec2.DeleteLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateOutput, error)
}

// Store makes templates on demand and removes them when they are idle. Safe for concurrent use.
type Store struct {
	api     EC2
	clock   clock.Clock
	cluster string
	metrics *Metrics

	mu    sync.Mutex // held during calls: nobody may use a template that is being removed
	known map[string]entry
}

type entry struct {
	id    string
	until time.Time
}

// NewStore makes a Store for a cluster.
func NewStore(api EC2, clock clock.Clock, cluster string, metrics *Metrics) *Store {
	return &Store{api: api, clock: clock, cluster: cluster, metrics: metrics, known: map[string]entry{}}
}

// Ensure returns the names of templates with the given contents, in their order.
func (s *Store) Ensure(ctx context.Context, specs []Spec) ([]string, error) {
	names := make([]string, len(specs))
	inputs := map[string]*ec2.CreateLaunchTemplateInput{}
	for i := range specs {
		in, err := specs[i].input()
		if err != nil {
			return nil, err
		}
		names[i] = *in.LaunchTemplateName
		inputs[names[i]] = in
		s.measure(ctx, &specs[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.clock.Now().Add(keep)
	var missing []string
	for name := range inputs {
		if e, ok := s.known[name]; ok {
			s.known[name] = entry{e.id, until}
		} else {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return names, nil
	}
	slices.Sort(missing)
	found, err := s.find(ctx, missing)
	if err != nil {
		return nil, err
	}
	ids, err := s.create(ctx, missing, found, inputs)
	for i, id := range ids {
		if id != "" {
			s.known[missing[i]] = entry{id, until}
		}
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

func (s *Store) measure(ctx context.Context, spec *Spec) {
	n := len(spec.UserData)
	s.metrics.userData.WithLabelValues(spec.Class.Name).Set(float64(n))
	if n > userdata.WarnAt {
		klog.FromContext(ctx).Info("User data comes close to the limit of EC2", "nodeClass", klog.KObj(spec.Class), "bytes", n, "limit", userdata.Limit)
	}
}

// find returns the ids of those templates that exist already, by name.
func (s *Store) find(ctx context.Context, names []string) (map[string]string, error) {
	found := map[string]string{}
	for chunk := range slices.Chunk(names, nameBatch) {
		err := s.list(ctx, []ec2types.Filter{network.Filter("launch-template-name", chunk...)}, func(name, id string) { found[name] = id })
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *Store) list(ctx context.Context, filters []ec2types.Filter, see func(name, id string)) error {
	pages := ec2.NewDescribeLaunchTemplatesPaginator(s.api, &ec2.DescribeLaunchTemplatesInput{Filters: filters, MaxResults: aws.Int32(200)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("describe launch templates: %w", err)
		}
		for _, t := range page.LaunchTemplates {
			see(aws.ToString(t.LaunchTemplateName), aws.ToString(t.LaunchTemplateId))
		}
	}
	return nil
}

// create makes the templates that were not found. ids are those of names, "" where one failed.
func (s *Store) create(ctx context.Context, names []string, found map[string]string, inputs map[string]*ec2.CreateLaunchTemplateInput) (ids []string, err error) {
	ids = make([]string, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, name := range names {
		if ids[i] = found[name]; ids[i] != "" {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out, err := s.api.CreateLaunchTemplate(ctx, inputs[name])
			if err != nil {
				errs[i] = fmt.Errorf("create launch template: %w", err)
				return
			}
			ids[i] = aws.ToString(out.LaunchTemplate.LaunchTemplateId)
		})
	}
	wg.Wait()
	return ids, errors.Join(errs...)
}

// Forget drops templates that EC2 turned out not to have.
func (s *Store) Forget(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.known, name)
	}
}

// Run removes idle templates until ctx ends, those that an earlier process left behind included.
func (s *Store) Run(ctx context.Context) {
	first := true
	refresh.Loop(ctx, s.clock, "launch templates", keep, func(ctx context.Context) error {
		if first {
			if err := s.adopt(ctx); err != nil {
				return err
			}
			first = false
		}
		return s.Sweep(ctx)
	})
}

// adopt learns of the cluster's templates, so that unused ones are removed like any other.
func (s *Store) adopt(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.clock.Now().Add(keep)
	return s.list(ctx, []ec2types.Filter{network.Filter("tag:"+ec2v1.TagEKSClusterName, s.cluster)}, func(name, id string) {
		if _, ok := s.known[name]; !ok && isOurs(name) {
			s.known[name] = entry{id, until}
		}
	})
}

// Sweep removes the templates that were not used for a minute.
func (s *Store) Sweep(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var errs []error
	for name, e := range s.known {
		if e.until.After(now) {
			continue
		}
		if err := s.remove(ctx, e.id); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.known, name)
	}
	return errors.Join(errs...)
}

func (s *Store) remove(ctx context.Context, id string) error {
	_, err := s.api.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("delete launch template %s: %w", id, err)
	}
	return nil
}

// DeleteAll removes every template of a class.
func (s *Store) DeleteAll(ctx context.Context, nc *ec2v1.EC2NodeClass) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]string{}
	err := s.list(ctx, []ec2types.Filter{
		network.Filter("tag:"+ec2v1.TagEKSClusterName, s.cluster), network.Filter("tag:"+ec2v1.LabelNodeClass, nc.Name),
	}, func(name, id string) { found[name] = id })
	if err != nil {
		return err
	}
	var errs []error
	for name, id := range found {
		if err := s.remove(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.known, name)
	}
	s.metrics.userData.DeleteLabelValues(nc.Name)
	return errors.Join(errs...)
}
