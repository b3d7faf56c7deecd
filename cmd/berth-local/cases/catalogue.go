package cases

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/cmd/berth-local/allinone"
	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// Zones of a case are zone-a to zone-f; those of the cluster are us-east-1a to us-east-1f.
const zonePrefix = "zone-"

var ourZone = regexp.MustCompile(allinone.Region + `([a-z])\b`)

// toZone translates a zone of a case for the cluster. Other text stays.
func toZone(zone string) string {
	if letter, ok := strings.CutPrefix(zone, zonePrefix); ok && len(letter) == 1 {
		return allinone.Region + letter
	}
	return zone
}

// fromZones translates every zone in a text back.
func fromZones(text string) string { return ourZone.ReplaceAllString(text, zonePrefix+"$1") }

const allZones = "abcdef"

// catalogue makes the facts of an EC2 that knows the case's instance types and no others. What was not
// possible is named in unsupported.
func (s *scenario) catalogue() (_ *facts.Catalog, unsupported []string, err error) {
	known, err := facts.Load()
	if err != nil {
		return nil, nil, err
	}
	prices, factors := map[string]float64{}, map[string]float64{}
	data := facts.Data{
		Zones:    map[string][]facts.Zone{allinone.Region: known.Zones(allinone.Region)},
		OnDemand: map[string]map[string]float64{allinone.Region: prices},
		SpotFactor: func(name, zone string) float64 {
			if factor, ok := factors[name]; ok {
				return factor
			}
			return facts.SpotFactor(name, zone)
		},
	}
	for _, name := range s.realTypes {
		t, ok := known.Lookup(name)
		usd, priced := known.OnDemandPrice(allinone.Region, name)
		if !ok || !priced {
			unsupported = append(unsupported, fmt.Sprintf("instance type %s: only its name is given and it is not a real one", name))
			continue
		}
		t.Zones = map[string]string{allinone.Region: allZones}
		data.Types, prices[name] = append(data.Types, t), usd
	}
	for _, want := range s.types {
		t, reason := approximate(baseType(known, want), want)
		if reason != "" {
			unsupported = append(unsupported, fmt.Sprintf("instance type %s: %s", want.Name, reason))
			continue
		}
		data.Types = append(data.Types, t)
		prices[t.Name] = want.Price.OnDemand
		switch {
		case want.Price.OnDemand > 0 && want.Price.Spot > 0:
			factors[t.Name] = want.Price.Spot / want.Price.OnDemand
		case want.Price.Spot > 0: // the simulator derives spot prices from on-demand ones
			prices[t.Name], factors[t.Name] = 2*want.Price.Spot, 0.5
		}
	}
	catalog, err := facts.NewCatalog(data)
	if err != nil {
		return nil, nil, fmt.Errorf("make catalogue: %w", err)
	}
	return &catalog, unsupported, nil
}

// baseType is the real type of that name, or a plain one under the name.
func baseType(known facts.Catalog, want instanceType) facts.InstanceType {
	if t, ok := known.Lookup(want.Name); ok {
		return t
	}
	plain := "m5.large"
	if want.Arch == "arm64" {
		plain = "m7g.large"
	}
	t, _ := known.Lookup(plain)
	t.Name = want.Name
	t.Family, t.Size, _ = strings.Cut(want.Name, ".")
	return t
}

// Memory in MiB that the provider takes off a machine: the hypervisor's part, what the kubelet reserves
// for itself and for each pod that the network interfaces allow, the eviction threshold, and on ARM a
// further constant.
const (
	hypervisorPart = 0.075
	reservedMiB    = 255
	perPodMiB      = 11
	evictionMiB    = 100
	armMiB         = 64
)

// A machine's CPU may exceed what the case says by this much, no more: then it would be another case.
const (
	cpuTolerance      = 0.05
	cpuToleranceMilli = 100
)

