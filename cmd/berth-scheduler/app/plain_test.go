package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

func served(names ...string) *fakediscovery.FakeDiscovery {
	list := &metav1.APIResourceList{GroupVersion: "karpenter.sh/v1"}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{list}}}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	filled, filling := make(chan struct{}), make(chan struct{})
	close(filled)
	tests := map[string]struct {
		synced chan struct{}
		crds   *fakediscovery.FakeDiscovery
		ready  int
		says   string
	}{
		"all is well":                     {filled, served("nodepools", "nodeclaims"), http.StatusOK, "ok"},
		"OPS_036 a definition is missing": {filled, served("nodepools"), http.StatusInternalServerError, "[-]crd failed"},
		"OPS_036 the group is missing":    {filled, &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}, http.StatusInternalServerError, "[-]crd failed"},
		"OPS_037 caches are filling":      {filling, served("nodepools", "nodeclaims"), http.StatusInternalServerError, "[-]manager failed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := probes(nil, tc.synced, tc.crds)
			ask := func(path string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
				return w
			}
			require.Equal(t, http.StatusOK, ask("/healthz").Code)
			w := ask("/readyz")
			require.Equal(t, tc.ready, w.Code)
			require.Contains(t, w.Body.String(), tc.says)
		})
	}
}

func TestSettingsOfTheProcess(t *testing.T) {
	t.Parallel()
	from := func(name, value string) (*Settings, error) {
		return settingsFromEnv(fromEnv(map[string]string{name: value}))
	}
	s, err := from("", "")
	require.NoError(t, err)
	require.Equal(t, []int{8080, 8081}, []int{s.MetricsPort, s.HealthProbePort})
	s, err = from("METRICS_PORT", "0")
	require.NoError(t, err)
	require.Zero(t, s.MetricsPort)
	for name, value := range map[string]string{
		"LOG_LEVEL":    "trace", // OPS_030
		"METRICS_PORT": "70000", "HEALTH_PROBE_PORT": "http", "MEMORY_LIMIT": "1Gi",
	} {
		_, err := from(name, value)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, value)
	}
}
