package crds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/berth-dev/berth/manifests/crds"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
)

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := crds.All()
	require.NoError(t, err)
	byKind := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range all {
		byKind[crd.Spec.Names.Kind] = crd
	}
	return byKind
}

// The API server refuses a CRD whose schema is not structural, whose defaults are invalid or whose rules
// could cost too much.
func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()
	all := definitions(t)
	require.Len(t, all, 5)
	for kind, crd := range all {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			internal, err := internalCRD(crd)
			require.NoError(t, err)
			errs := validation.ValidateCustomResourceDefinition(t.Context(), internal)
			require.NoError(t, errs.ToAggregate())
		})
	}
}

func TestDefinitionsHaveTheKnownNames(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		group, plural string
		scope         apiextensionsv1.ResourceScope
		shortNames    []string
		category      string
		versions      []string // served
		stored        string
	}{
		"NodePool":       {"karpenter.sh", "nodepools", apiextensionsv1.ClusterScoped, nil, "karpenter", []string{"v1"}, "v1"},
		"NodeClaim":      {"karpenter.sh", "nodeclaims", apiextensionsv1.ClusterScoped, nil, "karpenter", []string{"v1"}, "v1"},
		"NodeOverlay":    {"karpenter.sh", "nodeoverlays", apiextensionsv1.ClusterScoped, []string{"overlays"}, "karpenter", []string{"v1alpha1"}, "v1alpha1"},
		"CapacityBuffer": {"autoscaling.x-k8s.io", "capacitybuffers", apiextensionsv1.NamespaceScoped, []string{"cb"}, "autoscaling", []string{"v1alpha1", "v1beta1"}, "v1beta1"},
		"EC2NodeClass":   {"karpenter.k8s.aws", "ec2nodeclasses", apiextensionsv1.ClusterScoped, []string{"ec2nc", "ec2ncs"}, "karpenter", []string{"v1"}, "v1"},
	}
	all := definitions(t)
	for kind, want := range cases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			spec := all[kind].Spec
			require.Equal(t, want.group, spec.Group)
			require.Equal(t, want.plural, spec.Names.Plural)
			require.Equal(t, strings.ToLower(kind), spec.Names.Singular)
			require.Equal(t, want.scope, spec.Scope)
			require.Equal(t, want.shortNames, spec.Names.ShortNames)
			require.Equal(t, []string{want.category}, spec.Names.Categories)
			var served []string
			for _, version := range spec.Versions {
				require.True(t, version.Served)
				require.Equal(t, version.Name == want.stored, version.Storage)
				require.NotNil(t, version.Subresources.Status)
				served = append(served, version.Name)
			}
			slices.Sort(served)
			require.Equal(t, want.versions, served)
		})
	}
}

// CORE-054 and the tables that people's scripts cut columns from. A * marks what only -o wide shows.
func TestCORE054PrinterColumns(t *testing.T) {
	t.Parallel()
	const ready = `.status.conditions[?(@.type=="Ready")].status`
	cases := map[string][]string{
		"NodePool": {
			"NodeClass string .spec.template.spec.nodeClassRef.name", "Nodes string .status.nodes", "Ready string " + ready, "Age date .metadata.creationTimestamp",
			"*Weight integer .spec.weight", "*CPU string .status.resources.cpu", "*Memory string .status.resources.memory",
		},
		"NodeClaim": {
			`Type string .metadata.labels.node\.kubernetes\.io/instance-type`, `Capacity string .metadata.labels.karpenter\.sh/capacity-type`,
			`Zone string .metadata.labels.topology\.kubernetes\.io/zone`, "Node string .status.nodeName", "Ready string " + ready, "Age date .metadata.creationTimestamp",
			"*ImageID string .status.imageID", "*ID string .status.providerID", `*NodePool string .metadata.labels.karpenter\.sh/nodepool`,
			"*NodeClass string .spec.nodeClassRef.name", `*Drifted string .status.conditions[?(@.type=="Drifted")].status`,
		},
		"NodeOverlay": {"Ready string " + ready, "Age date .metadata.creationTimestamp", "*Weight integer .spec.weight"},
		"CapacityBuffer": {
			"Strategy string .spec.provisioningStrategy", "PodTemplate string .status.podTemplateRef.name", "Replicas integer .status.replicas",
			"ConditionsType string .status.conditions[*].type", "ConditionsStatus string .status.conditions[*].status",
			"ConditionsReason string .status.conditions[*].reason", "Age date .metadata.creationTimestamp",
		},
		"EC2NodeClass": {"Ready string " + ready, "Age date .metadata.creationTimestamp", "*Role string .spec.role"},
	}
	all := definitions(t)
	for kind, want := range cases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, version := range all[kind].Spec.Versions {
				var got []string
				for _, column := range version.AdditionalPrinterColumns {
					text := column.Name + " " + column.Type + " " + column.JSONPath
					if column.Priority > 0 {
						text = "*" + text
					}
					got = append(got, text)
				}
				require.Equal(t, want, got, version.Name)
			}
		})
	}
}

func TestCORE018OnlyNodePoolsCanBeScaled(t *testing.T) {
	t.Parallel()
	for kind, crd := range definitions(t) {
		for _, version := range crd.Spec.Versions {
			if kind != "NodePool" {
				require.Nil(t, version.Subresources.Scale, kind)
				continue
			}
			require.Equal(t, &apiextensionsv1.CustomResourceSubresourceScale{
				SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.nodes",
			}, version.Subresources.Scale)
		}
	}
}

