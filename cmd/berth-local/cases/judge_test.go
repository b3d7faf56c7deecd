package cases

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func expectOf(t *testing.T, text string) expect {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	var unsupported fields
	e, err := readExpect(&unsupported, "expect", json.RawMessage(raw))
	require.NoError(t, err)
	require.Empty(t, unsupported)
	return e
}

var asked = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// seen is two nodes in two zones with three of four pods, one claim that was never launched, and what
// was said about them.
func seen() *observation {
	return &observation{
		claims: []claimSeen{
			{name: "c1", pool: "p", instanceType: "small", zone: "zone-a", capacityType: "spot", providerID: "aws:///1", created: asked.Add(time.Second), launched: true},
			{name: "c2", pool: "p", instanceType: "large", zone: "zone-b", capacityType: "spot", providerID: "aws:///2", created: asked.Add(5 * time.Second), launched: true},
			{name: "c3", pool: "q", gone: true},
		},
		pods:       map[string]podSeen{"web-0": {node: "n1"}, "web-1": {node: "n2"}, "web-2": {}, "old": {node: "n0"}},
		podGroups:  map[string][]string{"web": {"web-0", "web-1", "web-2"}, "old": {"old"}},
		nodes:      map[string]nodeSeen{"n0": {given: "first", zone: "zone-a", pool: "p", instanceType: "small"}, "n1": {zone: "zone-a", pool: "p", instanceType: "small"}, "n2": {zone: "zone-b", pool: "p", instanceType: "large"}},
		texts:      map[string]saidOf{"Pod/web-2": {texts: []string{"Unschedulable: no subnet in zone-z"}, events: map[string]int{"Unschedulable: no subnet in zone-z": 3, "Other: text": 5}}},
		calls:      map[string]int{"CreateFleet": 2},
		instances:  map[string]int{"c1": 1, "c2": 1},
		asked:      asked,
		first:      &standing{claims: 3, pending: 2},
		mostClaims: 4, mostBefore: 3,
		counts: []countAt{{0, 3}, {2 * time.Second, 2}},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		expect string
		want   string // part of the complaint; empty when all holds
	}{
		"launches: claims that were sent to the cloud":     {"launches: {count: 2, min: 1, max: 2, nodePool: p, capacityType: spot, zoneIn: [zone-a, zone-b], perZone: {zone-a: 1, zone-b: 1}}", ""},
		"launches: too few":                                {"launches: {min: 3}", "2 launches"},
		"launches: too many":                               {"launches: {max: 1}", "want at most 1"},
		"launches: none wanted":                            {"launches: {count: 0}", "want 0"},
		"launches: another pool":                           {"launches: {nodePool: q}", "NodeClaim c1 has pool p"},
		"launches: one of another type":                    {"launches: {instanceTypeIn: [small]}", "NodeClaim c2 has instance type large"},
		"launches: one in another zone":                    {"launches: {zoneIn: [zone-a]}", "NodeClaim c2 has zone zone-b"},
		"launches: another distribution":                   {"launches: {perZone: {zone-a: 2}}", "launches per zone"},
		"launches: in time":                                {"launches: {withinSeconds: 5}", ""},
		"launches: one too late":                           {"launches: {withinSeconds: 4}", "NodeClaim c2 has age"},
		"launchesOf holds":                                 {"launchesOf: {small: {max: 1}, huge: {max: 0}}", ""},
		"launchesOf counts by type":                        {"launchesOf: {large: {max: 0}}", "1 launches of large"},
		"podsPerZone counts bound pods":                    {"podsPerZone: {zone-a: 2, zone-b: 1}", ""},
		"podsPerZone differs":                              {"podsPerZone: {zone-a: 1, zone-b: 1}", "pods per zone"},
		"pending by name":                                  {"pending: [web-2]", ""},
		"pending by bare name means all":                   {"pending: [web]", "pending pods are [web-2]"},
		"pending must be exact":                            {"pending: []", "want []"},
		"pending as a number":                              {"pending: 1", ""},
		"pending as another number":                        {"pending: 0", "1 pods are pending"},
		"pending as an object":                             {"pending: {count: 1, reason: why not, afterFirstSettle: 2}", ""},
		"pending after the first settle":                   {"pending: {afterFirstSettle: 3}", "after the first settle 3 NodeClaims and 2 pending pods"},
		"bind to a new node":                               {"bind: {web-0: {newNode: true, nodePool: p, zone: zone-a, instanceType: small}}", ""},
		"bind to a given node":                             {"bind: {old: {node: first, newNode: false}}", ""},
		"bind to a node that should be new":                {"bind: {old: {newNode: true}}", "want newNode true"},
		"bind to another node":                             {"bind: {web-0: {node: first}}", "want node first"},
		"bind of all pods of an entry":                     {"bind: {web: {nodePool: p}}", "pod web-2 is not bound"},
		"bind of an unknown pod":                           {"bind: {who: {nodePool: p}}", "pod who is not bound"},
		"no disruption":                                    {"disrupt: []", ""},
		"words in any order and case":                      {"events: [{object: Pod/web-2, mentions: [ZONE-Z, no matching subnet]}]", `nobody said ["matching"]`},
		"words that were all said":                         {"warnings: [{object: Pod/web-2, about: [subnet no, zone-z]}]", ""},
		"any text":                                         {"events: [{object: Pod/web-2, any: true}]", ""},
		"nothing said":                                     {"events: [{object: Pod/web-0, any: true}]", "nothing was said about Pod/web-0"},
		"too many events":                                  {"events: [{object: Pod/web-2, mentions: [subnet], max: 2}]", "3 events on Pod/web-2"},
		"calls in bounds":                                  {"ec2Calls: {CreateFleet: {min: 1, max: 2}, DeleteLaunchTemplate: {max: 0}}", ""},
		"too many calls":                                   {"ec2Calls: {CreateFleet: {max: 1}}", "2 calls of CreateFleet"},
		"claims that live":                                 {"nodeClaims: {count: 2, allHaveProviderID: true, afterFirstSettle: 3, never: {above: 4}}", ""},
		"another number of claims":                         {"nodeClaims: {count: 3}", "2 NodeClaims, want 3"},
		"claims after the first settle":                    {"nodeClaims: {afterFirstSettle: 2}", "want 2 NodeClaims"},
		"too many claims at one moment":                    {"nodeClaims: {never: {above: 3}}", "4 NodeClaims at one moment"},
		"until the limit changed there were fewer":         {"nodeClaims: {never: {above: 3, until: limit changed}}", ""},
		"instances, one per claim":                         {"ec2Instances: {running: 2, perNodeClaim: 1}", ""},
		"another number of instances":                      {"ec2Instances: {running: 1}", "2 instances run"},
		"instances per claim":                              {"ec2Instances: {perNodeClaim: 2}", "NodeClaim c1 has 1 instances"},
		"after the change of a limit":                      {"afterLimitChange: {nodeClaims: 2, withinSeconds: 2}", ""},
		"too late after the change of a limit":             {"afterLimitChange: {nodeClaims: 2, withinSeconds: 1}", "did not become 2 within 1s"},
		"more at the end than after the change of a limit": {"afterLimitChange: {nodeClaims: 3, withinSeconds: 1}", "2 NodeClaims at the end, want 3"},
		"one alternative holds":                            {"oneOf: [{pending: []}, {pending: 1, disrupt: []}]", ""},
		"no alternative holds":                             {"oneOf: [{pending: []}, {pending: 2}]", "none of oneOf holds: (1)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := expectOf(t, tc.expect)
			wrong := judge(&e, seen())
			if tc.want == "" {
				require.Empty(t, wrong)
				return
			}
			require.NotEmpty(t, wrong)
			require.Contains(t, wrong[0], tc.want)
		})
	}
}

