package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/provisioner/testing/pyrand"
	"github.com/berth-dev/berth/provisioner/testing/scenario"
)

// poolOptions are what most pools leave out.
type poolOptions struct {
	weight         int
	limits, labels object
	taints         []object
}

func pool(name string, o poolOptions, requirements ...object) object {
	if o.labels == nil {
		o.labels = object{}
	}
	node := obj("nodeClassRef", obj("group", "bench.example.com", "kind", "NodeClass", "name", "default"),
		"requirements", append([]object{req("kubernetes.io/os", "In", "linux")}, requirements...))
	if o.taints != nil {
		node.set("taints", o.taints)
	}
	spec := obj("template", obj("metadata", obj("labels", o.labels), "spec", node),
		"disruption", obj("consolidationPolicy", "WhenEmptyOrUnderutilized", "consolidateAfter", "0s"))
	if o.weight > 0 {
		spec.set("weight", o.weight)
	}
	if o.limits != nil {
		spec.set("limits", o.limits)
	}
	return obj("apiVersion", "karpenter.sh/v1", "kind", "NodePool", "metadata", obj("name", name), "spec", spec)
}

func unlimited() object { return obj("cpu", "10000000", "memory", "10000000Gi") }

// general is one pool of these instance categories; of all without any.
func general(categories ...string) []object {
	requirements := []object{req(archKey, "In", "amd64", "arm64"), req(offerKey, "In", "spot", "on-demand")}
	if len(categories) > 0 {
		requirements = append(requirements, req(instanceLabel+"category", "In", categories...))
	}
	return []object{pool("general", poolOptions{limits: unlimited()}, requirements...)}
}

// mixed are three weighted pools: limited spot first, then tainted batch, then on-demand.
func mixed(rng *pyrand.Random) (pools, pods []object) {
	batch := obj("key", "workload", "value", "batch", "effect", "NoSchedule")
	category := instanceLabel + "category"
	pools = []object{
		pool("spot", poolOptions{weight: 100, limits: obj("cpu", "800", "memory", "4000Gi")},
			req(archKey, "In", "amd64"), req(offerKey, "In", "spot"), req(category, "In", "c", "m", "r")),
		pool("batch", poolOptions{weight: 50, taints: []object{batch}, limits: obj("cpu", "5000"), labels: obj("workload", "batch")},
			req(archKey, "In", "amd64", "arm64"), req(offerKey, "In", "spot", "on-demand"), req(category, "In", "c", "m", "r")),
		pool("on-demand", poolOptions{weight: 10, limits: obj("cpu", "5000")},
			req(archKey, "In", "amd64"), req(offerKey, "In", "on-demand"), req(category, "In", "c", "m", "r", "t")),
	}
	pods = microservices(rng, 150, false)
	for _, g := range pods {
		unpin(g, rng.Float64() < 0.25)
	}
	for i := range 10 {
		count := rng.Between(50, 151)
		cpu, memory := pyrand.Choice(rng, 500, 1000, 2000, 4000), pyrand.Choice(rng, 1, 2, 4, 8)
		pods = append(pods, group(fmt.Sprintf("batch-%d", i), count, fmt.Sprintf("%dm", cpu), fmt.Sprintf("%dGi", memory), nil, nil,
			obj("nodeSelector", obj("workload", "batch"),
				"tolerations", []object{obj("key", "workload", "operator", "Equal", "value", "batch", "effect", "NoSchedule")})))
	}
	return pools, pods
}

// unpin takes the GPU and the architecture off a group, and pins some to on-demand.
func unpin(group object, onDemand bool) {
	template := group.get("template").(object)
	spec := template.get("spec").(object)
	container := spec.get("containers").([]object)[0]
	demands := container.get("resources").(object)
	requests := demands.get("requests").(object)
	if requests.get(gpu) != nil {
		requests.remove(gpu)
		demands.set("requests", requests)
		demands.remove("limits")
		container.set("resources", demands)
	}
	selector, _ := spec.get("nodeSelector").(object)
	selector.remove(archKey)
	if onDemand {
		selector.set(offerKey, "on-demand")
	}
	if selector == nil {
		selector = object{}
	}
	spec.set("nodeSelector", selector)
	template.set("spec", spec)
}

// existing are nodes about two thirds full.
func existing(nodes int) []object {
	var out []object
	for i, n := range []struct {
		name string
		cpus int
	}{{"m6i.xlarge", 4}, {"m6i.2xlarge", 8}, {"c6i.2xlarge", 8}, {"r6i.xlarge", 4}} {
		for _, zone := range zones {
			old := fmt.Sprintf("old-%d", i)
			out = append(out, obj("name", fmt.Sprintf("n%d%s", i, zone[len(zone)-1:]), "count", nodes/12, "nodePool", "general",
				"instanceType", n.name, "zone", zone, "capacityType", "spot",
				"pods", []object{group(old, n.cpus*6/10, "1000m", "1500Mi", obj("app", old), nil, nil)}))
		}
	}
	return out
}

// definition is a scenario: what its file has after name and instanceTypesFile.
type definition struct {
	name, machines string
	body           func(random func(name string) *pyrand.Random) object
}

