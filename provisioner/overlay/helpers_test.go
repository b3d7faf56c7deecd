package overlay_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/api/karpenter/v1alpha1"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/overlay"
	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

const (
	in           = corev1.NodeSelectorOpIn
	notIn        = corev1.NodeSelectorOpNotIn
	exists       = corev1.NodeSelectorOpExists
	doesNotExist = corev1.NodeSelectorOpDoesNotExist

	vendor = corev1.ResourceName("vendor/x")
)

func req(key string, op corev1.NodeSelectorOperator, values ...string) v1alpha1.NodeSelectorRequirement {
	return v1alpha1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

type change func(*v1alpha1.NodeOverlay)

func of(items ...v1alpha1.NodeSelectorRequirement) change {
	return func(o *v1alpha1.NodeOverlay) { o.Spec.Requirements = items }
}
func ofType(names ...string) change { return of(req(corev1.LabelInstanceTypeStable, in, names...)) }
func price(p string) change         { return func(o *v1alpha1.NodeOverlay) { o.Spec.Price = &p } }
func adjust(p string) change        { return func(o *v1alpha1.NodeOverlay) { o.Spec.PriceAdjustment = &p } }
func weight(w int32) change         { return func(o *v1alpha1.NodeOverlay) { o.Spec.Weight = &w } }
func capacity(name corev1.ResourceName, amount string) change {
	return func(o *v1alpha1.NodeOverlay) {
		if o.Spec.Capacity == nil {
			o.Spec.Capacity = v1alpha1.ResourceList{}
		}
		o.Spec.Capacity[name] = resource.MustParse(amount)
	}
}

func makeOverlay(name string, changes ...change) *v1alpha1.NodeOverlay {
	o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(t0)}}
	for _, f := range changes {
		f(o)
	}
	return o
}

func rules(t testing.TB, overlays ...*v1alpha1.NodeOverlay) []*overlay.Rule {
	t.Helper()
	out := make([]*overlay.Rule, 0, len(overlays))
	for _, o := range overlays {
		r, err := overlay.Parse(o)
		require.NoError(t, err)
		out = append(out, r)
	}
	overlay.Order(out)
	return out
}

func makePool(name string, labels map[string]string) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1}}
	p.Spec.Template.Labels = labels
	p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "class"}
	return p
}

// machine costs 1.00 on demand and 0.40 on spot, in zones a and b.
func machine(name string) *catalog.InstanceType {
	it := &catalog.InstanceType{
		Name: name,
		Requirements: requirement.NewSet(
			requirement.New(corev1.LabelInstanceTypeStable, in, name), requirement.New(corev1.LabelArchStable, in, "amd64"),
			requirement.New("karpenter.k8s.aws/instance-cpu", in, "4"), requirement.New("karpenter.k8s.aws/instance-gpu-name", doesNotExist),
			requirement.New(corev1.LabelTopologyZone, in, "a", "b"),
		),
		Capacity: resources.Vector{MilliCPU: 4000, Memory: 16 << 30, Pods: 110},
		Overhead: resources.Vector{MilliCPU: 100},
	}
	for _, zone := range []string{"a", "b"} {
		for kind, p := range map[string]float64{"on-demand": 1, "spot": 0.4} {
			it.Offerings = append(it.Offerings, catalog.Offering{
				Zone: zone, CapacityType: kind, Price: p, Available: true,
				Requirements: requirement.FromLabels(map[string]string{corev1.LabelTopologyZone: zone, karpv1.LabelCapacityType: kind}),
			})
		}
	}
	return it
}

// prices lists the type's prices as "zone kind price".
func prices(it *catalog.InstanceType) map[string]float64 {
	out := map[string]float64{}
	for _, o := range it.Offerings {
		out[fmt.Sprintf("%s %s", o.Zone, o.CapacityType)] = o.Price
	}
	return out
}
