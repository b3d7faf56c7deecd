package app

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	upstreamscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

func decode(t *testing.T, raw []byte) *schedulerapi.KubeSchedulerConfiguration {
	t.Helper()
	obj, _, err := upstreamscheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	require.NoError(t, err)
	return obj.(*schedulerapi.KubeSchedulerConfiguration)
}

func TestShippedConfigurationHasItsOwnLease(t *testing.T) {
	t.Parallel()
	raw, err := configuration("", connection{kubeconfig: "/k", qps: 7, burst: 9, contentType: "application/json"})
	require.NoError(t, err)
	c := decode(t, raw)
	require.Equal(t, "berth", c.LeaderElection.ResourceName)
	require.Equal(t, "berth", c.Profiles[0].SchedulerName)
	require.Equal(t, "/k", c.ClientConnection.Kubeconfig)
	require.InDelta(t, 7, c.ClientConnection.QPS, 0)
	require.Equal(t, int32(9), c.ClientConnection.Burst)
	require.Equal(t, "application/json", c.ClientConnection.ContentType)
}

func TestUsersConfigurationKeepsItsLease(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	tests := map[string]struct{ content, wantLease, wantErr string }{
		"no lease named, so not the one of a kube-scheduler beside": {content: head, wantLease: "berth"},
		"a lease named": {content: head + "leaderElection: {resourceName: kube-scheduler}\n", wantLease: "kube-scheduler"},
		"a field twice": {content: head + "parallelism: 1\nparallelism: 2\n", wantErr: "parallelism"},
		"nothing":       {content: "", wantErr: "it is empty"},
		"no YAML":       {content: "a: [", wantErr: "parse KubeSchedulerConfiguration"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "c.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tc.content), 0o600))
			raw, err := configuration(file, connection{})
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.wantLease, decode(t, raw).LeaderElection.ResourceName)
		})
	}
	_, err := configuration("/does/not/exist", connection{})
	require.ErrorContains(t, err, `--config has the value "/does/not/exist"`)
}

func TestKubeconfigCarriesTheWholeConnection(t *testing.T) {
	t.Parallel()
	in := &rest.Config{Host: "https://h:1", BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{ServerName: "s", CAData: []byte("ca"), CertData: []byte("crt"), KeyData: []byte("key")}}
	raw, err := kubeconfig(in)
	require.NoError(t, err)
	path, closeFile, err := oneTimeFile(raw)
	require.NoError(t, err)
	defer closeFile()
	out, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	require.Equal(t, in, out)
	_, err = kubeconfig(&rest.Config{Transport: http.DefaultTransport})
	require.ErrorContains(t, err, "transport of its own")
}

func TestOneTimeFileTakesMoreThanAPipeHolds(t *testing.T) {
	t.Parallel()
	content := make([]byte, 1<<20)
	path, closeFile, err := oneTimeFile(content)
	require.NoError(t, err)
	defer closeFile()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, got)
	_, closeUnread, err := oneTimeFile(content)
	require.NoError(t, err)
	closeUnread()
}