func TestCapacityBufferVersionsHaveOneSchema(t *testing.T) {
	t.Parallel()
	versions := definitions(t)["CapacityBuffer"].Spec.Versions
	require.Len(t, versions, 2)
	require.Equal(t, versions[0].Schema, versions[1].Schema)
}

// The list of label keys stands in the CRDs a second time, as text of the rules.
func TestRulesAllowTheWellKnownLabels(t *testing.T) {
	t.Parallel()
	overlayOnly := []string{
		ec2v1.LabelCapacityReservationID, ec2v1.LabelCapacityReservationType, ec2v1.LabelCapacityReservationInterruptible,
		ec2v1.LabelPlacementGroupID, ec2v1.LabelPlacementGroupPartition, ec2v1.LabelInstanceTenancy,
	}
	require.Len(t, ec2v1.WellKnownLabels(), 30)
	for _, key := range ec2v1.WellKnownLabels() {
		item := `{key: ` + key + `, operator: Exists}`
		overlay := write{patch: `{spec: {requirements: [` + item + `]}}`}
		if slices.Contains(overlayOnly, key) {
			overlay.field, overlay.message = "spec.requirements[0].key", "is restricted"
		}
		runCreates(t, "NodePool v1", minimalNodePool, map[string]write{
			"NodePool label " + key:       {patch: `{spec: {template: {metadata: {labels: {` + key + `: a}}}}}`},
			"NodePool requirement " + key: {patch: `{spec: {template: {spec: {requirements: [` + item + `]}}}}`},
		})
		runCreates(t, "NodeClaim v1", minimalNodeClaim, map[string]write{"NodeClaim requirement " + key: {patch: `{spec: {requirements: [` + item + `]}}`}})
		runCreates(t, "NodeOverlay v1alpha1", minimalNodeOverlay, map[string]write{"NodeOverlay requirement " + key: overlay})
	}
}

// NodeClaims of clusters that are taken over have conditions without reason or message; the other kinds
// are strict.
func TestConditions(t *testing.T) {
	t.Parallel()
	const at = `lastTransitionTime: "2026-08-01T10:00:00Z"`
	cases := map[string]struct {
		kind, base, condition string
		field                 string
	}{
		"a NodeClaim's reason may be empty":     {"NodeClaim v1", minimalNodeClaim, `{type: Ready, status: "True", reason: "", ` + at + `}`, ""},
		"a NodeClaim's status is a closed set":  {"NodeClaim v1", minimalNodeClaim, `{type: Ready, status: Maybe, reason: A, ` + at + `}`, "status.conditions[0].status"},
		"a NodePool's reason may not be empty":  {"NodePool v1", minimalNodePool, `{type: Ready, status: "True", reason: "", message: "", ` + at + `}`, "status.conditions[0].reason"},
		"a NodePool's message may not be away":  {"NodePool v1", minimalNodePool, `{type: Ready, status: "True", reason: A, ` + at + `}`, "status.conditions[0].message"},
		"a NodePool's full condition is stored": {"NodePool v1", minimalNodePool, `{type: Ready, status: "True", reason: Ready, message: "", ` + at + `}`, ""},
		"an EC2NodeClass is strict":             {"EC2NodeClass v1", minimalNodeClass, `{type: Ready, status: "True", reason: "", message: "", ` + at + `}`, "status.conditions[0].reason"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := endpointOf(t, tc.kind)
			stored, errs := endpoint.create(t, parse(t, tc.base))
			require.Empty(t, errs)
			errs = endpoint.updateStatus(t, stored, merge(stored.Object, parse(t, `{status: {conditions: [`+tc.condition+`]}}`)))
			if tc.field == "" {
				require.Empty(t, errs)
				return
			}
			requireRejected(t, errs, tc.field, "")
		})
	}
}

func TestEC2NodeClassStatus(t *testing.T) {
	t.Parallel()
	const reservation = `id: cr-1, availabilityZone: a, instanceType: m5.large, instanceMatchCriteria: open, ownerID: "123456789012"`
	endpoint := endpointOf(t, "EC2NodeClass v1")
	obj, _ := endpoint.decode(t, merge(parse(t, minimalNodeClass), parse(t, `{status: {capacityReservations: [{`+reservation+`}]}}`)))
	item := nested(t, obj, "status.capacityReservations").([]any)[0].(map[string]any)
	require.Equal(t, "default", item["reservationType"])
	require.Equal(t, "active", item["state"])
	stored, errs := endpoint.create(t, parse(t, minimalNodeClass))
	require.Empty(t, errs)
	for field, patch := range map[string]string{
		"status.capacityReservations[0].state":           `{status: {capacityReservations: [{` + reservation + `, state: gone}]}}`,
		"status.capacityReservations[0].reservationType": `{status: {capacityReservations: [{` + reservation + `, reservationType: other}]}}`,
		"status.subnets[0].zone":                         `{status: {subnets: [{id: subnet-1}]}}`,
		"status.amis[0].requirements":                    `{status: {amis: [{id: ami-1}]}}`,
	} {
		requireRejected(t, endpoint.updateStatus(t, stored, merge(stored.Object, parse(t, patch))), field, "")
	}
}

func TestAllReturnsNewObjects(t *testing.T) {
	t.Parallel()
	first, err := crds.All()
	require.NoError(t, err)
	first[0].Spec.Versions[0].Storage = !first[0].Spec.Versions[0].Storage

	second, err := crds.All()
	require.NoError(t, err)
	require.NotEqual(t, first[0], second[0])
}
