package aws_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/cloud"
)

// A thousand claims of five shapes stay within EC2's documented request limits.
func TestThousandClaimsStayWithinTheLimitsOfEC2(t *testing.T) {
	if testing.Short() {
		t.Skip("launches a thousand instances")
	}
	t.Parallel()
	w, p := ready(t, func(o *ec2sim.Options) { o.Throttle = true })
	shapes := [][]string{{"m5.large", "m5a.large", "m6i.large"}, {"c5.xlarge", "c6i.xlarge"}, {"r5.large", "r6i.large"}, {"m5.2xlarge", "m6i.2xlarge"}, {"c5.4xlarge", "c6i.4xlarge"}}
	var groups []cloud.Group
	for g := range 40 {
		group := cloud.Group{ID: fmt.Sprintf("g%d", g), Attempt: 1}
		for i := range 25 {
			name := fmt.Sprintf("c-%d-%d", g, i)
			group.Claims = append(group.Claims, &karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: apitypes.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)), Labels: map[string]string{karpv1.LabelNodePool: "default"}},
				Spec: karpv1.NodeClaimSpec{NodeClassRef: ref("default"), Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					capacity(spot, onDemand), in(corev1.LabelInstanceTypeStable, shapes[g%5]...)}},
			})
		}
		groups = append(groups, group)
	}
	began := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for _, group := range groups {
		wg.Go(func() {
			got, err := p.Create(t.Context(), group)
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range got {
				if c.Err != nil {
					t.Error(c.Err)
					continue
				}
				if _, err := p.Get(t.Context(), c.Instance.ProviderID); err != nil {
					t.Error(err)
				}
				mu.Lock()
				ids = append(ids, c.Instance.ProviderID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Less(t, time.Since(began), 60*time.Second)
	require.Equal(t, 1000, distinct(ids))
	require.LessOrEqual(t, len(w.fleets()), 200)
	var throttled int
	calls := w.Calls()
	for _, c := range calls {
		if c.Code == "RequestLimitExceeded" {
			throttled++
		}
	}
	require.Less(t, float64(throttled), 0.01*float64(len(calls)))
	t.Logf("%d claims in %s: %d calls, %d CreateFleet, %d throttled", len(ids), time.Since(began), len(calls), len(w.fleets()), throttled)
}

// Claims that have nothing in common need a call each. They go at the pace that EC2 allows.
func TestDistinctShapesGoAtThePaceOfEC2(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for EC2's request buckets")
	}
	t.Parallel()
	w, p := ready(t, func(o *ec2sim.Options) { o.Throttle = true })
	began := time.Now()
	var wg sync.WaitGroup
	const shapes = 80
	for g := range shapes {
		name := fmt.Sprintf("c-%d", g)
		claim := &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: apitypes.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)), Labels: map[string]string{karpv1.LabelNodePool: "default"}},
			Spec:       karpv1.NodeClaimSpec{NodeClassRef: ref("default"), Requirements: []karpv1.NodeSelectorRequirementWithMinValues{capacity(onDemand), types("m5.large")}},
		}
		wg.Go(func() {
			got, err := p.Create(t.Context(), cloud.Group{ID: name, Attempt: 1, Claims: []*karpv1.NodeClaim{claim}})
			if err != nil || got[0].Err != nil {
				t.Error(err, got)
			}
		})
	}
	wg.Wait()
	for _, c := range w.Calls() {
		require.NotEqual(t, "RequestLimitExceeded", c.Code)
	}
	require.Len(t, w.running(), shapes)
	t.Logf("%d distinct launches in %s", shapes, time.Since(began))
}
