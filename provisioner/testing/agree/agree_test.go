package agree_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/plugins/schedulertest"
	"github.com/berth-dev/berth/provisioner/fit"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

var agreeCount = flag.Int("agree-count", 300, "random problems of TestAlgebraAgreesWithFilters")

const plainConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
`

// filters builds a Fit over the default profile of the real scheduler.
func filters(t testing.TB) *fit.Fit {
	t.Helper()
	namespaces := make([]runtime.Object, 0, 2)
	for name, labels := range gen.Problem(0, gen.Options{}).Snapshot.NamespaceLabels {
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	s, err := schedulertest.New(t.Context(), schedulertest.NewClient(namespaces...), []byte(plainConfig), nil)
	require.NoError(t, err)
	options := fit.Options{Registry: s.Registry, Exclude: []string{"NodeProvision"}}
	for _, p := range s.Profiles {
		options.Profiles = append(options.Profiles, fit.Profile{Config: p, Running: s.Scheduler.Profiles[p.SchedulerName]})
	}
	f, err := fit.New(t.Context(), options)
	require.NoError(t, err)
	s.Informers.Start(t.Context().Done())
	s.Informers.WaitForCacheSync(t.Context().Done())
	return f
}

// once are seeds of problems on which algebra and filters disagreed before.
var once = []int{
	367, 394, 560, 627, 661, 796, 1046, 1252, 1441, 1840, 2418, 2819, 2827, 2845, 2949,
	5977, 7556, 8208, 10296, 10585, 10904, 14224, 15577, 15797, 16034, 16192, 17156, 18712,
}

// A disagreement is a placement that the algebra found good and the filters refuse: a bug in the algebra.
func TestAlgebraAgreesWithFilters(t *testing.T) {
	t.Parallel()
	f := filters(t)
	seeds := slices.Clone(once)
	for seed := range *agreeCount {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			p := gen.Problem(uint64(seed), gen.Options{})
			plan := solver.Solve(t.Context(), p, f)
			var said []string
			for _, d := range plan.Disagreements {
				said = append(said, fmt.Sprintf("%s on %s: %s: %s", d.Pod.Name, d.Target, d.Plugin, d.Reason))
			}
			require.Empty(t, said)
			require.Empty(t, check.Plan(p, plan))
		})
	}
}
