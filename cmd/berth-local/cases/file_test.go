package cases

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// head makes a case of given, when and expect.
func head(given, when, expect string) string {
	return "id: x\ntitle: t\ngiven:\n  " + given + "\nwhen:\n  - " + when + "\nexpect:\n  " + expect + "\n"
}

func TestTheCasesOfThisFolderAreSupportedCompletely(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			s, err := parse(raw)
			require.NoError(t, err)
			require.Empty(t, s.blocking)
			require.Empty(t, s.unchecked)
			require.False(t, s.simulated)
			require.Equal(t, s.ID+".yaml", filepath.Base(path))
			catalog, unsupported, err := s.catalogue()
			require.NoError(t, err)
			require.Empty(t, unsupported)
			_, err = s.world(*catalog)
			require.NoError(t, err)
		})
	}
}

func TestUnsupportedFieldsAreNamed(t *testing.T) {
	t.Parallel()
	const plain, settle, none = "pods: []", "{step: settle}", "pending: []"
	tests := map[string]struct {
		text                string
		blocking, unchecked []string
		simulated           bool
	}{
		"a plain case has none":                     {text: head(plain, settle, none)},
		"a field at the top":                        {text: head(plain, settle, none) + "extra: 1\n", blocking: []string{"extra"}},
		"a field of given":                          {text: head("pdbs: []", settle, none), blocking: []string{"given.pdbs"}},
		"a field of a pod":                          {text: head("pods: [{name: a, volumes: []}]", settle, none), blocking: []string{"given.pods[0].volumes"}},
		"a field of an instance type":               {text: head("instanceTypes: [m5.large, {name: a, ipsPerNodeAtStart: 3}]", settle, none), blocking: []string{"given.instanceTypes[1].ipsPerNodeAtStart"}},
		"nodes as a count":                          {text: head("nodes: {count: 3}", settle, none), blocking: []string{"given.nodes as a count"}},
		"a field of a node":                         {text: head("nodes: [{name: n1, instanceType: a, nodePool: p, age: 2h}]", settle, none), blocking: []string{"given.nodes[0].age"}},
		"a pod on a node that is not given":         {text: head("pods: [{name: a, node: n1}]", settle, none), blocking: []string{"given.pods[0].node n1, which given.nodes does not have"}},
		"a step":                                    {text: head(plain, "{step: sqs, messages: []}", none), blocking: []string{"when[0]: step sqs"}},
		"a step with the reason":                    {text: head(plain, "{step: restartController}", none), blocking: []string{"when[0]: step restartController: the scheduler cannot be killed apart from its cluster"}},
		"a field of a step":                         {text: head(plain, "{step: settle, csiNodeDelay: 20s}", none), blocking: []string{"when[0].csiNodeDelay"}},
		"a long advance":                            {text: head(plain, "{step: advance, by: 61s}", none), blocking: []string{"when[0]: advance by 1m1s needs a simulated clock"}, simulated: true},
		"the longest advance is fine":               {text: head(plain, "{step: advance, by: 60s}", none)},
		"a fault of one subnet":                     {text: head(plain, "{step: ec2Fault, api: CreateFleet, code: c, match: {subnet: s}}", none), blocking: []string{"when[0].match.subnet"}},
		"pods in another form":                      {text: head(plain, "{step: podsPending, pods: [{name: a}]}", none), blocking: []string{"when[0].pods as object"}},
		"an expectation":                            {text: head(plain, settle, "domainsConsidered: {a: [b]}"), unchecked: []string{"expect.domainsConsidered"}},
		"a field of an expectation":                 {text: head(plain, settle, "launches: {count: 1, perSubnet: {a: 1}}"), unchecked: []string{"expect.launches.perSubnet"}},
		"sentences":                                 {text: head(plain, settle, "invariants: [all is well]"), unchecked: []string{"expect.invariants"}},
		"alternatives in words":                     {text: head(plain, settle, "oneOf: [{pending: []}, it rains]"), unchecked: []string{"expect.oneOf[1] in words"}},
		"a field of an alternative":                 {text: head(plain, settle, "oneOf: [{taintsOn: {}}]"), unchecked: []string{"expect.oneOf[0].taintsOn"}},
		"nodes that must be disrupted":              {text: head(plain, settle, "disrupt: [{node: a}]"), unchecked: []string{"expect.disrupt with entries"}},
		"variants are scenarios of their own":       {text: head(plain, settle, "variants: [{name: v, whatever: 1}]")},
		"a limit of claims until something unknown": {text: head(plain, settle, "nodeClaims: {never: {above: 3, until: dawn}}"), unchecked: []string{"expect.nodeClaims.never.until dawn"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := parse([]byte(tc.text))
			require.NoError(t, err)
			require.Equal(t, tc.blocking, []string(s.blocking))
			require.Equal(t, tc.unchecked, []string(s.unchecked))
			require.Equal(t, tc.simulated, s.simulated)
		})
	}
}

func TestWhatIsNoCaseIsAnError(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"no YAML":                  {"a: [", "read YAML"},
		"a key twice":              {"id: a\nid: b\n", "read YAML"},
		"parts are missing":        {"id: a\ngiven: {pods: []}\n", "id, given, when and expect"},
		"a step that is no object": {head("pods: []", "settle", "pending: []"), "read when[0]"},
		"nothing is expected":      {head("pods: []", "{step: settle}", "{}"), "expect demands nothing"},
		"an impossible amount":     {head("pods: [{name: a, requests: {cpu: much}}]", "{step: settle}", "pending: []"), "read given"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse([]byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestPodNames(t *testing.T) {
	t.Parallel()
	two := 2
	require.Equal(t, []string{"web"}, podSpec{Name: "web"}.names())
	require.Equal(t, []string{"web-0", "web-1"}, podSpec{Name: "web", Count: &two}.names())
}

func TestScenariosOfWhichNothingCanBeSeenAreNotRun(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"all is supported":       {head("pods: []", "{step: settle}", "disrupt: []"), ""},
		"a step is not":          {head("pods: []", "{step: sqs}", "disrupt: []"), "not supported: when[0]: step sqs"},
		"no expectation is":      {head("pods: []", "{step: settle}", "orphans: {count: 0}"), "nothing of what it expects can be judged; not judged yet: expect.orphans"},
		"one expectation is":     {head("pods: []", "{step: settle}", "{orphans: {count: 0}, pending: 0}"), ""},
		"one of several will do": {head("pods: []", "{step: settle}", "oneOf: [{pending: 0}]"), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := parse([]byte(tc.text))
			require.NoError(t, err)
			require.Equal(t, tc.want, s.obstacle())
		})
	}
}

func TestVariantsAreKept(t *testing.T) {
	t.Parallel()
	s, err := parse([]byte(head("pods: []", "{step: settle}", "variants: [{name: more rain}, {name: less rain}]")))
	require.NoError(t, err)
	require.Equal(t, []string{"more rain", "less rain"}, s.variants)
}
