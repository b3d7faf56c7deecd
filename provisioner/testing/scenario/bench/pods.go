package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-dev/berth/provisioner/testing/pyrand"
)

const (
	zoneKey  = "topology.kubernetes.io/zone"
	hostKey  = "kubernetes.io/hostname"
	archKey  = "kubernetes.io/arch"
	offerKey = "karpenter.sh/capacity-type"
	gpu      = "nvidia.com/gpu"
	required = "requiredDuringSchedulingIgnoredDuringExecution"
	wished   = "preferredDuringSchedulingIgnoredDuringExecution"
)

func req(key, op string, values ...string) object {
	return obj("key", key, "operator", op, "values", values)
}

// group is count equal pods of one container. Labels may be nil: the name as app then. Extra are extended
// resources, which are limits too; spec adds to the pod's spec.
func group(name string, count int, cpu, memory string, labels, extra, spec object) object {
	requests := append(obj("cpu", cpu, "memory", memory), extra...)
	demands := obj("requests", requests)
	if extra != nil {
		demands.set("limits", extra)
	}
	if labels == nil {
		labels = obj("app", name)
	}
	containers := []object{obj("name", "app", "image", "app", "resources", demands)}
	return obj("name", name, "count", count,
		"template", obj("metadata", obj("labels", labels), "spec", append(obj("containers", containers), spec...)))
}

func spread(key string, labels object) []object {
	return []object{obj("maxSkew", 1, "topologyKey", key, "whenUnsatisfiable", "DoNotSchedule", "labelSelector", obj("matchLabels", labels))}
}

func term(key string, labels object) object {
	return obj("topologyKey", key, "labelSelector", obj("matchLabels", labels))
}

func daemonSets() []object {
	var out []object
	for _, d := range [][3]string{{"ds-cni", "50m", "64Mi"}, {"ds-proxy", "100m", "64Mi"}, {"ds-logs", "100m", "200Mi"},
		{"ds-metrics", "50m", "100Mi"}, {"ds-csi", "30m", "120Mi"}} {
		out = append(out, group(d[0], 1, d[1], d[2], nil, nil, nil))
	}
	return out
}

// mixKey is what makes pods of the diverse mix equal.
type mixKey struct{ kind, value, selects, cpu, memory string }

func (k mixKey) compare(other mixKey) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.value, other.value), cmp.Compare(k.selects, other.selects),
		cmp.Compare(k.cpu, other.cpu), cmp.Compare(k.memory, other.memory))
}

// diverse is the mix of the peer's own benchmark: a fifth each of five kinds, the rest generic.
func diverse(rng *pyrand.Random, n int) []object {
	letter := func() string { return pyrand.Choice(rng, "a", "b", "c", "d", "e", "f", "g") }
	counts := map[mixKey]int{}
	for _, kind := range []string{"generic", "zspread", "hspread", "zaff", "hanti"} {
		number := n / 5
		if kind == "generic" {
			number = n - 4*(n/5)
		}
		for range number {
			k := mixKey{kind: kind, value: letter()}
			if strings.HasSuffix(kind, "spread") {
				k.selects = letter()
			}
			k.cpu = fmt.Sprintf("%dm", pyrand.Choice(rng, 100, 250, 500, 1000, 1500))
			k.memory = fmt.Sprintf("%dMi", pyrand.Choice(rng, 100, 256, 512, 1024, 2048, 4096))
			counts[k]++
		}
	}
	keys := make([]mixKey, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, mixKey.compare)
	var out []object
	for _, k := range keys {
		out = append(out, k.group(counts[k]))
	}
	return out
}

func (k mixKey) group(count int) object {
	labels := obj("my-label", k.value)
	var spec object
	switch k.kind {
	case "zspread":
		spec = obj("topologySpreadConstraints", spread(zoneKey, obj("my-label", k.selects)))
	case "hspread":
		spec = obj("topologySpreadConstraints", spread(hostKey, obj("my-label", k.selects)))
	case "zaff":
		labels = obj("my-affinity", k.value)
		spec = obj("affinity", obj("podAffinity", obj(required, []object{term(zoneKey, labels)})))
	case "hanti":
		labels = obj("app", "nginx")
		spec = obj("affinity", obj("podAntiAffinity", obj(required, []object{term(hostKey, labels)})))
	}
	parts := slices.DeleteFunc([]string{k.kind, k.value, k.selects, k.cpu, strings.ToLower(k.memory)}, func(s string) bool { return s == "" })
	return group(strings.Join(parts, "-"), count, k.cpu, k.memory, labels, nil, spec)
}

// logNormal draws a whole multiple of step between the bounds. Conversions keep the compiler from fusing
// operations, which would round differently.
func logNormal(rng *pyrand.Random, median, sigma float64, low, high, step int) int {
	x := float64(median*math.Exp(rng.Gauss(0, sigma))) / float64(step)
	return max(low, min(high, int(math.RoundToEven(x))*step))
}

// microservices are deployments as a company has them. Every draw of the random numbers counts: their
// order is that of the Python program.
func microservices(rng *pyrand.Random, deployments int, pinArch bool) []object {
	out := make([]object, deployments)
	for i := range out {
		out[i] = microservice(rng, fmt.Sprintf("svc-%03d", i), pinArch)
	}
	return out
}

func microservice(rng *pyrand.Random, name string, pinArch bool) object {
	labels := obj("app", name, "team", fmt.Sprintf("t%d", rng.IntN(20)))
	self := obj("app", name)
	var spec, affinity, selector, extra object
	replicas := logNormal(rng, 8, 0.9, 2, 60, 1)
	cpu, memory := logNormal(rng, 200, 1, 10, 8000, 10), logNormal(rng, 384, 1, 32, 32768, 16)
	var u [6]float64
	for i := range u {
		u[i] = rng.Float64()
	}
	if u[0] < 0.30 {
		spec.set("topologySpreadConstraints", spread(zoneKey, self))
	}
	switch {
	case u[1] < 0.10:
		affinity.set("podAntiAffinity", obj(required, []object{term(hostKey, self)}))
	case u[1] < 0.20:
		affinity.set("podAntiAffinity", obj(wished, []object{obj("weight", 100, "podAffinityTerm", term(hostKey, self))}))
	}
	if pinArch && u[2] >= 0.10 {
		selector.set(archKey, "amd64")
	}
	switch {
	case u[3] < 0.02:
		extra, replicas = obj(gpu, "1"), min(replicas, 6)
		selector.set(archKey, "amd64")
	case u[4] < 0.04:
		selector.set(offerKey, "on-demand")
	case u[4] < 0.07:
		selector.set(instanceLabel+"category", pyrand.Choice(rng, "c", "m", "r"))
	case u[4] < 0.09:
		selector.set(zoneKey, pyrand.Choice(rng, zones...))
		spec.remove("topologySpreadConstraints")
	}
	switch {
	case u[5] < 0.06:
		affinity.set("nodeAffinity", prefer(10, req(instanceLabel+"generation", "In", "7", "8")))
	case u[5] < 0.10:
		affinity.set("nodeAffinity", prefer(50, req(zoneKey, "In", pyrand.Choice(rng, zones...))))
	}
	if selector != nil {
		spec.set("nodeSelector", selector)
	}
	if affinity != nil {
		spec.set("affinity", affinity)
	}
	return group(name, replicas, fmt.Sprintf("%dm", cpu), fmt.Sprintf("%dMi", memory), labels, extra, spec)
}

func prefer(weight int, r object) object {
	return obj(wished, []object{obj("weight", weight, "preference", obj("matchExpressions", []object{r}))})
}