func TestDisruptedClaimsAndRefusedPodsAreNeverFine(t *testing.T) {
	t.Parallel()
	o := seen()
	o.claims[0].disrupted = true
	o.refused = map[string]string{"web-0": "OutOfcpu: too much"}
	e := expectOf(t, "disrupt: []")
	require.Equal(t, []string{"pod web-0 failed: OutOfcpu: too much", "NodeClaim c1 was disrupted, want none"}, judge(&e, o))
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		expect       string
		unchecked    []string
		err          error
		verdict, why string
	}{
		"all was judged and holds":                   {expect: "pending: 1", verdict: pass, why: "launched [1 p/large/zone-b 1 p/small/zone-a], 1 pods pending, in 2s"},
		"what was not judged keeps it from a pass":   {expect: "pending: 1", unchecked: []string{"expect.x"}, verdict: skip, why: "not judged yet: expect.x"},
		"a failure counts though not all was judged": {expect: "pending: 0", unchecked: []string{"expect.x"}, verdict: fail, why: "1 pods are pending, want 0; not judged yet: expect.x"},
		"an error is a failure":                      {expect: "pending: 1", err: errors.New("broken"), verdict: fail, why: "broken"},
		"what cannot be brought about is skipped":    {expect: "pending: 1", err: &unsupportedError{[]string{"a", "b"}}, verdict: skip, why: "not supported: a; b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scenario{expect: expectOf(t, tc.expect), unchecked: tc.unchecked}
			verdict, why := s.verdict(seen(), tc.err, 2*time.Second)
			require.Equal(t, tc.verdict, verdict)
			require.Contains(t, why, tc.why)
		})
	}
}
