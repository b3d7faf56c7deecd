package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	awspricing "github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/eks"
	"github.com/berth-dev/berth/provisioner/aws/fleet"
	"github.com/berth-dev/berth/provisioner/aws/image"
	"github.com/berth-dev/berth/provisioner/aws/instance"
	"github.com/berth-dev/berth/provisioner/aws/network"
	"github.com/berth-dev/berth/provisioner/aws/nodeclass"
	"github.com/berth-dev/berth/provisioner/aws/pace"
	"github.com/berth-dev/berth/provisioner/aws/pricing"
	"github.com/berth-dev/berth/provisioner/aws/profile"
	"github.com/berth-dev/berth/provisioner/aws/template"
	"github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
	ec2listers "github.com/berth-dev/berth/provisioner/generated/listers/ec2/v1"
	karplisters "github.com/berth-dev/berth/provisioner/generated/listers/karpenter/v1"
)

// replayWindow is how long after the start claims may stem from an earlier process: their creation
// times are the API server's, to a second.
const replayWindow = 10 * time.Second

// byInstance indexes claims by the ID of their instance.
const byInstance = "aws-instance"

var _ cloud.Provider = (*Provider)(nil)

// Provider is cloud.Provider on EC2. Safe for concurrent use.
type Provider struct {
	cfg     Config
	metrics *metrics

	classes    ec2listers.EC2NodeClassLister
	claims     karplisters.NodeClaimLister
	claimIndex cache.Indexer
	synced     []cache.InformerSynced

	types     *types.Catalog
	offers    *types.Metrics
	prices    *pricing.Prices
	images    *image.Resolver
	profiles  *profile.Manager
	templates *template.Store
	instances *instance.Store
	launcher  *fleet.Launcher
	nodes     *nodeclass.Controller
	tagger    *tagger
	stock     *types.Unavailable
	health    ec2.DescribeInstanceStatusAPIClient

	mu      sync.Mutex
	started time.Time                     // of Run; zero before
	seen    map[string]*instance.Instance // by ID, from List and Get
}

// New wires a Provider. It asks AWS nothing and starts nothing; Run does.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("configure AWS: %w", err)
	}
	p := &Provider{
		cfg: cfg, metrics: newMetrics(cfg.Registry), offers: types.NewMetrics(cfg.Registry),
		classes: cfg.Informers.EC2().V1().EC2NodeClasses().Lister(), claims: cfg.Informers.Karpenter().V1().NodeClaims().Lister(),
		seen: map[string]*instance.Instance{},
	}
	if err := p.watchClaims(); err != nil {
		return nil, fmt.Errorf("configure AWS: %w", err)
	}
	pacer := pace.New()
	ec2Client := ec2.NewFromConfig(cfg.AWS, func(o *ec2.Options) { o.APIOptions = append(o.APIOptions, pacer.Install) })
	iamClient := iam.NewFromConfig(cfg.AWS)
	priceConfig := cfg.AWS.Copy()
	priceConfig.Region = pricing.APIRegion(cfg.Region)
	stock := types.NewUnavailable(cfg.Clock)
	p.stock, p.health = stock, ec2Client
	subnets := network.NewSubnets(ec2Client, cfg.Clock, cfg.SubnetInterval)
	cluster := eks.New(awseks.NewFromConfig(cfg.AWS), cfg.ClusterName)
	p.prices = pricing.New(awspricing.NewFromConfig(priceConfig), ec2Client, cfg.Clock, pricing.Options{Region: cfg.Region, Isolated: cfg.IsolatedVPC})
	p.types = types.NewCatalog(types.Deps{EC2: ec2Client, Prices: p.prices, Stock: stock, Clock: cfg.Clock, Metrics: p.offers},
		types.Settings{Region: cfg.Region, VMMemoryOverheadPercent: cfg.VMMemoryOverheadPercent, ReservedENIs: cfg.ReservedENIs})
	p.images = image.NewResolver(ec2Client, ssm.NewFromConfig(cfg.AWS), cfg.Clock, cfg.KubernetesVersion)
	p.profiles = profile.NewManager(iamClient, cfg.Clock, cfg.Region, cfg.ClusterName)
	p.templates = template.NewStore(ec2Client, cfg.Clock, cfg.ClusterName, template.NewMetrics(cfg.Registry))
	p.instances = instance.NewStore(ec2Client, cfg.Clock, cfg.ClusterName, instance.NewMetrics(cfg.Registry))
	p.launcher = fleet.New(fleet.Deps{
		EC2: ec2Client, Templates: p.templates, Groups: p.instances, Subnets: subnets, Shortages: stock, CIDR: cluster.CIDR,
		Owner: p.ownerOf, SpotRoleDenied: p.spotRoleDenied, Clock: cfg.Clock, Metrics: fleet.NewMetrics(cfg.Registry),
	}, fleet.Options{Region: cfg.Region, Cluster: cfg.ClusterName, Endpoint: cfg.ClusterEndpoint, CABundle: cfg.ClusterCA, DNS: cfg.KubeDNSIP})
	p.nodes, err = nodeclass.New(nodeclass.Deps{
		Client: cfg.Client, Informers: cfg.Informers, EC2: ec2Client, Subnets: subnets, Images: p.images, Profiles: p.profiles,
		Templates: p.templates, Types: p.types, Launcher: p.launcher, EKS: cluster, Events: cfg.Events, Sink: cfg.Sink, Clock: cfg.Clock,
	}, nodeclass.Options{Cluster: cfg.ClusterName, CABundle: cfg.ClusterCA, Isolated: cfg.IsolatedVPC, NoDryRun: cfg.DisableDryRun,
		ImageInterval: cfg.ImageInterval, SubnetInterval: cfg.SubnetInterval})
	if err != nil {
		return nil, fmt.Errorf("configure AWS: %w", err)
	}
	return p, nil
}

