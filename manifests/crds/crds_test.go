package crds_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/berth-dev/berth/manifests/crds"
)

// The API server refuses a CRD whose schema is not structural, whose defaults are invalid or whose rules
// could cost too much.
func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()
	all, err := crds.All()
	require.NoError(t, err)
	require.Len(t, all, 5)
	for _, crd := range all {
		t.Run(crd.Name, func(t *testing.T) {
			t.Parallel()
			errs := validation.ValidateCustomResourceDefinition(t.Context(), internalCRD(t, crd))
			require.Empty(t, errs.ToAggregate())
		})
	}
}
