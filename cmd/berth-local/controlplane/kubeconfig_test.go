package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Whoever names their own kubeconfig must not lose it.
func TestForeignKubeconfigIsNotReplaced(t *testing.T) {
	t.Parallel()
	write := func(clusters ...string) string {
		config := clientcmdapi.NewConfig()
		for _, name := range clusters {
			config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://127.0.0.1"}
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, clientcmd.WriteToFile(*config, path))
		return path
	}
	text := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(text, []byte("precious"), 0o600))
	require.NoError(t, mayReplace(""))
	require.NoError(t, mayReplace(filepath.Join(t.TempDir(), "new")))
	require.NoError(t, mayReplace(write("berth-local")), "an earlier cluster left it behind")
	for _, path := range []string{text, write("prod"), write("berth-local", "prod")} {
		require.ErrorContains(t, mayReplace(path), path+" exists and was not written by berth-local")
	}
}