func (p *Provider) watchClaims() error {
	informer := p.cfg.Informers.Karpenter().V1().NodeClaims().Informer()
	err := informer.AddIndexers(cache.Indexers{byInstance: func(object any) ([]string, error) {
		if claim, ok := object.(*karpv1.NodeClaim); ok {
			if id := instance.IDOf(claim.Status.ProviderID); id != "" {
				return []string{id}, nil
			}
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("index NodeClaims by instance: %w", err)
	}
	p.claimIndex = informer.GetIndexer()
	p.tagger = newTagger(p)
	handler, err := informer.AddEventHandler(p.tagger.handler())
	if err != nil {
		return fmt.Errorf("watch NodeClaims: %w", err)
	}
	p.synced = append(p.synced, handler.HasSynced, p.cfg.Informers.EC2().V1().EC2NodeClasses().Informer().HasSynced)
	return nil
}

// ownerOf returns the claim whose status has the instance, "" when none has.
func (p *Provider) ownerOf(id string) string {
	owners, err := p.claimIndex.ByIndex(byInstance, id)
	if err != nil || len(owners) == 0 {
		return ""
	}
	claim, ok := owners[0].(*karpv1.NodeClaim)
	if !ok {
		return ""
	}
	return claim.Name
}

func (p *Provider) spotRoleDenied(_ context.Context, claim *karpv1.NodeClaim) {
	p.cfg.Sink.Event(claim, corev1.EventTypeWarning, "SpotServiceLinkedRoleCreationFailure",
		`Attempted to launch a spot instance but failed due to "AuthFailure.ServiceLinkedRoleCreationNotPermitted"`)
}

// class returns the class of a reference. A missing or ending one is a *cloud.ClassNotReadyError.
func (p *Provider) class(ref *karpv1.NodeClassReference) (*ec2v1.EC2NodeClass, error) {
	if ref == nil || ref.Group != ec2v1.Group || ref.Kind != "EC2NodeClass" {
		return nil, &cloud.ClassNotReadyError{Err: errors.New("nodeClassRef does not name an EC2NodeClass of karpenter.k8s.aws")}
	}
	return p.classNamed(ref.Name)
}

func (p *Provider) classNamed(name string) (*ec2v1.EC2NodeClass, error) {
	nc, err := p.classes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("Failed resolving NodeClass: EC2NodeClass %q does not exist", name)} //nolint:staticcheck // the event's wording
	case err != nil:
		return nil, fmt.Errorf("get class %s: %w", name, err)
	case nc.DeletionTimestamp != nil:
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("Failed resolving NodeClass: EC2NodeClass %q is being deleted", name)} //nolint:staticcheck // the event's wording
	}
	return nc, nil
}

