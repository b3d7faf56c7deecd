package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	berth    = "../../../manifests/charts/berth"
	berthCRD = "../../../manifests/charts/berth-crd"
	named    = "settings.clusterName=prod"
)

func rendered(t *testing.T, o options) (string, error) {
	t.Helper()
	if o.dir == "" {
		o.dir = berth
	}
	o.name, o.namespace = "berth", "kube-system"
	var out strings.Builder
	err := render(&out, o)
	return out.String(), err
}

// karpenter is what users of Karpenter's chart have in their values.
const karpenter = `
serviceAccount: {name: karpenter, annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/x"}}
serviceMonitor: {enabled: true, additionalLabels: {release: prometheus}}
podDisruptionBudget: {name: karpenter, maxUnavailable: 1}
dnsPolicy: Default
logLevel: debug
logOutputPaths: [stdout]
controller: {resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}
settings:
  clusterName: prod
  clusterEndpoint: https://example.com
  interruptionQueue: prod
  batchMaxDuration: 10s
  batchIdleDuration: 1s
  preferencePolicy: Respect
  eksControlPlane: true
  reservedENIs: "1"
  ignoreDRARequests: true
  amiRefreshInterval: 1m
  featureGates: {nodeRepair: true, nodeOverlay: true, reservedCapacity: true, spotToSpotConsolidation: true, staticCapacity: true, capacityBuffer: false}
  awsFeatureGates: {nodeClassCEL: false}
`

func TestOPS_042_ValuesOfKarpentersChartAreTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(karpenter), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := rendered(t, options{files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kind: ServiceMonitor", "name: MEMORY_LIMIT", `value: "Respect"`, `value: "10s"`, "NodeOverlay=true", "SpotToSpotConsolidation=true",
		"serviceAccountName: karpenter", "eks.amazonaws.com/role-arn", "dnsPolicy: Default",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	notes, err := rendered(t, options{files: []string{file}, notes: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"settings.eksControlPlane", "settings.featureGates.staticCapacity", "logOutputPaths"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say that %s does nothing:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "nodeOverlay") || strings.Contains(notes, "nodeRepair") {
		t.Error("the notes call a gate useless that is acted on")
	}
}

func TestOPS_043_FaultsAreTold(t *testing.T) {
	for name, tc := range map[string]struct {
		sets []string
		want string
	}{
		"no cluster name":             {nil, "settings.clusterName is required"},
		"a key that nobody knows":     {[]string{named, "settings.clusterNmae=x"}, "clusterNmae"},
		"a word that is not a policy": {[]string{named, "settings.preferencePolicy=Maybe"}, "preferencePolicy"},
		"a wrong duration":            {[]string{named, "settings.batchIdleDuration=fast"}, "batchIdleDuration"},
		"a wrong log level":           {[]string{named, "logLevel=trace"}, "logLevel"},
		"berth schedules itself":      {[]string{named, "schedulerName=berth"}, "cannot schedule itself"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := rendered(t, options{sets: tc.sets}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want an error with %q, got %v", tc.want, err)
			}
		})
	}
}

// crdsIn returns the specs of the definitions in a manifest, by name.
func crdsIn(t *testing.T, text string) map[string]string {
	t.Helper()
	specs := map[string]string{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
			Spec map[string]any
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind != "CustomResourceDefinition" {
			continue
		}
		spec, err := yaml.Marshal(object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		specs[object.Metadata.Name] = string(spec) + object.Metadata.Annotations["helm.sh/resource-policy"]
	}
	return specs
}

func TestBothChartsHaveTheDefinitionsOfTheRepository(t *testing.T) {
	var text strings.Builder
	files, err := filepath.Glob("../../../manifests/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n---\n" + strings.TrimPrefix(string(raw), "---\n"))
	}
	want := crdsIn(t, text.String())
	if len(want) != len(files) {
		t.Fatalf("%d files have %d definitions", len(files), len(want))
	}
	for dir, kept := range map[string]string{berth: "", berthCRD: "keep"} {
		o := options{dir: dir}
		if dir == berth {
			o.sets = []string{named}
		}
		text, err := rendered(t, o)
		if err != nil {
			t.Fatal(err)
		}
		got := crdsIn(t, text)
		if len(got) != len(want) {
			t.Errorf("%s has %d definitions, the repository %d", dir, len(got), len(want))
		}
		for name, spec := range want {
			if got[name] != spec+kept {
				t.Errorf("%s: %s differs from manifests/crds, or its policy is not %q", dir, name, kept)
			}
		}
	}
}