// approximate turns the base into a machine whose allocatable, as the provider computes it with EC2's
// and EKS's formulas, is the case's or as little above as can be.
//
//   - CPU comes in whole vCPUs, of which EKS reserves a part: 2 give 1930m, 4 give 3920m. Amounts that no
//     number of vCPUs comes near are refused.
//   - Pods are exact: one network interface with as many addresses as it takes.
//   - Memory is above by less than 1 MiB; the simulated kubelet reports up to 6 % more than the provider
//     computes, as real ones do.
//   - GPUs are as many as the case says, of the base's kind or a plain one.
func approximate(t facts.InstanceType, want instanceType) (_ facts.InstanceType, reason string) {
	t.Zones = map[string]string{allinone.Region: allZones}
	t.UsageClasses = nil
	if want.Price.OnDemand > 0 {
		t.UsageClasses = append(t.UsageClasses, "on-demand")
	}
	if want.Price.Spot > 0 {
		t.UsageClasses = append(t.UsageClasses, "spot")
	}
	if len(t.UsageClasses) == 0 {
		return t, "it has no price"
	}
	if pods := want.Allocatable.Pods().Value(); pods > 1 {
		t.Network.MaxENIs, t.Network.DefaultCard, t.Network.IPv4PerENI = 1, 0, int(pods)-1
		t.Network.Cards = []facts.Card{{MaxENIs: 1}}
	}
	for name, amount := range want.Allocatable {
		switch name {
		case corev1.ResourceCPU:
			milli := amount.MilliValue()
			if t.VCPUs = vcpusFor(milli); t.VCPUs == 0 {
				return t, fmt.Sprintf("no number of vCPUs leaves about %s cpu for pods", amount.String())
			}
			t.ThreadsPerCore, t.Cores = 1, t.VCPUs
		case corev1.ResourceMemory:
			t.MemoryMiB = memoryFor(float64(amount.Value())/(1<<20), ec2sim.ENIPods(t), isARM(t))
		case corev1.ResourcePods:
		case "nvidia.com/gpu":
			t.GPUs = gpus(t, int(amount.Value()))
		default:
			return t, fmt.Sprintf("allocatable %s is not supported yet", name)
		}
	}
	return t, ""
}

func isARM(t facts.InstanceType) bool {
	return len(t.Architectures) > 0 && t.Architectures[0] == "arm64"
}

// vcpusFor returns the smallest number of vCPUs that leaves the amount, 0 when it leaves far too much.
func vcpusFor(milli int64) int {
	for n := 1; n <= 1024; n++ {
		cores := int64(n)
		reserved := 60 + 10*min(cores-1, 1) + 5*min(max(cores-2, 0), 2) + max(cores-4, 0)*10/4
		over := cores*1000 - reserved - milli
		if over < 0 {
			continue
		}
		if over > cpuToleranceMilli && float64(over) > cpuTolerance*float64(milli) {
			return 0
		}
		return n
	}
	return 0
}

// memoryFor returns the nominal MiB of a machine that leaves the amount for pods.
func memoryFor(mebi float64, pods int64, arm bool) int64 {
	needed := int64(math.Ceil(mebi)) + perPodMiB*pods + reservedMiB + evictionMiB
	if arm {
		needed += armMiB
	}
	nominal := needed
	for nominal-int64(math.Ceil(float64(nominal)*hypervisorPart)) < needed {
		nominal++
	}
	return nominal
}

func gpus(t facts.InstanceType, count int) []facts.GPU {
	gpu := facts.GPU{Name: "L4", Manufacturer: "NVIDIA", MemoryMiB: 22888, Partition: 1}
	if len(t.GPUs) > 0 && t.GPUs[0].Manufacturer == gpu.Manufacturer {
		gpu = t.GPUs[0]
	}
	gpu.Count = count
	return []facts.GPU{gpu}
}

// world is the account with the case's subnets, or with the usual three.
func (s *scenario) world(catalog facts.Catalog) (*ec2sim.World, error) {
	world := ec2sim.DefaultWorld(catalog, allinone.Region, allinone.ClusterName)
	if len(s.given.NodeClass.Subnets) == 0 {
		return &world, nil
	}
	world.Subnets = nil
	for i, sn := range s.given.NodeClass.Subnets {
		var id string
		for _, z := range catalog.Zones(allinone.Region) {
			if z.Name == toZone(sn.Zone) {
				id = z.ID
			}
		}
		if id == "" || i > 15 {
			return nil, fmt.Errorf("subnet %s: zone %q is not one of zone-a to zone-f, or there are more than 16 subnets", sn.ID, sn.Zone)
		}
		world.Subnets = append(world.Subnets, ec2sim.Subnet{
			ID: sn.ID, Zone: toZone(sn.Zone), ZoneID: id, CIDR: fmt.Sprintf("10.0.%d.0/20", i*16),
			Tags: map[string]string{"karpenter.sh/discovery": allinone.ClusterName},
		})
	}
	return &world, nil
}
