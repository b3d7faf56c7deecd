package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/apierror"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/aws/template"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
)

const (
	// maxRounds bounds how often one call of Create asks EC2: the first request, one with new templates,
	// and one after an earlier process sent something else.
	maxRounds = 4
	// maxLooks and lookPause are how often and how fast EC2 is asked for instances that must be there.
	maxLooks  = 6
	lookPause = time.Second
	// keepRecords is how long a group's outcome is remembered after its last use.
	keepRecords = time.Hour
)

// EC2 is what the launcher asks of EC2.
type EC2 interface {
	CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
}

// Templates makes launch templates.
type Templates interface {
	Ensure(ctx context.Context, specs []template.Spec) ([]string, error)
	Forget(names []string)
}

// Groups finds what earlier calls for a group launched.
type Groups interface {
	OfGroup(ctx context.Context, group string) ([]*instance.Instance, error)
}

// Shortages takes note of what EC2 had none of.
type Shortages interface {
	MarkOffering(capacityType, instanceType, zone string)
	MarkCapacityType(capacityType string)
	MarkSubnet(id string)
}

// Deps of a Launcher; all are needed.
type Deps struct {
	EC2       EC2
	Templates Templates
	Groups    Groups
	Subnets   *network.Subnets
	Shortages Shortages
	// CIDR returns the service CIDR of the cluster, "" while it is not known.
	CIDR func() string
	// Owner returns the name of the claim that records the instance as its own, "" when none does.
	Owner func(instanceID string) string
	// SpotRoleDenied is told when the account has no role for spot and the launch may not make it.
	SpotRoleDenied func(ctx context.Context, claim *karpv1.NodeClaim)
	Clock          clock.Clock
	Metrics        *Metrics
}

// Options of a Launcher.
type Options struct {
	Region, Cluster, Endpoint string
	CABundle                  string // base64
	DNS                       string // cluster DNS address, may be empty
}

// IPv6 reports whether the cluster's addresses are IPv6.
func (o Options) IPv6() bool { return strings.Contains(o.DNS, ":") }

// Launcher launches groups of claims. Safe for concurrent use.
type Launcher struct {
	deps Deps
	opts Options

	mu      sync.Mutex
	records map[string]*record
}

// record is what this process knows of an attempt of a group.
type record struct {
	used time.Time // guarded by the launcher's mutex

	mu       sync.Mutex // held for the whole of a call: calls for one attempt do not overlap
	asked    bool       // earlier processes' instances have been looked for
	round    int        // of the token
	pending  *prepared  // sent, without an answer
	launched map[string]*instance.Instance
}

// New makes a Launcher.
func New(deps Deps, opts Options) *Launcher {
	return &Launcher{deps: deps, opts: opts, records: map[string]*record{}}
}

// Request is one launch.
type Request struct {
	Group cloud.Group
	Class *ec2v1.EC2NodeClass
	Types []*catalog.InstanceType
	// Replayed says that an earlier process may have sent the group already.
	Replayed bool
}

// Outcome of one member: an instance or an error.
type Outcome struct {
	Instance *instance.Instance
	Err      error
}

// Create launches one instance for each member that has none yet, in the order of the group. Repeating
// a call never launches twice: in one process by the record, across processes by client token and tags.
// The error is for the whole call.
func (l *Launcher) Create(ctx context.Context, req Request) ([]Outcome, error) {
	rec := l.record(req.Group)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if req.Replayed && !rec.asked {
		if err := l.adopt(ctx, req, rec); err != nil {
			return nil, err
		}
		rec.asked = true
	}
	refused := map[string]error{}
	renewed := false
	for try := 0; ; try++ {
		missing := rec.missing(req.Group.Claims)
		if len(missing) == 0 {
			break
		}
		if try == maxRounds {
			return nil, fmt.Errorf("create fleet for group %s: no agreement with EC2 on what was launched after %d requests", req.Group.ID, try)
		}
		again, err := l.once(ctx, req, rec, missing, refused, &renewed)
		if err != nil {
			return l.failed(req, rec, err)
		}
		if !again {
			break
		}
	}
	return rec.outcomes(req.Group.Claims, refused), nil
}

// failed turns an error of the whole call into one of each member when it is about capacity.
func (l *Launcher) failed(req Request, rec *record, err error) ([]Outcome, error) {
	if !cloud.IsNoCapacity(err) {
		return nil, err
	}
	refused := map[string]error{}
	for _, c := range req.Group.Claims {
		refused[c.Name] = err
	}
	return rec.outcomes(req.Group.Claims, refused), nil
}

