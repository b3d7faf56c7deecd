package allinone

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func TestReadCatalog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catalogue.tsv.gz")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, facts.Encode(file, facts.Default().Data()))
	require.NoError(t, file.Close())
	catalog, err := readCatalog(path)
	require.NoError(t, err)
	require.Len(t, catalog.Types(), len(facts.Types()))

	_, err = readCatalog(filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "read --catalog")
	require.NoError(t, os.WriteFile(path, []byte("not a catalogue"), 0o600))
	_, err = readCatalog(path)
	require.ErrorContains(t, err, path)
}
