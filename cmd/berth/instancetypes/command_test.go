package instancetypes_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/cmd/berth/instancetypes"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := instancetypes.NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func rows(t *testing.T, text string) [][]string {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	return all
}

// The csv is the published reference page, cell by cell, apart from cells where the facts are newer.
func TestCSVAgreesWithThePublishedPage(t *testing.T) {
	t.Parallel()
	const data = "../../../provisioner/aws/types/testdata/"
	oracle, err := os.ReadFile(data + "oracle-allocatable.csv")
	require.NoError(t, err)
	drift, err := os.ReadFile(data + "oracle-known-drift.csv")
	require.NoError(t, err)
	newer := map[[2]string]bool{}
	for _, row := range rows(t, string(drift))[1:] {
		newer[[2]string{row[0], row[1]}] = true
	}
	out, err := run(t, "-o", "csv")
	require.NoError(t, err)
	want, got := rows(t, string(oracle)), rows(t, out)
	require.Equal(t, want[0], got[0], "the columns")
	byName := map[string][]string{}
	for _, row := range got[1:] {
		byName[row[0]] = row
	}
	missing := 0
	for _, row := range want[1:] {
		have, ok := byName[row[0]]
		if !ok {
			missing++
			continue
		}
		for i, cell := range row {
			if !newer[[2]string{row[0], want[0][i]}] {
				require.Equal(t, cell, have[i], "%s %s", row[0], want[0][i])
			}
		}
	}
	require.Zero(t, missing, "every type of the page is there")
}

func TestJSONHasPricesPerZone(t *testing.T) {
	t.Parallel()
	out, err := run(t, "-o", "json", "--match", "m5.large")
	require.NoError(t, err)
	var list []struct {
		Name                string
		Labels, Allocatable map[string]string
		Prices              map[string]map[string]float64
		Capacity, Overhead  map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list, 1)
	require.Equal(t, "1930m", list[0].Allocatable["cpu"])
	require.Equal(t, "2", list[0].Capacity["cpu"])
	require.Equal(t, "70m", list[0].Overhead["cpu"])
	require.InDelta(t, 0.096, list[0].Prices["us-east-1a"]["on-demand"], 1e-9)
	require.Less(t, list[0].Prices["us-east-1a"]["spot"], 0.096)
}

func TestClassChangesWhatPodsGet(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "class.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: d}\nspec: {amiSelectorTerms: [{alias: al2023@latest}], kubelet: {maxPods: 5}}"), 0o600))
	out, err := run(t, "--class", file, "--match", "m5.large")
	require.NoError(t, err)
	require.Contains(t, out, "m5.large")
	require.Regexp(t, `m5\.large +amd64 +1930m +\S+ +5 `, out)
}

func TestBadFlagsNameTheFault(t *testing.T) {
	t.Parallel()
	for flag, args := range map[string][]string{
		"--output":                     {"-o", "xml"},
		"--region":                     {"--region", "moon-1"},
		"--match":                      {"--match", "zz*"},
		"--class":                      {"--class", "/does/not/exist"},
		"--vm-memory-overhead-percent": {"--vm-memory-overhead-percent", "7.5"},
		"--reserved-enis":              {"--reserved-enis", "-1"},
	} {
		_, err := run(t, args...)
		require.ErrorContains(t, err, flag)
	}
}