type random = func(name string) *pyrand.Random

func definitions() []definition {
	var out []definition
	add := func(name, machines string, body func(random) object) {
		out = append(out, definition{name, machines, body})
	}
	for _, n := range []int{100, 1000, 5000, 20000} {
		add(fmt.Sprintf("a-diverse-%d", n), "current", func(r random) object {
			return obj("nodePools", general("c", "m", "r"), "pods", diverse(r("diverse"), n))
		})
	}
	for _, n := range []int{1000, 5000} {
		add(fmt.Sprintf("a-fake400-%d", n), "fake400", func(r random) object {
			p := pool("general", poolOptions{limits: unlimited()}, req(offerKey, "In", "spot", "on-demand"))
			return obj("nodePools", []object{p}, "pods", diverse(r("diverse"), n))
		})
	}
	add("b-homogeneous-10k", "current", func(random) object {
		return obj("nodePools", general("c", "m", "r"), "pods", []object{group("web", 10000, "100m", "128Mi", nil, nil, nil)})
	})
	for suffix, categories := range inOrder([]string{"c", "m", "r", "g"}) {
		add("c-microservices-300"+suffix, "current", func(r random) object {
			return obj("nodePools", general(categories...), "daemonSets", daemonSets(), "pods", microservices(r("micro"), 300, true))
		})
	}
	add("d-mixed-pools", "current", func(r random) object {
		pools, pods := mixed(r("mixed"))
		return obj("nodePools", pools, "daemonSets", daemonSets(), "pods", pods)
	})
	for suffix, categories := range inOrder([]string{"c", "m", "r"}) {
		add("e-batch-3000"+suffix, "current", func(random) object {
			return obj("nodePools", general(categories...), "pods", []object{group("job", 3000, "2", "7Gi", obj("job-name", "job"), nil, nil)})
		})
	}
	for _, n := range []int{504, 2004} {
		add(fmt.Sprintf("f-existing-%d", n), "current", func(r random) object {
			return obj("nodePools", general("c", "m", "r", "g"), "daemonSets", daemonSets(), "nodes", existing(n),
				"pods", microservices(r("micro"), 100, true))
		})
		// What weighing one candidate for consolidation costs: a node's few pods against all other nodes.
		add(fmt.Sprintf("g-probe-%d", n), "current", func(random) object {
			moved := group("moved", 8, "1000m", "1500Mi", nil, nil, obj("topologySpreadConstraints", spread(zoneKey, obj("app", "moved"))))
			return obj("nodePools", general("c", "m", "r"), "daemonSets", daemonSets(), "nodes", existing(n), "pods", []object{moved})
		})
	}
	return out
}

// inOrder yields the restricted form of a scenario and then the open one, by the suffix of their names.
func inOrder(categories []string) func(yield func(string, []string) bool) {
	return func(yield func(string, []string) bool) {
		_ = yield("", categories) && yield("-open", nil)
	}
}

// Names of the scenarios, in the order of their making.
func Names() []string {
	var names []string
	for _, d := range definitions() {
		names = append(names, d.name)
	}
	return names
}

// File is the scenario's file, which refers to CatalogueFile of its machines.
func File(name string, seed int) ([]byte, error) {
	all := definitions()
	i := slices.IndexFunc(all, func(d definition) bool { return d.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no scenario %q: there are %s", name, strings.Join(Names(), ", "))
	}
	body := all[i].body(func(part string) *pyrand.Random { return pyrand.FromText(fmt.Sprintf("%d/%s", seed, part)) })
	return text(append(obj("name", name, "instanceTypesFile", "catalog-"+all[i].machines+".json"), body...)), nil
}

// CatalogueFile is a list of machines as scenarios refer to it; see Catalogues.
func CatalogueFile(which string) ([]byte, error) {
	machines, err := catalogue(which)
	if err != nil {
		return nil, err
	}
	return text(machines), nil
}

// Write makes the files of the scenarios, of all without a name, and of all catalogues.
func Write(dir string, seed int, names ...string) error {
	if len(names) == 0 {
		names = Names()
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for _, which := range Catalogues {
		if err := put(dir, "catalog-"+which, func() ([]byte, error) { return CatalogueFile(which) }); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := put(dir, name, func() ([]byte, error) { return File(name, seed) }); err != nil {
			return err
		}
	}
	return nil
}

func put(dir, name string, content func() ([]byte, error)) error {
	raw, err := content()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o600); err != nil {
		return fmt.Errorf("write scenario: %w", err)
	}
	return nil
}

// Scenario is the scenario with its machines, made without files.
func Scenario(name string, seed int) (*scenario.Scenario, error) {
	raw, err := File(name, seed)
	if err != nil {
		return nil, err
	}
	s := &scenario.Scenario{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("parse scenario %s: %w", name, err)
	}
	which := strings.TrimSuffix(strings.TrimPrefix(s.InstanceTypesFile, "catalog-"), ".json")
	machines, err := CatalogueFile(which)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(machines, &s.InstanceTypes); err != nil {
		return nil, fmt.Errorf("parse catalogue %s: %w", which, err)
	}
	return s, nil
}
