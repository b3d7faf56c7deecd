package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/requirement"
)

const (
	keepAliasParameter = 24 * time.Hour
	keepUserParameter  = 5 * time.Minute
)

// SSM is what the resolver asks of Systems Manager.
type SSM interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// Resolver finds images. Safe for concurrent use.
type Resolver struct {
	ec2        ec2.DescribeImagesAPIClient
	ssm        SSM
	clock      clock.PassiveClock
	kubernetes string // minor version of the cluster

	mu         sync.Mutex
	parameters map[string]parameter
}

// parameter is an answer of SSM. value is empty when there is no such parameter.
type parameter struct {
	value   string
	mutable bool
	until   time.Time
}

// NewResolver makes a Resolver for a cluster of a Kubernetes version such as 1.37.
func NewResolver(images ec2.DescribeImagesAPIClient, parameters SSM, clock clock.PassiveClock, kubernetes string) *Resolver {
	return &Resolver{ec2: images, ssm: parameters, clock: clock, kubernetes: kubernetes, parameters: map[string]parameter{}}
}

// Kubernetes is the version that aliases are resolved for.
func (r *Resolver) Kubernetes() string { return r.kubernetes }

// Resolve returns the images that the class selects, newest first; none is no error.
func (r *Resolver) Resolve(ctx context.Context, nc *ec2v1.EC2NodeClass) ([]ec2v1.AMI, error) {
	if alias, ok := class.AliasOf(nc); ok {
		return r.resolveAlias(ctx, alias)
	}
	queries, err := r.termQueries(ctx, nc.Spec.AMISelectorTerms)
	if err != nil {
		return nil, err
	}
	found := map[string]ec2types.Image{}
	for _, q := range queries {
		if err := r.describe(ctx, q, found); err != nil {
			return nil, err
		}
	}
	var all []candidate
	for _, img := range found {
		all = append(all, candidate{img, ""})
	}
	return r.choose(all), nil
}

func (r *Resolver) resolveAlias(ctx context.Context, alias class.Alias) ([]ec2v1.AMI, error) {
	variants := map[string][]variant{}
	var failed []error
	for _, q := range queries(alias, r.kubernetes) {
		id, err := r.parameter(ctx, q.path, keepAliasParameter, isMutable(alias))
		switch {
		case err != nil:
			failed = append(failed, err)
		case id != "":
			variants[id] = append(variants[id], q.variants...)
		}
	}
	if len(variants) == 0 {
		return nil, errors.Join(append([]error{errors.New("failed to discover any AMIs for alias")}, failed...)...)
	}
	found := map[string]ec2types.Image{}
	ids := slices.Sorted(maps.Keys(variants))
	if err := r.describe(ctx, &ec2.DescribeImagesInput{Filters: []ec2types.Filter{network.Filter("image-id", ids...)}}, found); err != nil {
		return nil, err
	}
	var all []candidate
	for id, img := range found {
		for _, v := range variants[id] {
			all = append(all, candidate{img, v})
		}
	}
	return r.choose(all), nil
}

// termQueries makes one query of all ids, given or from SSM, and one per term of names, tags, owner.
func (r *Resolver) termQueries(ctx context.Context, terms []ec2v1.AMISelectorTerm) ([]*ec2.DescribeImagesInput, error) {
	var out []*ec2.DescribeImagesInput
	var ids []string
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.SSMParameter != "":
			id, err := r.parameter(ctx, t.SSMParameter, keepUserParameter, false)
			if err != nil {
				return nil, err
			}
			if !strings.HasPrefix(id, "ami-") {
				klog.FromContext(ctx).V(4).Info("SSM parameter names no image, skipping", "parameter", t.SSMParameter, "value", id)
				continue
			}
			ids = append(ids, id)
		default:
			q := &ec2.DescribeImagesInput{Filters: network.TagFilters(t.Tags)}
			if t.Name != "" {
				q.Filters = append(q.Filters, network.Filter("name", t.Name))
			}
			switch {
			case t.Owner != "":
				q.Owners = []string{t.Owner}
			case t.Name != "":
				q.Owners = []string{"self", "amazon"}
			}
			out = append(out, q)
		}
	}
	if len(ids) > 0 {
		out = append(out, &ec2.DescribeImagesInput{Filters: []ec2types.Filter{network.Filter("image-id", ids...)}})
	}
	return out, nil
}

// parameter returns the value of an SSM parameter, "" when there is none.
func (r *Resolver) parameter(ctx context.Context, name string, keep time.Duration, mutable bool) (string, error) {
	r.mu.Lock()
	kept, ok := r.parameters[name]
	r.mu.Unlock()
	now := r.clock.Now()
	if ok && kept.until.After(now) {
		return kept.value, nil
	}
	out, err := r.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(name)})
	answer := parameter{mutable: mutable, until: now.Add(keep)}
	switch {
	case apierror.IsNotFound(err):
		klog.FromContext(ctx).V(4).Info("SSM parameter does not exist, skipping", "parameter", name)
		answer.until = now.Add(min(keep, keepUserParameter)) // it may be published soon
	case err != nil:
		return "", fmt.Errorf("get SSM parameter %s: %w", name, err)
	case out.Parameter != nil:
		answer.value = aws.ToString(out.Parameter.Value)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parameters[name] = answer
	return answer.value, nil
}