// checkReady returns why nothing can be launched from the class now.
func checkReady(nc *ec2v1.EC2NodeClass) error {
	ready := meta.FindStatusCondition(nc.Status.Conditions, ec2v1.ConditionReady)
	switch {
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		message := "EC2NodeClass " + nc.Name + " is not resolved yet"
		err := errors.New(message)
		if ready != nil && ready.Message != "" {
			err = errors.New(ready.Message)
		}
		return &cloud.CreateError{Reason: karpv1.ReasonNodeClassReadinessUnknown, Message: message, Err: err}
	case ready.Status == metav1.ConditionFalse:
		return &cloud.ClassNotReadyError{Err: fmt.Errorf("EC2NodeClass %s: %s", nc.Name, cmp.Or(ready.Message, ready.Reason))}
	case ready.ObservedGeneration != nc.Generation:
		return &cloud.ClassNotReadyError{Err: fmt.Errorf("EC2NodeClass %s: status has not been reconciled against the latest spec", nc.Name)}
	}
	return nil
}

// InstanceTypes implements cloud.Provider. Until EC2 has answered once it returns an error.
func (p *Provider) InstanceTypes(_ context.Context, pool *karpv1.NodePool) (_ []*catalog.InstanceType, err error) {
	defer p.metrics.observe("GetInstanceTypes", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	nc, err := p.class(pool.Spec.Template.Spec.NodeClassRef)
	if err != nil {
		return nil, err
	}
	return p.types.ForClass(nc)
}

// Create implements cloud.Provider.
func (p *Provider) Create(ctx context.Context, group cloud.Group) (_ []cloud.Created, err error) {
	defer p.metrics.observe("Create", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	if len(group.Claims) == 0 {
		return nil, fmt.Errorf("launch group %s has no members", group.ID)
	}
	nc, err := p.class(group.Claims[0].Spec.NodeClassRef)
	if err != nil {
		return nil, err
	}
	if err := checkReady(nc); err != nil {
		return nil, err
	}
	list, err := p.types.ForClass(nc)
	if err != nil {
		return nil, &cloud.CreateError{Reason: "InstanceTypeResolutionFailed", Message: "Instance types cannot be resolved", Err: err}
	}
	if p.cfg.Adjust != nil {
		if list, err = p.cfg.Adjust(group.Claims[0].Labels[karpv1.LabelNodePool], list); err != nil {
			return nil, fmt.Errorf("adjust instance types: %w", err)
		}
	}
	outcomes, err := p.launcher.Create(ctx, fleet.Request{Group: group, Class: nc, Types: list, Replayed: p.mayBeReplay(group)})
	if err != nil {
		return nil, err
	}
	created := make([]cloud.Created, len(outcomes))
	for i, o := range outcomes {
		if o.Instance == nil {
			created[i].Err = o.Err
			continue
		}
		created[i].Instance = p.convert(o.Instance, nc, list, fleet.WishOf(group.Claims[i]).EFA)
		created[i].Instance.ClaimName = group.Claims[i].Name
	}
	return created, nil
}

// mayBeReplay reports whether an earlier process may have launched the group.
func (p *Provider) mayBeReplay(group cloud.Group) bool {
	p.mu.Lock()
	limit := p.started.Add(replayWindow)
	p.mu.Unlock()
	return slices.ContainsFunc(group.Claims, func(c *karpv1.NodeClaim) bool { return c.CreationTimestamp.Time.Before(limit) })
}

// Delete implements cloud.Provider. A claim that does not know its instance is looked up by tag.
func (p *Provider) Delete(ctx context.Context, claim *karpv1.NodeClaim) (err error) {
	defer p.metrics.observe("Delete", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	if id := instance.IDOf(claim.Status.ProviderID); id != "" {
		return p.instances.Terminate(ctx, id)
	}
	if claim.Name == "" {
		return &cloud.NotFoundError{Err: errors.New("claim has neither a name nor a provider ID")}
	}
	found, err := p.instances.List(ctx, network.Filter("tag:"+ec2v1.TagNodeClaim, claim.Name))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &cloud.NotFoundError{Err: fmt.Errorf("no instance is tagged with NodeClaim %s", claim.Name)}
	}
	var errs []error
	for _, i := range found {
		errs = append(errs, p.instances.Terminate(ctx, i.ID))
	}
	return errors.Join(errs...)
}

// Get implements cloud.Provider.
func (p *Provider) Get(ctx context.Context, providerID string) (_ *cloud.Instance, err error) {
	defer p.metrics.observe("Get", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	id := instance.IDOf(providerID)
	if id == "" {
		return nil, &cloud.NotFoundError{Err: fmt.Errorf("provider ID %q names no EC2 instance; it looks like aws:///us-east-1a/i-0123456789abcdef0", providerID)}
	}
	i, err := p.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.convertTagged(ctx, i), nil
}

func (p *Provider) describe(ctx context.Context, id string) (*instance.Instance, error) {
	i, err := p.instances.Get(ctx, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.seen[id] = i
	case cloud.IsNotFound(err):
		delete(p.seen, id)
	}
	return i, err
}

// known returns what was last seen of an instance, asking EC2 when it never was.
func (p *Provider) known(ctx context.Context, id string) (*instance.Instance, error) {
	p.mu.Lock()
	i := p.seen[id]
	p.mu.Unlock()
	if i != nil {
		return i, nil
	}
	return p.describe(ctx, id)
}

// List implements cloud.Provider.
func (p *Provider) List(ctx context.Context) (_ []*cloud.Instance, err error) {
	defer p.metrics.observe("List", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	found, err := p.instances.List(ctx)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]*instance.Instance, len(found))
	out := make([]*cloud.Instance, len(found))
	for n, i := range found {
		seen[i.ID] = i
		out[n] = p.convertTagged(ctx, i)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = seen
	return out, nil
}

// RepairPolicies implements cloud.Provider.
func (p *Provider) RepairPolicies() []cloud.RepairPolicy {
	const half = 30 * time.Minute
	policies := []cloud.RepairPolicy{
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, Toleration: half},
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, Toleration: half},
		{ConditionType: "AcceleratedHardwareReady", ConditionStatus: corev1.ConditionFalse, Toleration: 10 * time.Minute},
	}
	for _, kind := range []corev1.NodeConditionType{"StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady"} {
		policies = append(policies, cloud.RepairPolicy{ConditionType: kind, ConditionStatus: corev1.ConditionFalse, Toleration: half})
	}
	return policies
}

// Ready returns nil once instance types are known, else an error that says what is waited for.
func (p *Provider) Ready() error {
	select {
	case <-p.types.Known():
		return nil
	default:
		return errors.New("AWS has not told its instance types yet")
	}
}

func logger(ctx context.Context) klog.Logger { return klog.FromContext(ctx) }

// MarkOffering notes that EC2 took an instance of the type back, so that it is not bought again there at
// once.
func (p *Provider) MarkOffering(capacityType, instanceType, zone string) {
	p.stock.MarkOffering(capacityType, instanceType, zone)
}

// Ailments returns what EC2 says is wrong with any instance of the account and region, ours or not.
func (p *Provider) Ailments(ctx context.Context) (_ []cloud.Ailment, err error) {
	defer p.metrics.observe("Ailments", p.cfg.Clock.Now(), p.cfg.Clock, &err)
	return instance.Ailments(ctx, p.health)
}
