package hack_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/berth-dev/berth/"

// layers gives the layer of a package by its longest matching folder. Imports between two packages of
// this module must go strictly down; packages of one unit (one entry of this
// table) may import each other.
var layers = map[string]int{
	"cmd":                     9,
	"plugins":                 8,
	"provisioner":             7,
	"disruption":              7,
	"interruption":            7,
	"disruption/candidate":    6,
	"provisioner/launch":      6,
	"provisioner/lifecycle":   6,
	"provisioner/nodepool":    6,
	"provisioner/overlay":     6,
	"provisioner/state":       5,
	"provisioner/fit":         5,
	"provisioner/batch":       5,
	"provisioner/aws":         5,
	"provisioner/solver":      4,
	"provisioner/promise":     4,
	"provisioner/cluster":     3,
	"provisioner/cloud":       3,
	"provisioner/volume":      4,
	"provisioner/catalog":     2,
	"provisioner/generated":   1,
	"provisioner/requirement": 1,
	"provisioner/resources":   1,
	"provisioner/events":      1,
	"provisioner/metrics":     1,
	"provisioner/condition":   1,
	"provisioner/poolhash":    1,
	"provisioner/aws/facts":   1,
	"provisioner/api":         0,
	"manifests":               0,
	"examples":                0,
	"examples/custom-plugin":  10,
	"hack":                    9,
}

// owners lists the import prefixes that only some folders may use outside tests.
var owners = map[string][]string{
	"github.com/aws/aws-sdk-go-v2/":   {"provisioner/aws", "interruption", "cmd"},
	"k8s.io/kubernetes/":              {"plugins", "provisioner/fit", "cmd"},
	"k8s.io/kube-scheduler/framework": {"plugins", "provisioner/fit", "cmd", "examples/custom-plugin"},
	module + "provisioner/aws/ec2sim": {"cmd/berth-local", "provisioner/aws/ec2sim"},
	module + "provisioner/testing":    {"provisioner/testing", "cmd/berth", "hack/scenarios"}, // simulate --verify has plans proved by the checker
	"testing":                         {"provisioner/testing"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		require.NoError(t, err, string(exit.Stderr))
	}
	require.NoError(t, err)
	var packages []goPackage
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

// layerOf returns the layer of a folder and the folder that decided it; ok is false for none.
func layerOf(folder string) (layer int, unit string, ok bool) {
	for f := folder; f != "."; f = parent(f) {
		if l, found := layers[f]; found {
			return l, f, true
		}
	}
	return 0, "", false
}

func parent(folder string) string {
	if i := strings.LastIndexByte(folder, '/'); i >= 0 {
		return folder[:i]
	}
	return "."
}

// violation returns why an import breaks the order, or "".
func violation(from, to string) string {
	fromLayer, fromUnit, ok := layerOf(from)
	if !ok {
		return "package has no layer: add its folder to the table"
	}
	toLayer, toUnit, ok := layerOf(to)
	switch {
	case !ok:
		return "import has no layer: add its folder to the table"
	case toLayer < fromLayer, fromUnit == toUnit:
		return ""
	default:
		return "imports must go strictly down"
	}
}

func TestImportsRunStrictlyDown(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	require.NotEmpty(t, packages)
	for _, p := range packages {
		from := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(from, "provisioner/testing") {
			continue // test wrappers may look at everything below the facade
		}
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module); ours && !strings.HasPrefix(to, "provisioner/testing") {
				require.Empty(t, violation(from, to), "%s imports %s", from, to)
			}
		}
	}
}

func TestOnlyOwnersImport(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for prefix, folders := range owners {
			for _, imported := range p.Imports {
				if imported == prefix || (strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "/")) && strings.HasPrefix(imported, prefix) {
					require.True(t, within(from, folders), "%s imports %s; only %v may", from, imported, folders)
				}
			}
		}
	}
}

func within(folder string, folders []string) bool {
	for _, f := range folders {
		if strings.HasPrefix(folder+"/", f+"/") {
			return true
		}
	}
	return false
}

// The checks above can only be trusted when they see a broken import.
func TestViolationSeesBrokenImports(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		from, to string
		broken   bool
	}{
		"down is fine":                     {from: "provisioner/launch", to: "provisioner/cloud"},
		"up is not":                        {from: "provisioner/cloud", to: "provisioner/launch", broken: true},
		"equals are not":                   {from: "provisioner/launch", to: "provisioner/lifecycle", broken: true},
		"parent and child are":             {from: "provisioner/aws", to: "provisioner/aws/fleet"},
		"siblings in one unit are":         {from: "provisioner/aws/fleet", to: "provisioner/aws/types"},
		"the core does not see the facade": {from: "provisioner/solver", to: "provisioner", broken: true},
		"an unknown folder has no layer":   {from: "elsewhere", to: "provisioner/cloud", broken: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.broken, violation(tc.from, tc.to) != "")
		})
	}
}
