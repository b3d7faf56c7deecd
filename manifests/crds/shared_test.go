package crds_test

import "testing"

// What a NodePool's template and a NodeClaim have in common follows the same rules.
func TestTemplateAndClaim(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct{ base, before, after, path string }{
		"NodePool v1":  {minimalNodePool, "{spec: {template: {spec: {", "}}}}", "spec.template.spec."},
		"NodeClaim v1": {minimalNodeClaim, "{spec: {", "}}", "spec."},
	}
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := func(flow string) string { return k.before + flow + k.after }
			cases := map[string]write{
				"CORE-005 terminationGracePeriod Never is refused": {patch: in(`terminationGracePeriod: Never`), field: k.path + "terminationGracePeriod", message: "should match"},
				"terminationGracePeriod of 292 years is refused":   {patch: in(`terminationGracePeriod: 9999999h`), field: k.path + "terminationGracePeriod", message: "must be shorter than 292 years"},
				"terminationGracePeriod as a novel is refused":     {patch: in(`terminationGracePeriod: 0000000000000000000000000000000000000000000000000000000000000001h`), field: k.path + "terminationGracePeriod", message: "may not be more than 64"},
				"CORE-003 expireAfter Never is accepted":           {patch: in(`expireAfter: Never`)},
				"expireAfter takes no days":                        {patch: in(`expireAfter: 30d`), field: k.path + "expireAfter", message: "should match"},
				"expireAfter takes no fractions":                   {patch: in(`expireAfter: 1.5h`), field: k.path + "expireAfter", message: "should match"},
				"the class is required":                            {patch: in(`nodeClassRef: null`), field: k.path + "nodeClassRef", message: "Required value"},
				"the class's group is required":                    {patch: in(`nodeClassRef: {group: null}`), field: k.path + "nodeClassRef.group", message: "Required value"},
				"the class's kind is required":                     {patch: in(`nodeClassRef: {kind: null}`), field: k.path + "nodeClassRef.kind", message: "Required value"},
				"the class's name is required":                     {patch: in(`nodeClassRef: {name: null}`), field: k.path + "nodeClassRef.name", message: "Required value"},
				"the class's name may not be empty":                {patch: in(`nodeClassRef: {name: ""}`), field: k.path + "nodeClassRef.name", message: "name may not be empty"},
				"the class's kind may not be empty":                {patch: in(`nodeClassRef: {kind: ""}`), field: k.path + "nodeClassRef.kind", message: "kind may not be empty"},
				"the class's group may not be empty":               {patch: in(`nodeClassRef: {group: ""}`), field: k.path + "nodeClassRef.group", message: "group may not be empty"},
				"the class's group has no version":                 {patch: in(`nodeClassRef: {group: karpenter.k8s.aws/v1}`), field: k.path + "nodeClassRef.group", message: "should match"},
				"requirements are required":                        {patch: in(`requirements: null`), field: k.path + "requirements", message: "Required value"},
				"a requirement's key is required":                  {patch: in(`requirements: [{operator: Exists}]`), field: k.path + "requirements[0].key", message: "Required value"},
				"CORE-031 one taint in both lists is for runtime":  {patch: in(`taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: a, effect: NoSchedule}]`)},
			}
			for _, list := range []string{"taints", "startupTaints"} {
				taint := func(flow string) string { return in(list + ": [{" + flow + "}]") }
				at := k.path + list + "[0]."
				cases["CORE-032 "+list+" need an effect"] = write{patch: taint(`key: a`), field: at + "effect", message: "Required value"}
				cases["CORE-032 "+list+" with an unknown effect are refused"] = write{patch: taint(`key: a, effect: NoWay`), field: at + "effect", message: "supported values"}
				cases[list+" need a key"] = write{patch: taint(`effect: NoSchedule`), field: at + "key", message: "Required value"}
				cases[list+" with an empty key are refused"] = write{patch: taint(`key: "", effect: NoSchedule`), field: at + "key", message: "should be at least 1 chars long"}
				cases[list+" whose key is no name are refused"] = write{patch: taint(`key: "a b", effect: NoSchedule`), field: at + "key", message: "should match"}
				cases[list+" with an empty value are refused"] = write{patch: taint(`key: a, value: "", effect: NoSchedule`), field: at + "value", message: "should match"}
				cases[list+" with one key and two effects are accepted"] = write{patch: in(list + `: [{key: example.com/a, value: b, effect: NoSchedule}, {key: example.com/a, value: b, effect: NoExecute}]`)}
			}
			runCreates(t, kind, k.base, cases)
		})
	}
}

func TestSpecIsRequired(t *testing.T) {
	t.Parallel()
	for kind, base := range map[string]string{
		"NodePool v1": minimalNodePool, "NodeClaim v1": minimalNodeClaim, "NodeOverlay v1alpha1": minimalNodeOverlay, "EC2NodeClass v1": minimalNodeClass,
		"CapacityBuffer v1beta1":  "apiVersion: autoscaling.x-k8s.io/v1beta1" + minimalCapacityBuffer,
		"CapacityBuffer v1alpha1": "apiVersion: autoscaling.x-k8s.io/v1alpha1" + minimalCapacityBuffer,
	} {
		runCreates(t, kind, base, map[string]write{kind + " without spec is refused": {patch: `{spec: null}`, field: "spec", message: "Required value"}})
	}
}