// once sends one request. again says that another one is needed at once.
func (l *Launcher) once(ctx context.Context, req Request, rec *record, missing []*karpv1.NodeClaim, refused map[string]error, renewed *bool) (again bool, err error) {
	p := rec.pending
	if p == nil {
		members := missing
		if rec.round == 0 {
			members = req.Group.Claims // what an earlier process sent
		}
		if p, err = l.prepare(ctx, req, members, rec.round); err != nil {
			return false, callError(err)
		}
		rec.pending = p
	}
	out, err := l.deps.EC2.CreateFleet(ctx, p.input)
	if err != nil {
		return l.callFailed(ctx, req, rec, p, err, renewed)
	}
	rec.pending = nil
	rec.round++ // EC2 has answered this token for good
	l.settle(p, out)
	err = l.note(ctx, req, p, out.Errors)
	l.assign(ctx, req, rec, p, out)
	for _, c := range rec.missing(req.Group.Claims) {
		refused[c.Name] = err
	}
	return false, nil
}

func (l *Launcher) callFailed(ctx context.Context, req Request, rec *record, p *prepared, err error, renewed *bool) (again bool, _ error) {
	if !apierror.IsDefinite(err) {
		// Nobody knows whether EC2 launched: the next call sends exactly the same request again.
		return false, apierror.ForCaller(fmt.Errorf("create fleet: %w", err))
	}
	rec.pending = nil
	l.settle(p, nil)
	switch code := apierror.Code(err); {
	case code == apierror.IdempotentParameterMismatch:
		klog.FromContext(ctx).Info("An earlier process sent this group with other parameters, looking for its instances", "group", req.Group.ID, "attempt", req.Group.Attempt)
		rec.round++
		return true, l.adoptPatiently(ctx, req, rec)
	case code == apierror.LaunchTemplateNotFound && !*renewed:
		l.deps.Templates.Forget(p.templates)
		*renewed = true
		return true, nil
	}
	return false, apierror.ForCaller(fmt.Errorf("create fleet: %w", err))
}

// callError leaves typed errors as they are.
func callError(err error) error {
	if cloud.IsNoCapacity(err) || cloud.IsClassNotReady(err) {
		return err
	}
	if _, ok := errors.AsType[*cloud.CreateError](err); ok {
		return err
	}
	return apierror.ForCaller(err)
}

func (l *Launcher) record(group cloud.Group) *record {
	key := group.ID + "/" + strconv.Itoa(group.Attempt)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.deps.Clock.Now()
	maps.DeleteFunc(l.records, func(_ string, r *record) bool { return now.Sub(r.used) > keepRecords })
	r := l.records[key]
	if r == nil {
		r = &record{launched: map[string]*instance.Instance{}}
		l.records[key] = r
	}
	r.used = now
	return r
}

func (r *record) missing(claims []*karpv1.NodeClaim) []*karpv1.NodeClaim {
	var out []*karpv1.NodeClaim
	for _, c := range claims {
		if r.launched[c.Name] == nil {
			out = append(out, c)
		}
	}
	return out
}

func (r *record) outcomes(claims []*karpv1.NodeClaim, refused map[string]error) []Outcome {
	out := make([]Outcome, len(claims))
	for i, c := range claims {
		if out[i].Instance = r.launched[c.Name]; out[i].Instance == nil {
			out[i].Err = refused[c.Name]
		}
	}
	return out
}

