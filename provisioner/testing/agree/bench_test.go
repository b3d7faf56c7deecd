package agree_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

// BenchmarkSolveAndConfirm measures planning with the scheduler's filters. filters-s/op is what the filters
// took of it.
func BenchmarkSolveAndConfirm(b *testing.B) {
	for _, pods := range []int{1, 100, 1000, 5000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			f := filters(b)
			p := gen.Scale(pods, max(pods/10, 1), 800)
			var algebra time.Duration
			for b.Loop() {
				start := time.Now()
				solver.Solve(b.Context(), p, nil)
				algebra += time.Since(start)
				if plan := solver.Solve(b.Context(), p, f); len(plan.Disagreements) > 0 {
					b.Fatal("the filters disagree")
				}
			}
			b.ReportMetric((b.Elapsed()-2*algebra).Seconds()/float64(b.N), "filters-s/op")
		})
	}
}