// DropDeprecated forgets mutable parameters whose image is deprecated by now, so that the next
// resolution asks SSM again.
func (r *Resolver) DropDeprecated(ctx context.Context) error {
	r.mu.Lock()
	names := map[string]string{} // image to parameter
	for name, p := range r.parameters {
		if p.mutable && p.value != "" {
			names[p.value] = name
		}
	}
	r.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	found := map[string]ec2types.Image{}
	ids := slices.Sorted(maps.Keys(names))
	if err := r.describe(ctx, &ec2.DescribeImagesInput{Filters: []ec2types.Filter{network.Filter("image-id", ids...)}}, found); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, name := range names {
		if img, ok := found[id]; !ok || isDeprecated(img, r.clock.Now()) {
			delete(r.parameters, name)
		}
	}
	return nil
}

func (r *Resolver) describe(ctx context.Context, q *ec2.DescribeImagesInput, found map[string]ec2types.Image) error {
	q.Filters = append(q.Filters, network.Filter("state", "available"))
	q.IncludeDeprecated, q.MaxResults = aws.Bool(true), aws.Int32(1000)
	for pages := ec2.NewDescribeImagesPaginator(r.ec2, q); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("describe images: %w", err)
		}
		for _, img := range page.Images {
			found[aws.ToString(img.ImageId)] = img
		}
	}
	return nil
}

type candidate struct {
	image   ec2types.Image
	variant variant
}

// choose keeps the best image for each set of instance types.
func (r *Resolver) choose(all []candidate) []ec2v1.AMI {
	now := r.clock.Now()
	better := func(a, b candidate) int {
		return cmp.Or(
			compareBool(isDeprecated(a.image, now), isDeprecated(b.image, now)),
			cmp.Compare(aws.ToString(b.image.CreationDate), aws.ToString(a.image.CreationDate)),
			cmp.Compare(aws.ToString(b.image.Name), aws.ToString(a.image.Name)),
			cmp.Compare(aws.ToString(a.image.ImageId), aws.ToString(b.image.ImageId)))
	}
	slices.SortFunc(all, better)
	var chosen []candidate
	seen := map[string]bool{}
	for _, c := range all {
		arch := architectures[c.image.Architecture]
		key := arch + "/" + string(c.variant)
		if arch == "" || seen[key] {
			continue
		}
		seen[key] = true
		chosen = append(chosen, c)
	}
	slices.SortFunc(chosen, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(aws.ToString(b.image.CreationDate), aws.ToString(a.image.CreationDate)),
			cmp.Compare(aws.ToString(a.image.ImageId), aws.ToString(b.image.ImageId)), cmp.Compare(a.variant, b.variant))
	})
	var amis []ec2v1.AMI
	for _, c := range chosen {
		amis = append(amis, ec2v1.AMI{ID: aws.ToString(c.image.ImageId), Name: aws.ToString(c.image.Name),
			Deprecated: isDeprecated(c.image, now), Requirements: amiRequirements(c)})
	}
	return amis
}

var architectures = map[ec2types.ArchitectureValues]string{
	ec2types.ArchitectureValuesX8664: karpv1.ArchitectureAMD64,
	ec2types.ArchitectureValuesArm64: karpv1.ArchitectureARM64,
}

func amiRequirements(c candidate) []corev1.NodeSelectorRequirement {
	rs := append(c.variant.requirements(), corev1.NodeSelectorRequirement{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn,
		Values: []string{architectures[c.image.Architecture]}})
	slices.SortFunc(rs, func(a, b corev1.NodeSelectorRequirement) int {
		return cmp.Or(cmp.Compare(len(a.Key), len(b.Key)), cmp.Compare(a.Key, b.Key))
	})
	return rs
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func isDeprecated(img ec2types.Image, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, aws.ToString(img.DeprecationTime))
	return err == nil && !at.After(now)
}

// Matcher picks the image of an instance type among those of a class.
type Matcher struct {
	amis         []ec2v1.AMI
	requirements []requirement.Set
}

// NewMatcher prepares the images, in their order of preference.
func NewMatcher(amis []ec2v1.AMI) Matcher {
	m := Matcher{amis: amis}
	for _, a := range amis {
		m.requirements = append(m.requirements, requirement.FromNodeSelector(a.Requirements))
	}
	return m
}

// For returns the first image that can boot the type; ok is false when none can.
func (m Matcher) For(it *catalog.InstanceType) (ami ec2v1.AMI, ok bool) {
	for i, r := range m.requirements {
		if it.Requirements.Compatible(r, requirement.IsWellKnown) == nil {
			return m.amis[i], true
		}
	}
	return ec2v1.AMI{}, false
}
