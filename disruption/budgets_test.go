package disruption_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

// mondays limits disruption of the pool in a window that is not open at t0.
func mondays(pool *karpv1.NodePool) {
	schedule := "0 1 * * mon"
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "35%", Schedule: &schedule, Duration: &metav1.Duration{Duration: 4 * time.Hour}}}
}

func TestCase015DriftOutsideEveryWindow(t *testing.T) {
	t.Parallel()
	t.Run("goes on, and is warned of", func(t *testing.T) {
		t.Parallel()
		w := newWorld(drifted(append(nodes("n1"), makePool(mondays), makePod("p", "n1", owned("web"))))...)
		w.planning(1)
		w.start(t)
		w.eventually(t, func() bool { return w.claim("new-a") != nil }, "no budget is no limit")
		for _, reason := range []string{"Drifted", "Underutilized"} {
			w.eventually(t, func() bool {
				w.has("")
				for _, e := range w.seen {
					if strings.HasPrefix(e, "Warning BudgetGap no budget for "+reason+" outside the windows") {
						return true
					}
				}
				return false
			}, "the pool is warned about "+reason)
		}
	})
	t.Run("stops where the pool denies it", func(t *testing.T) {
		t.Parallel()
		objects := drifted(append(nodes("n1"), makePool(mondays), makePod("p", "n1", owned("web"))))
		for _, o := range objects {
			if pool, ok := o.(*karpv1.NodePool); ok {
				pool.Annotations[karpv1.AnnotationBudgetsOutsideWindows] = karpv1.BudgetsOutsideWindowsDeny
			}
		}
		w := newWorld(objects...)
		w.planning(1)
		w.start(t)
		w.eventually(t, func() bool {
			return w.has("Normal DisruptionBlocked No allowed disruptions for disruption reason Drifted due to blocking budget")
		}, "it says why nothing goes")
		w.rounds(t, 5)
		require.Nil(t, w.claim("new-a"))
		w.clock.SetTime(time.Date(2026, 1, 5, 1, 30, 0, 0, time.UTC))
		w.eventually(t, func() bool { return w.claim("new-a") != nil }, "on Monday it goes on")
	})
}
