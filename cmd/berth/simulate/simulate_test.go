package simulate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/cmd/berth/simulate"
)

// run executes the command and returns what it wrote.
func run(t *testing.T, args ...string) (out, stderr string, err error) {
	t.Helper()
	cmd := simulate.NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var stdout, errs bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), errs.String(), err
}

type result struct {
	NodeClaims []struct {
		Name, NodePool string
		InstanceTypes  []string
		Cheapest       struct {
			Type, Zone, CapacityType string
			Price                    float64
		}
		Pods []string
	}
	Unschedulable []struct {
		Pod     string
		Reasons []string
	}
	Existing                                     map[string]string
	HourlyPrice, LowerBound, Seconds, FitSeconds float64
	PeakRSSBytes                                 int64
	Violations                                   []string
	Compare                                      map[string]float64
}

func simulateJSON(t *testing.T, args ...string) result {
	t.Helper()
	out, _, err := run(t, append(args, "-o", "json")...)
	require.NoError(t, err)
	var r result
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	return r
}

func TestManifestsBecomeAPlan(t *testing.T) {
	t.Parallel()
	r := simulateJSON(t, "-f", "testdata/shop.yaml", "--compare", "--verify")
	placed := map[string]string{}
	sum := 0.0
	for _, c := range r.NodeClaims {
		require.Equal(t, "general", c.NodePool)
		require.Equal(t, c.Cheapest.Type, c.InstanceTypes[0])
		require.GreaterOrEqual(t, len(c.InstanceTypes), 15)
		sum += c.Cheapest.Price
		for _, pod := range c.Pods {
			placed[pod] = c.Cheapest.Zone
		}
	}
	for pod := range r.Existing {
		placed[pod] = r.Existing[pod]
	}
	require.Equal(t, "us-east-1b", placed["shop/db-0"], "the storage class allows that zone only")
	require.Len(t, placed, 5, "2 of the Deployment, 1 of the StatefulSet, 2 of the Job: %v", placed)
	require.NotContains(t, placed, "shop/web-6f7d-x2x2x", "it runs already")
	require.Len(t, r.Unschedulable, 1)
	require.Equal(t, "typo", r.Unschedulable[0].Pod)
	require.Contains(t, r.Unschedulable[0].Reasons[0], "nodepool general")
	require.Contains(t, r.Unschedulable[0].Reasons[0], "typo?")
	require.InDelta(t, sum, r.HourlyPrice, 1e-9)
	require.Positive(t, r.LowerBound)
	require.LessOrEqual(t, r.LowerBound, r.HourlyPrice)
	require.Positive(t, r.Seconds)
	require.Positive(t, r.PeakRSSBytes)
	require.Empty(t, r.Violations)
	require.InDelta(t, 0.096, r.Compare["currentHourlyPrice"], 1e-9, "one m5.large on demand")
	require.InDelta(t, 0.096+sum, r.Compare["afterHourlyPrice"], 1e-9)
	require.Positive(t, r.Compare["scratchHourlyPrice"])
}

func TestScenarioBecomesAPlan(t *testing.T) {
	t.Parallel()
	r := simulateJSON(t, "-f", "../../../provisioner/testing/scenario/testdata/small.json", "--verify")
	require.NotEmpty(t, r.NodeClaims)
	require.Empty(t, r.Violations)
}

// The same files give the same plan, whatever the order of documents.
func TestOrderOfDocumentsChangesNothing(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/shop.yaml")
	require.NoError(t, err)
	documents := strings.Split(string(raw), "\n---\n")
	folder := t.TempDir()
	for i, d := range documents {
		name := filepath.Join(folder, string(rune('z'-i))+".yaml")
		require.NoError(t, os.WriteFile(name, []byte(d), 0o600))
	}
	want, got := simulateJSON(t, "-f", "testdata/shop.yaml"), simulateJSON(t, "-f", folder)
	require.Equal(t, want.NodeClaims, got.NodeClaims)
	require.Equal(t, want.Existing, got.Existing)
	require.Equal(t, want.Unschedulable, got.Unschedulable)
}

var figures = regexp.MustCompile(`[0-9.]+ s\b|[0-9]+ MiB`)

