// Command chart renders a chart of this repository with Helm's own engine, as `helm template` does:
//
//	chart [-name N] [-namespace N] [-f FILE]... [-set k=v]... [-notes] DIR
//
// CRDs of the chart come first, then its objects in the order in which Helm installs kinds.
package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// options say what to render.
type options struct {
	dir, name, namespace string
	files, sets          []string
	notes                bool
}

func main() {
	var o options
	flag.StringVar(&o.name, "name", "berth", "name of the release")
	flag.StringVar(&o.namespace, "namespace", "kube-system", "namespace of the release")
	flag.Func("f", "file with values; may be repeated", func(v string) error { o.files = append(o.files, v); return nil })
	flag.Func("set", "value as key=value; may be repeated", func(v string) error { o.sets = append(o.sets, v); return nil })
	flag.BoolVar(&o.notes, "notes", false, "print what the user is told after the installation instead of the objects")
	flag.Parse()
	// The charts link to files elsewhere in the repository; Helm tells of each link.
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	o.dir = flag.Arg(0)
	if err := render(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "render chart:", err)
		os.Exit(1)
	}
}

func render(out io.Writer, o options) error {
	c, err := loader.Load(o.dir)
	if err != nil {
		return fmt.Errorf("load %q: %w", o.dir, err)
	}
	given, err := values(o)
	if err != nil {
		return err
	}
	complete, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: o.name, Namespace: o.namespace, Revision: 1, IsInstall: true}, capabilities())
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	rendered, err := engine.Render(c, complete)
	if err != nil {
		return err
	}
	notes := ""
	for name, text := range rendered {
		if path.Base(name) == "NOTES.txt" {
			notes = text
			delete(rendered, name)
		}
	}
	if o.notes {
		_, err = io.WriteString(out, notes)
		return err
	}
	return write(out, c, rendered)
}

// capabilities are those of the Kubernetes that the product is built for, not those of Helm's modules.
func capabilities() *common.Capabilities {
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = common.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	return caps
}

func values(o options) (map[string]any, error) {
	all := map[string]any{}
	for _, file := range o.files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		given := map[string]any{}
		if err := yaml.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("parse values %s: %w", file, err)
		}
		all = util.MergeTables(given, all)
	}
	for _, set := range o.sets {
		if err := strvals.ParseInto(set, all); err != nil {
			return nil, fmt.Errorf("parse -set %s: %w", set, err)
		}
	}
	return all, nil
}

func write(out io.Writer, c *chart.Chart, rendered map[string]string) error {
	_, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return fmt.Errorf("sort objects: %w", err)
	}
	var texts []string
	for _, crd := range c.CRDObjects() {
		texts = append(texts, string(crd.File.Data))
	}
	slices.Sort(texts)
	for _, m := range manifests {
		texts = append(texts, m.Content)
	}
	for _, text := range texts {
		text = strings.TrimPrefix(strings.TrimSpace(text), "---\n")
		if _, err := fmt.Fprintf(out, "---\n%s\n", text); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
