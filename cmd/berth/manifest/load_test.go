package manifest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/cmd/berth/manifest"
)

func load(t *testing.T, documents ...string) *manifest.Set {
	t.Helper()
	s, err := manifest.Load("-", strings.NewReader(strings.Join(documents, "\n---\n")))
	require.NoError(t, err)
	return s
}

// waiting names the pods without a node, sorted.
func waiting(s *manifest.Set) []string {
	names := []string{}
	for _, p := range s.Pods {
		if p.Spec.NodeName == "" {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(names)
	return names
}

const podSpec = `{containers: [{name: c, resources: {limits: {cpu: "1"}}}]}`

func workload(apiVersion, kind, name, spec string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: {" + spec + "}"
}

func owned(pod, kind, owner, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + pod + ", ownerReferences: [{apiVersion: x/v1, kind: " + kind + ", name: " + owner +
		", uid: u, controller: true}]}\nspec: {nodeName: node-1, containers: [{name: c}]}\n" + more
}

func TestWorkloadsAddThePodsTheyLack(t *testing.T) {
	t.Parallel()
	template := "selector: {}, template: {spec: " + podSpec + "}"
	tests := map[string]struct {
		documents []string
		want      []string
	}{
		"a Deployment without replicas has one":     {[]string{workload("apps/v1", "Deployment", "a", template)}, []string{"default/a-0"}},
		"scaled to nothing":                         {[]string{workload("apps/v1", "Deployment", "a", "replicas: 0, "+template)}, []string{}},
		"pods of its ReplicaSet count":              {[]string{workload("apps/v1", "Deployment", "a", "replicas: 2, "+template), owned("a-6f-x", "ReplicaSet", "a-6f", "")}, []string{"default/a-0"}},
		"finished pods do not":                      {[]string{workload("apps/v1", "Deployment", "a", "replicas: 1, "+template), owned("a-6f-x", "ReplicaSet", "a-6f", "status: {phase: Failed}")}, []string{"default/a-0"}},
		"a ReplicaSet without a Deployment":         {[]string{workload("apps/v1", "ReplicaSet", "r", "replicas: 2, "+template)}, []string{"default/r-0", "default/r-1"}},
		"a StatefulSet lacks by name":               {[]string{workload("apps/v1", "StatefulSet", "s", "replicas: 3, "+template), owned("s-1", "StatefulSet", "s", "")}, []string{"default/s-0", "default/s-2"}},
		"ordinals may start higher":                 {[]string{workload("apps/v1", "StatefulSet", "s", "replicas: 1, ordinals: {start: 5}, "+template)}, []string{"default/s-5"}},
		"a Job has what is left of its completions": {[]string{workload("batch/v1", "Job", "j", "parallelism: 4, completions: 3, "+template) + "\nstatus: {succeeded: 1}"}, []string{"default/j-0", "default/j-1"}},
		"a suspended Job has none":                  {[]string{workload("batch/v1", "Job", "j", "suspend: true, "+template)}, []string{}},
		"a DaemonSet adds none":                     {[]string{workload("apps/v1", "DaemonSet", "d", template)}, []string{}},
		"a list is its items":                       {[]string{"apiVersion: v1\nkind: List\nitems: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {" + template + "}}]"}, []string{"default/a-0"}},
		"only comments":                             {[]string{"# nothing\n"}, []string{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, waiting(load(t, tc.documents...)))
		})
	}
}

func TestObjectsAreDefaultedAsAnAPIServerWould(t *testing.T) {
	t.Parallel()
	s := load(t,
		workload("apps/v1", "StatefulSet", "s", "volumeClaimTemplates: [{metadata: {name: data}}], selector: {}, template: {spec: "+podSpec+"}"),
		"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: usual}\nvalue: 7\nglobalDefault: true",
		"apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {capacity: {cpu: 4}}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {priorityClassName: missing, containers: [{name: c}]}")
	pod := s.Pods[1]
	require.Equal(t, "s-0", pod.Name)
	require.Equal(t, "1", pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "a request follows its limit")
	require.Equal(t, int32(7), *pod.Spec.Priority)
	require.Equal(t, "data-s-0", pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	require.NotEmpty(t, pod.UID)
	node := s.Nodes[0]
	require.Equal(t, "node-1", node.Labels["kubernetes.io/hostname"])
	require.Equal(t, "4", node.Status.Allocatable.Cpu().String())
	require.Len(t, node.Status.Conditions, 1)
	require.Contains(t, strings.Join(s.Notes, "\n"), "PriorityClass missing")
	require.Zero(t, *s.Pods[0].Spec.Priority)
}

func TestUnknownFieldsAreRemarks(t *testing.T) {
	t.Parallel()
	s := load(t, workload("apps/v1", "Deployment", "a", "replica: 3, selector: {}, template: {spec: "+podSpec+"}"))
	require.Len(t, waiting(s), 1)
	require.Contains(t, strings.Join(s.Notes, "\n"), `document 1 (Deployment a): unknown field "replica"`)
}

func TestAbsurdReplicasAreRefused(t *testing.T) {
	t.Parallel()
	template := ", selector: {}, template: {spec: " + podSpec + "}"
	for name, document := range map[string]string{
		"Deployment":  workload("apps/v1", "Deployment", "a", "replicas: 2000000000"+template),
		"StatefulSet": workload("apps/v1", "StatefulSet", "a", "replicas: 2000000000"+template),
		"Job":         workload("batch/v1", "Job", "a", "parallelism: 2000000000"+template),
	} {
		_, err := manifest.Load("-", strings.NewReader(document))
		require.ErrorContains(t, err, name+" default/a", name)
		require.ErrorContains(t, err, "2000000000", name)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}")
	f.Add("apiVersion: v1\nkind: List\nitems: [{kind: List, apiVersion: v1, items: [null]}]")
	f.Add("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2, template: null}")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = manifest.Load("-", strings.NewReader(text))
	})
}