func TestTable(t *testing.T) {
	t.Parallel()
	out, stderr, err := run(t, "-f", "testdata/shop.yaml", "--compare", "--verify")
	require.NoError(t, err)
	out = figures.ReplaceAllString(out, "N")
	golden := "testdata/shop.table"
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(out), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out)
	require.Contains(t, stderr, "1 ConfigMap ignored")
	require.Contains(t, stderr, `2 pods name schedulerName "other"`)
}

func TestBadInputNamesTheFault(t *testing.T) {
	t.Parallel()
	file := func(content string) string {
		name := filepath.Join(t.TempDir(), "in.yaml")
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n"
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no file":              {[]string{}, []string{"--filename", "missing"}},
		"two files":            {[]string{"-f", "x", "-f", "y"}, []string{"--filename", "2 times"}},
		"unknown output":       {[]string{"-f", "x", "-o", "xml"}, []string{"--output", "xml", "table or json"}},
		"missing file":         {[]string{"-f", "/does/not/exist"}, []string{"/does/not/exist"}},
		"unknown preference":   {[]string{"-f", "x", "--preference-policy", "Maybe"}, []string{"--preference-policy", "Maybe"}},
		"unknown minValues":    {[]string{"-f", "x", "--min-values-policy", "Maybe"}, []string{"--min-values-policy", "Maybe"}},
		"negative node cost":   {[]string{"-f", "x", "--node-cost", "-1"}, []string{"--node-cost", "-1"}},
		"no kind":              {[]string{"-f", file(pod + "---\nmetadata: {name: b}\n")}, []string{"document 2", "kind: missing"}},
		"no name":              {[]string{"-f", file("apiVersion: v1\nkind: Pod\n")}, []string{"document 1 (Pod)", "metadata.name"}},
		"field of wrong type":  {[]string{"-f", file("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: many}\n")}, []string{"document 1 (Deployment a)", `spec.replicas: is "many"`}},
		"quantity":             {[]string{"-f", file("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {requests: {cpu: 1x}}}]}\n")}, []string{"document 1 (Pod a)", `spec.containers[0].resources.requests.cpu: is "1x"`}},
		"old version":          {[]string{"-f", file("apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: a}\n")}, []string{"NodePool a", "karpenter.sh/v1beta1", "karpenter.sh/v1"}},
		"broken yaml":          {[]string{"-f", file("a: [")}, []string{"document 1"}},
		"scheduler config":     {[]string{"-f", "testdata/shop.yaml", "--scheduler-config", "testdata/shop.yaml"}, []string{"scheduler configuration"}},
		"empty folder":         {[]string{"-f", t.TempDir()}, []string{"no .yaml"}},
		"scenario, bad number": {[]string{"-f", file(`{"nodePools": [], "pods": [{"name": "a", "count": "x"}]}`)}, []string{"count"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := run(t, tc.args...)
			require.Error(t, err)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// A pod whose volume cannot be had is told so, and the others are planned.
func TestPodsWithoutTheirVolumesStayPending(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/shop.yaml")
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "in.yaml")
	content := string(raw) + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: lost}\nspec: {containers: [{name: c}], volumes: [{name: v, persistentVolumeClaim: {claimName: gone}}]}\n"
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	r := simulateJSON(t, "-f", name)
	require.Len(t, r.Unschedulable, 2)
	require.Equal(t, "lost", r.Unschedulable[1].Pod)
	require.Contains(t, r.Unschedulable[1].Reasons[0], "gone")
	require.Len(t, r.NodeClaims, 2)
}

// A pool that cannot be used is a reason for its pods, never a failure of the whole.
func TestUnusablePoolsAreReasons(t *testing.T) {
	t.Parallel()
	pool := func(name, spec string) string {
		return "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: " + name + "}\nspec:\n  " + spec + "\n---\n"
	}
	template := func(group string) string {
		return "template: {spec: {nodeClassRef: {group: " + group + ", kind: EC2NodeClass, name: d}, requirements: []}}"
	}
	content := pool("static", "replicas: 2\n  "+template("karpenter.k8s.aws")) + pool("foreign", template("karpenter.azure.com")) +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n"
	name := filepath.Join(t.TempDir(), "in.yaml")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	r := simulateJSON(t, "-f", name)
	require.Len(t, r.Unschedulable, 1)
	reasons := strings.Join(r.Unschedulable[0].Reasons, "\n")
	require.Contains(t, reasons, "nodepool static: it is static")
	require.Contains(t, reasons, "nodepool foreign: spec.template.spec.nodeClassRef")
}
