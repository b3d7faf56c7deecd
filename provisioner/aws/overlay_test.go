package aws_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// What the plan was made with is what EC2 is asked for: order by the adjusted price, room by the declared
// capacity. Before overlays are known, nothing may be given up.
func TestLaunchByAdjustedTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var known atomic.Bool
	w.change = func(c *aws.Config) {
		c.Adjust = func(pool string, list []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
			if !known.Load() {
				return nil, errors.New("the node overlays have not been evaluated for it yet")
			}
			out := slices.Clone(list)
			for i, it := range out {
				if pool == "default" && it.Name == "m5.xlarge" {
					changed := *it
					changed.Offerings = slices.Clone(it.Offerings)
					for j := range changed.Offerings {
						changed.Offerings[j].Price = 0.001
					}
					changed.Capacity = changed.Capacity.With("vendor/x", 2)
					out[i] = &changed
				}
			}
			return out, nil
		}
	}
	w.class("default", nil)
	p := w.start()
	w.waitReady(p, "default")
	w.ResetCalls()
	claims := w.claims("default", 4, capacity(onDemand), types("m5.large", "m5.xlarge"))
	launch := func(group string, change func(*karpv1.NodeClaim)) ([]cloud.Created, error) {
		claim := claims[0]
		claims = claims[1:]
		claim.Labels[karpv1.LabelNodePool] = "default"
		claim.Annotations = map[string]string{karpv1.AnnotationPriceOverlayApplied: "true"}
		change(claim)
		return p.Create(t.Context(), cloud.Group{ID: group, Attempt: 1, Claims: []*karpv1.NodeClaim{claim}})
	}
	_, err := launch("early", func(*karpv1.NodeClaim) {})
	require.ErrorContains(t, err, "adjust instance types: the node overlays have not been evaluated")
	require.False(t, cloud.IsNoCapacity(err), "it is tried again")
	known.Store(true)

	_, err = launch("priced", func(*karpv1.NodeClaim) {})
	require.NoError(t, err)
	form := w.fleets()[0]
	first := map[string]string{} // priority by type
	for key := range maps.Keys(form) {
		if at, ok := strings.CutSuffix(key, ".Priority"); ok {
			first[form.Get(at+".InstanceType")] = form.Get(key)
		}
	}
	require.Equal(t, "0.001", first["m5.xlarge"])
	require.NotEqual(t, "0.001", first["m5.large"])

	created, err := launch("declared", func(c *karpv1.NodeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{"vendor/x": resource.MustParse("2")}
	})
	require.NoError(t, err)
	require.NoError(t, created[0].Err)
	require.Equal(t, "m5.xlarge", created[0].Instance.Labels[corev1.LabelInstanceTypeStable])
	have := created[0].Instance.Capacity["vendor/x"]
	require.Equal(t, "2", have.String(), "the claim tells what it was bought for")
	created, err = launch("elsewhere", func(c *karpv1.NodeClaim) {
		c.Labels[karpv1.LabelNodePool] = "other"
		c.Spec.Resources.Requests = corev1.ResourceList{"vendor/x": resource.MustParse("2")}
	})
	require.NoError(t, err)
	require.True(t, cloud.IsNoCapacity(created[0].Err), "no overlay is about that pool")
}
