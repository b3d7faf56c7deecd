package solver_test

import (
	"testing"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/gen"
)

func BenchmarkSolve(b *testing.B) {
	existing := func(nodes, perNode int) solver.Problem {
		p := gen.Scale(1000, 100, 800)
		gen.Fill(&p, nodes, perNode)
		return p
	}
	problems := map[string]func() solver.Problem{
		"pods=1/classes=1/types=800":        func() solver.Problem { return gen.Scale(1, 1, 800) },
		"pods=1000/classes=100/types=800":   func() solver.Problem { return gen.Scale(1000, 100, 800) },
		"pods=20000/classes=400/types=800":  func() solver.Problem { return gen.Scale(20000, 400, 800) },
		"pods=1000/nodes=5000/bound=100000": func() solver.Problem { return existing(5000, 20) },
		"pods=20000/classes=1/types=800":    func() solver.Problem { p := gen.Scale(0, 0, 800); p.Pods = gen.Equal(20000, "100m", "128Mi"); return p },
	}
	for name, make := range problems {
		b.Run(name, func(b *testing.B) {
			p := make()
			b.ReportAllocs()
			for b.Loop() {
				plan := solver.Solve(b.Context(), p, nil)
				if len(plan.Claims)+len(plan.Existing) == 0 {
					b.Fatal("nothing was placed")
				}
			}
			b.ReportMetric(float64(len(p.Pods)*b.N)/b.Elapsed().Seconds(), "pods/s")
		})
	}
}
