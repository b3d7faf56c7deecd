package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/cmd/berth/manifest"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	awstypes "github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/catalog"
	ourfake "github.com/berth-dev/berth/provisioner/generated/clientset/versioned/fake"
	"github.com/berth-dev/berth/provisioner/generated/informers/externalversions"
	"github.com/berth-dev/berth/provisioner/nodepool"
	"github.com/berth-dev/berth/provisioner/promise"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/state"
	"github.com/berth-dev/berth/provisioner/testing/scenario"
	"github.com/berth-dev/berth/provisioner/volume"
)

// input is what a simulation is about.
type input struct {
	problem solver.Problem
	filters *filters
	// shut are the pools that may not open nodes.
	shut []solver.PoolReason
	// left are pods that are not planned for, because of their volumes.
	left  []solver.Unfit
	notes []string
	// current is what the nodes of the input cost in an hour; priced says for how many that is known.
	current float64
	priced  int
}

// now is the time of every simulation: the same files give the same plan.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// read loads a scenario or manifests.
func read(ctx context.Context, o *Options, configuration []byte, stdin io.Reader) (*input, error) {
	isScenario, err := looksLikeScenario(o.Path)
	if err != nil {
		return nil, err
	}
	if isScenario {
		return readScenario(ctx, o, configuration)
	}
	set, err := manifest.Load(o.Path, stdin)
	if err != nil {
		return nil, err
	}
	return fromManifests(ctx, o, set, configuration)
}

// looksLikeScenario reports whether the file is one object with pools or pods and without a kind.
func looksLikeScenario(path string) (bool, error) {
	info, err := os.Stat(path)
	if path == "-" || err == nil && info.IsDir() {
		return false, nil
	}
	raw, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return false, fmt.Errorf("read input: %w", err)
	}
	if bytes.Contains(raw, []byte("\n---")) {
		return false, nil
	}
	var keys struct {
		Kind      string `json:"kind"`
		NodePools any    `json:"nodePools"`
		Pods      any    `json:"pods"`
	}
	if err := yaml.Unmarshal(raw, &keys); err != nil {
		return false, nil //nolint:nilerr // the loader of manifests tells where the fault is
	}
	return keys.Kind == "" && (keys.NodePools != nil || keys.Pods != nil), nil
}

func readScenario(ctx context.Context, o *Options, configuration []byte) (*input, error) {
	s, err := scenario.Load(o.Path)
	if err != nil {
		return nil, err
	}
	in := &input{}
	if in.problem, err = s.Problem(); err != nil {
		return nil, err
	}
	in.problem.Now, in.problem.NodeCost = now, o.NodeCost
	in.problem.Preferences, in.problem.RelaxMinValues = solver.PreferencePolicy(o.Preferences), o.MinValues == "BestEffort"
	in.price()
	if in.filters, err = newFilters(ctx, configuration, nil, in.problem.Pods); err != nil {
		return nil, err
	}
	in.filters.start(ctx)
	return in, nil
}

// fromManifests builds the model that the provisioner would have of these objects.
func fromManifests(ctx context.Context, o *Options, set *manifest.Set, configuration []byte) (*input, error) {
	in := &input{notes: set.Notes}
	pending, bound := sortPods(set.Pods)
	kube := slices.Clone(set.Others)
	for _, node := range set.Nodes {
		kube = append(kube, node)
	}
	for _, pod := range bound {
		kube = append(kube, pod)
	}
	for _, d := range set.Daemons {
		kube = append(kube, d)
	}
	var ours []runtime.Object
	for _, claim := range set.Claims {
		ours = append(ours, claim)
	}
	var err error
	if in.filters, err = newFilters(ctx, configuration, kube, pending); err != nil {
		return nil, err
	}
	own := externalversions.NewSharedInformerFactory(ourfake.NewSimpleClientset(ours...), 0)
	model, err := state.New(state.Deps{Core: in.filters.informers, Ours: own, Promises: promise.NewTable()})
	if err != nil {
		return nil, fmt.Errorf("make model: %w", err)
	}
	core, storage := in.filters.informers.Core().V1(), in.filters.informers.Storage().V1()
	volumes := volume.Listers{Claims: core.PersistentVolumeClaims().Lister(), Volumes: core.PersistentVolumes().Lister(), Classes: storage.StorageClasses().Lister()}
	in.filters.start(ctx)
	own.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), model.Synced) {
		return nil, errors.New("fill model: interrupted")
	}
	in.problem = solver.Problem{
		Snapshot: model.Snapshot(), Now: now, NodeCost: o.NodeCost, VolumeRequirements: map[types.UID][]requirement.Set{},
		Preferences: solver.PreferencePolicy(o.Preferences), RelaxMinValues: o.MinValues == "BestEffort",
	}
	for _, pod := range pending {
		places, fault := volumes.Demands(pod, volume.Pending)
		if fault != "" {
			in.left = append(in.left, solver.Unfit{Pod: pod, Reasons: []solver.PoolReason{{Reason: fault}}})
			continue
		}
		in.problem.Pods = append(in.problem.Pods, pod)
		if len(places) > 0 {
			in.problem.VolumeRequirements[pod.UID] = places
		}
	}
	in.openPools(o.Region, set)
	in.remarkSchedulers(configuration)
	in.price()
	return in, nil
}

