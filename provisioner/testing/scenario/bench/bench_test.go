package bench_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
	"github.com/berth-dev/berth/provisioner/testing/scenario/bench"
)

// testdata/sums.txt holds what sha256sum says of the files that the Python program writes: SUM SEED/FILE.
func TestFilesAreThoseOfThePythonProgram(t *testing.T) {
	t.Parallel()
	sums, err := os.ReadFile("testdata/sums.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(sums)), "\n")
	require.Len(t, lines, 4*len(bench.Names())+len(bench.Catalogues), "four seeds")
	for _, line := range lines {
		want, path, _ := strings.Cut(line, "  ")
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			folder, file, _ := strings.Cut(strings.TrimSuffix(path, ".json"), "/")
			seed, err := strconv.Atoi(folder)
			require.NoError(t, err)
			var raw []byte
			if which, ok := strings.CutPrefix(file, "catalog-"); ok {
				raw, err = bench.CatalogueFile(which)
			} else {
				raw, err = bench.File(file, seed)
			}
			require.NoError(t, err)
			sum := sha256.Sum256(raw)
			require.Equal(t, want, hex.EncodeToString(sum[:]))
		})
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	require.NoError(t, bench.Write(dir, 3, "g-probe-504"))
	written, err := os.ReadFile(filepath.Join(dir, "g-probe-504.json"))
	require.NoError(t, err)
	want, err := bench.File("g-probe-504", 3)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, written))
	require.FileExists(t, filepath.Join(dir, "catalog-current.json"))
	require.ErrorContains(t, bench.Write(dir, 1, "x"), `there is no scenario "x": there are a-diverse-100, `)
}

// peer has what the peer pays for the pods of seed 1, in dollars an hour, where it places them all.
var peer = map[string]float64{
	"a-diverse-100": 1.22, "a-diverse-1000": 13.43, "b-homogeneous-10k": 18.99,
	"c-microservices-300": 140.06, "c-microservices-300-open": 138.68, "d-mixed-pools": 75.91,
	"e-batch-3000": 113.80, "e-batch-3000-open": 307.68, "f-existing-504": 32.60, "f-existing-2004": 32.60,
}

// Plans keep every hard rule and cost no more than the peer's.
func TestPlansAreRightAndCheap(t *testing.T) {
	t.Parallel()
	for name, limit := range peer {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := bench.Scenario(name, 1)
			require.NoError(t, err)
			p, err := s.Problem()
			require.NoError(t, err)
			plan := solver.Solve(t.Context(), p, nil)
			price := 0.0
			for _, c := range plan.Claims {
				price += c.Cheapest.Price
			}
			require.Empty(t, plan.Unfit)
			require.LessOrEqual(t, price, limit)
			require.Empty(t, check.Plan(p, plan))
		})
	}
}

// Planning without the scheduler's filters, as BenchmarkSolve of the solver measures it for made-up mixes.
func BenchmarkScenario(b *testing.B) {
	for _, name := range bench.Names() {
		b.Run(name, func(b *testing.B) {
			s, err := bench.Scenario(name, 1)
			require.NoError(b, err)
			p, err := s.Problem()
			require.NoError(b, err)
			var plan solver.Plan
			b.ReportAllocs()
			for b.Loop() {
				plan = solver.Solve(b.Context(), p, nil)
			}
			price := 0.0
			for _, c := range plan.Claims {
				price += c.Cheapest.Price
			}
			b.ReportMetric(price, "USD/h")
			b.ReportMetric(float64(len(plan.Claims)), "nodes")
			b.ReportMetric(float64(len(p.Pods)-len(plan.Unfit)), "placed")
		})
	}
}