// adoptPatiently adopts when it is certain that there was an earlier launch: EC2 may take some seconds
// to show its instances, and what does not show would be launched again.
func (l *Launcher) adoptPatiently(ctx context.Context, req Request, rec *record) error {
	for look := 1; ; look++ {
		if err := l.adopt(ctx, req, rec); err != nil {
			return err
		}
		if look == maxLooks || len(rec.missing(req.Group.Claims)) == 0 {
			return nil
		}
		timer := l.deps.Clock.NewTimer(lookPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// adopt finds the instances that earlier calls launched for the group. A claim's own record of its
// instance counts first, then the instance's tag; the rest are alike and go to members in order.
func (l *Launcher) adopt(ctx context.Context, req Request, rec *record) error {
	found, err := l.deps.Groups.OfGroup(ctx, req.Group.ID)
	if err != nil {
		return fmt.Errorf("look for instances of group %s: %w", req.Group.ID, err)
	}
	taken := rec.ids()
	take := func(claim *karpv1.NodeClaim, fits func(i *instance.Instance) bool) {
		if rec.launched[claim.Name] != nil {
			return
		}
		for _, i := range found {
			if owner := l.deps.Owner(i.ID); owner != "" && owner != claim.Name {
				continue
			}
			if !taken[i.ID] && fits(i) {
				rec.launched[claim.Name], taken[i.ID] = i, true
				klog.FromContext(ctx).V(2).Info("Adopted instance of an earlier launch", "nodeClaim", klog.KObj(claim), "instance", i.ID, "group", req.Group.ID)
				return
			}
		}
	}
	for _, c := range req.Group.Claims {
		take(c, func(i *instance.Instance) bool { return i.ID == instance.IDOf(c.Status.ProviderID) })
	}
	for _, c := range req.Group.Claims {
		take(c, func(i *instance.Instance) bool { return i.Tags[ec2v1.TagNodeClaim] == c.Name })
	}
	for _, c := range req.Group.Claims {
		take(c, func(i *instance.Instance) bool { return i.Tags[ec2v1.TagNodeClaim] == "" })
	}
	return nil
}

func (r *record) ids() map[string]bool {
	ids := map[string]bool{}
	for _, i := range r.launched {
		ids[i.ID] = true
	}
	return ids
}

// assign gives the instances of a reply to the members without one, in order.
func (l *Launcher) assign(ctx context.Context, req Request, rec *record, p *prepared, out *ec2.CreateFleetOutput) {
	taken := rec.ids()
	members := rec.missing(req.Group.Claims)
	now := l.deps.Clock.Now()
	for _, item := range out.Instances {
		for _, id := range item.InstanceIds {
			if taken[id] {
				continue
			}
			if len(members) == 0 {
				klog.FromContext(ctx).Error(nil, "EC2 launched more than was asked for; garbage collection will end it", "instance", id, "group", req.Group.ID)
				continue
			}
			rec.launched[members[0].Name] = p.instance(req.Class, id, item, now)
			members = members[1:]
		}
	}
}

// instance is what a reply tells of a new machine.
func (p *prepared) instance(nc *ec2v1.EC2NodeClass, id string, item ec2types.CreateFleetInstance, now time.Time) *instance.Instance {
	i := &instance.Instance{ID: id, Type: string(item.InstanceType), CapacityType: p.choice.CapacityType, Tenancy: p.choice.Tenancy,
		State: ec2types.InstanceStateNamePending, LaunchTime: now, Tags: map[string]string{}}
	for _, t := range p.input.TagSpecifications[0].Tags {
		i.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	if o := item.LaunchTemplateAndOverrides; o != nil && o.Overrides != nil {
		i.Zone, i.SubnetID, i.ImageID = aws.ToString(o.Overrides.AvailabilityZone), aws.ToString(o.Overrides.SubnetId), aws.ToString(o.Overrides.ImageId)
	}
	for _, s := range nc.Status.Subnets {
		if s.ID == i.SubnetID {
			i.Zone, i.ZoneID = s.Zone, s.ZoneID
		}
	}
	for _, g := range nc.Status.SecurityGroups {
		i.SecurityGroupIDs = append(i.SecurityGroupIDs, g.ID)
	}
	return i
}

func (l *Launcher) settle(p *prepared, out *ec2.CreateFleetOutput) {
	if !p.plan {
		return
	}
	p.plan = false
	used := map[string]bool{}
	if out != nil {
		for _, item := range out.Instances {
			if o := item.LaunchTemplateAndOverrides; o != nil && o.Overrides != nil {
				used[aws.ToString(o.Overrides.SubnetId)] = true
			}
		}
	}
	l.deps.Subnets.Settle(p.subnets, used)
}

// note marks shortages and returns the error of the members that got nothing.
func (l *Launcher) note(ctx context.Context, req Request, p *prepared, items []ec2types.CreateFleetError) error {
	texts := map[string]bool{}
	capacity := true
	for _, item := range items {
		code, message := aws.ToString(item.ErrorCode), aws.ToString(item.ErrorMessage)
		text := code + ": " + message
		texts[text] = true
		var kind, zone, subnet string
		if o := item.LaunchTemplateAndOverrides; o != nil && o.Overrides != nil {
			kind, zone, subnet = string(o.Overrides.InstanceType), aws.ToString(o.Overrides.AvailabilityZone), aws.ToString(o.Overrides.SubnetId)
		}
		l.deps.Metrics.failures.WithLabelValues(zone, zoneID(req.Class, zone), p.choice.CapacityType, apierror.Classify(text).Reason).Inc()
		switch {
		case code == apierror.InsufficientFreeAddresses && subnet != "":
			l.deps.Shortages.MarkSubnet(subnet)
			l.deps.Subnets.Full(subnet)
		case apierror.IsUnfulfillable(code):
			l.deps.Shortages.MarkOffering(p.choice.CapacityType, kind, zone)
		case code == apierror.SpotRoleNotPermitted:
			l.deps.Shortages.MarkCapacityType(karpv1.CapacityTypeSpot)
			l.deps.SpotRoleDenied(ctx, req.Group.Claims[0])
		default:
			capacity = false
		}
	}
	if len(texts) == 0 {
		return &cloud.NoCapacityError{Err: errors.New("too few instances returned")}
	}
	combined := strings.Join(slices.Sorted(maps.Keys(texts)), "; ")
	err := fmt.Errorf("with fleet error(s), %s", combined)
	if capacity {
		return &cloud.NoCapacityError{Err: err}
	}
	c := apierror.Classify(combined)
	return &cloud.CreateError{Reason: c.Reason, Message: c.Message, Err: err}
}

func zoneID(nc *ec2v1.EC2NodeClass, zone string) string {
	for _, s := range nc.Status.Subnets {
		if s.Zone == zone {
			return s.ZoneID
		}
	}
	return ""
}