// sortPods parts the pods that wait for a node from those that have one. Finished, leaving and gated
// pods are neither; pods of DaemonSets come with the nodes.
func sortPods(pods []*corev1.Pod) (pending, bound []*corev1.Pod) {
	for _, pod := range pods {
		owner := ownerKind(pod)
		switch {
		case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		case pod.Spec.NodeName != "":
			bound = append(bound, pod)
		case pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 && owner != "DaemonSet":
			pending = append(pending, pod)
		}
	}
	return pending, bound
}

func ownerKind(pod *corev1.Pod) string {
	for _, o := range pod.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			return o.Kind
		}
	}
	return ""
}

// openPools gives every pool that may open nodes the types of its class.
func (in *input) openPools(region string, set *manifest.Set) {
	settings := awstypes.Settings{Region: region, VMMemoryOverheadPercent: 0.075}
	byClass := map[string][]*catalog.InstanceType{}
	for _, pool := range set.Pools {
		shut := func(format string, args ...any) {
			in.shut = append(in.shut, solver.PoolReason{Pool: pool.Name, Reason: fmt.Sprintf(format, args...)})
		}
		if err := nodepool.Validate(pool); err != nil {
			shut("it is not valid: %v", err)
			continue
		}
		if pool.Spec.Replicas != nil {
			shut("it is static (spec.replicas is set)")
			continue
		}
		ref := pool.Spec.Template.Spec.NodeClassRef
		if ref != nil && (ref.Group != ec2v1.SchemeGroupVersion.Group || ref.Kind != "EC2NodeClass") {
			shut("spec.template.spec.nodeClassRef: %s %s is another provider's, want an EC2NodeClass of %s", ref.Kind, ref.Group, ec2v1.SchemeGroupVersion.Group)
			continue
		}
		name := ""
		if ref != nil {
			name = ref.Name
		}
		if _, known := byClass[name]; !known {
			byClass[name] = slices.DeleteFunc(awstypes.Published(in.class(name, set.Classes), settings), func(it *catalog.InstanceType) bool {
				return !slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool { return o.Available })
			})
		}
		if len(byClass[name]) == 0 {
			shut("no instance types are known for region %q; pass --region", region)
			continue
		}
		in.problem.Pools = append(in.problem.Pools, solver.Pool{NodePool: pool, Types: byClass[name]})
	}
}

// class finds the class by name; nil, with a remark, stands for AL2023 in all zones.
func (in *input) class(name string, classes []*ec2v1.EC2NodeClass) *awstypes.Class {
	for _, nc := range classes {
		if nc.Name == name {
			c := awstypes.ClassOf(nc)
			return &c
		}
	}
	in.notes = append(in.notes, fmt.Sprintf("EC2NodeClass %q is not in the files; its pools are planned with AL2023 defaults in every zone", name))
	return nil
}

// remarkSchedulers tells of pods that name none of the profiles.
func (in *input) remarkSchedulers(configuration []byte) {
	var config struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
		} `json:"profiles"`
	}
	if yaml.Unmarshal(configuration, &config) != nil || len(config.Profiles) == 0 {
		return
	}
	foreign := map[string]int{}
	for _, pod := range in.problem.Pods {
		known := false
		for _, p := range config.Profiles {
			known = known || p.SchedulerName == pod.Spec.SchedulerName
		}
		if !known {
			foreign[pod.Spec.SchedulerName]++
		}
	}
	for name, count := range foreign {
		in.notes = append(in.notes, fmt.Sprintf("%d pods name schedulerName %q; they are planned as if they named %q", count, name, config.Profiles[0].SchedulerName))
	}
	slices.Sort(in.notes)
}

// price adds up what the nodes of the input cost, as far as the pools' types tell.
func (in *input) price() {
	prices := map[[3]string]float64{}
	for _, pool := range in.problem.Pools {
		for _, it := range pool.Types {
			for _, offer := range it.Offerings {
				prices[[3]string{it.Name, offer.Zone, offer.CapacityType}] = offer.Price
			}
		}
	}
	for _, node := range in.problem.Snapshot.Nodes {
		l := node.Labels
		if p, ok := prices[[3]string{l[corev1.LabelInstanceTypeStable], l[corev1.LabelTopologyZone], l[karpv1.LabelCapacityType]}]; ok {
			in.current += p
			in.priced++
		}
	}
}
