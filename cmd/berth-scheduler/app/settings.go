package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/disruption/budget"
	"github.com/berth-dev/berth/plugins/config"
)

// Settings of the provisioner, from flags, else environment, else plugin arguments, else defaults.
type Settings struct {
	ClusterName string
	// ClusterEndpoint and ClusterCABundle go into user data; empty means discovered.
	ClusterEndpoint, ClusterCABundle    string
	BatchIdleDuration, BatchMaxDuration time.Duration
	PreferencePolicy                    config.PreferencePolicy
	MinValuesPolicy                     config.MinValuesPolicy
	NodeCap                             int     // most nodes in the cluster; 0 means the default of package launch
	NodeCost                            float64 // USD per hour and node beside the instance
	MaxUnhealthy                        string  // nodes of a pool: a number or a percentage
	LeaseName, LeaseNamespace           string
	VMMemoryOverheadPercent             float64
	ReservedENIs                        int
	InterruptionQueue                   string
	IsolatedVPC, EKSControlPlane        bool
	// MetricsPort and HealthProbePort answer in plain HTTP; 0 means neither metrics nor probes there.
	MetricsPort, HealthProbePort int
	// MemoryLimit is what the container may use, in bytes; 0 or less means unknown.
	MemoryLimit int64
	// LogLevel is debug, info, error, or empty for what -v says.
	LogLevel                            string
	preferencePolicyText, minValuesText string
	// Gates are Karpenter's feature gates, by name; those that are not set have their defaults.
	Gates map[string]bool
}

// gateDefaults are Karpenter's feature gates with what holds when FEATURE_GATES does not name them.
var gateDefaults = map[string]bool{
	"SpotToSpotConsolidation": false, "NodeRepair": false, "NodeOverlay": false, "StaticCapacity": false,
	"CapacityBuffer": false, "ReservedCapacity": true, "DynamicResources": false,
}

// parseGates reads the form "Name=true,Other=false". Names that nobody knows are returned apart: they may
// be of another version.
func parseGates(text string) (gates map[string]bool, unknown []string, err error) {
	gates = maps.Clone(gateDefaults)
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		on, parseErr := strconv.ParseBool(value)
		if parseErr != nil {
			return gates, unknown, fmt.Errorf("environment variable FEATURE_GATES has %q: use a list like SpotToSpotConsolidation=true,NodeRepair=false", part)
		}
		if _, known := gateDefaults[name]; !known {
			unknown = append(unknown, name)
			continue
		}
		gates[name] = on
	}
	return gates, unknown, nil
}

// addFlags registers the flags. Their defaults are what the environment says.
func (s *Settings) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.ClusterName, "cluster-name", s.ClusterName, "Name of the cluster, as in its EC2 tags. Required. Environment: CLUSTER_NAME.")
	fs.StringVar(&s.ClusterEndpoint, "cluster-endpoint", s.ClusterEndpoint, "API server URL for new nodes; empty means discovered. Environment: CLUSTER_ENDPOINT.")
	fs.StringVar(&s.ClusterCABundle, "cluster-ca-bundle", s.ClusterCABundle, "API server CA for new nodes, base64 of PEM; empty means discovered. Environment: CLUSTER_CA_BUNDLE.")
	fs.DurationVar(&s.BatchIdleDuration, "batch-idle-duration", s.BatchIdleDuration, "A batch of pods closes after this silence. Default: the plugin's batchIdleDuration, 100ms. Environment: BATCH_IDLE_DURATION.")
	fs.DurationVar(&s.BatchMaxDuration, "batch-max-duration", s.BatchMaxDuration, "A batch of pods closes at the latest after this time. Default: the plugin's batchMaxDuration, 1s. Environment: BATCH_MAX_DURATION.")
	fs.StringVar(&s.preferencePolicyText, "preference-policy", s.preferencePolicyText, "What preferences of pods count for when nodes are bought: Guide, Respect or Ignore. Default: the plugin's preferencePolicy, Guide. Environment: PREFERENCE_POLICY.")
	fs.StringVar(&s.minValuesText, "min-values-policy", s.minValuesText, "What happens when minValues cannot be met: Strict or BestEffort. Default: the plugin's minValuesPolicy, Strict. Environment: MIN_VALUES_POLICY.")
	fs.IntVar(&s.NodeCap, "node-cap", s.NodeCap, "With this many nodes in the cluster nothing more is bought; 0 means 10000. Environment: NODE_CAP.")
	fs.Float64Var(&s.NodeCost, "node-cost", s.NodeCost, "What a node costs per hour beside its instance (disk, addresses, agents), in USD. Environment: NODE_COST.")
	fs.StringVar(&s.MaxUnhealthy, "max-unhealthy", s.MaxUnhealthy, "With the gate NodeRepair: when more nodes of a pool ail than this number or percentage, none of them is given up. Environment: MAX_UNHEALTHY.")
	fs.StringVar(&s.LeaseName, "provisioner-lease-name", s.LeaseName, "Lease that whoever buys nodes holds. Karpenter's, so that both never act at once. Environment: LEADER_ELECTION_NAME.")
	fs.StringVar(&s.LeaseNamespace, "provisioner-lease-namespace", s.LeaseNamespace, "Namespace of that Lease; a live holder in any namespace blocks buying. Environment: LEADER_ELECTION_NAMESPACE.")
	fs.Float64Var(&s.VMMemoryOverheadPercent, "vm-memory-overhead-percent", s.VMMemoryOverheadPercent, "Share of an instance type's memory that the machine itself is taken to need until real nodes have been seen. Environment: VM_MEMORY_OVERHEAD_PERCENT.")
	fs.IntVar(&s.ReservedENIs, "reserved-enis", s.ReservedENIs, "Network interfaces per node that pods cannot use. Environment: RESERVED_ENIS.")
	fs.StringVar(&s.InterruptionQueue, "interruption-queue", s.InterruptionQueue, "Name of the SQS queue with interruption messages; empty means none. Environment: INTERRUPTION_QUEUE.")
	fs.BoolVar(&s.IsolatedVPC, "isolated-vpc", s.IsolatedVPC, "The VPC has no way to the price list; embedded prices are used. Environment: ISOLATED_VPC.")
	fs.BoolVar(&s.EKSControlPlane, "eks-control-plane", s.EKSControlPlane, "Ask EKS for the cluster's details. Environment: EKS_CONTROL_PLANE.")
}

// settingsFromEnv returns defaults overlaid with the environment; lookup is os.LookupEnv outside tests.
func settingsFromEnv(lookup func(string) (string, bool)) (*Settings, error) {
	s := &Settings{
		NodeCost: 0.005, MaxUnhealthy: "20%", LeaseName: "karpenter-leader-election", LeaseNamespace: "kube-system",
		VMMemoryOverheadPercent: 0.075, MetricsPort: 8080, HealthProbePort: 8081,
	}
	var errs []error
	text := func(name string, into *string) {
		if v, ok := lookup(name); ok && v != "" {
			*into = v
		}
	}
	text("CLUSTER_NAME", &s.ClusterName)
	text("CLUSTER_ENDPOINT", &s.ClusterEndpoint)
	text("CLUSTER_CA_BUNDLE", &s.ClusterCABundle)
	text("PREFERENCE_POLICY", &s.preferencePolicyText)
	text("MIN_VALUES_POLICY", &s.minValuesText)
	text("MAX_UNHEALTHY", &s.MaxUnhealthy)
	text("LEADER_ELECTION_NAME", &s.LeaseName)
	text("POD_NAMESPACE", &s.LeaseNamespace)
	text("LEADER_ELECTION_NAMESPACE", &s.LeaseNamespace)
	text("INTERRUPTION_QUEUE", &s.InterruptionQueue)
	text("LOG_LEVEL", &s.LogLevel)
	gates, _ := lookup("FEATURE_GATES")
	var unknown []string
	var err error
	s.Gates, unknown, err = parseGates(gates)
	for _, name := range unknown {
		klog.Background().Info("FEATURE_GATES names a gate that does not exist, it is ignored", "gate", name)
	}
	errs = append(errs, err, checkLogLevel(s.LogLevel),
		parse(lookup, "METRICS_PORT", parsePort, &s.MetricsPort, "8080, or 0 for none"),
		parse(lookup, "HEALTH_PROBE_PORT", parsePort, &s.HealthProbePort, "8081, or 0 for none"),
		parse(lookup, "MEMORY_LIMIT", parseBytes, &s.MemoryLimit, "1073741824, or -1 for none"),
		parse(lookup, "BATCH_IDLE_DURATION", time.ParseDuration, &s.BatchIdleDuration, "100ms"),
		parse(lookup, "BATCH_MAX_DURATION", time.ParseDuration, &s.BatchMaxDuration, "1s"),
		parse(lookup, "NODE_CAP", strconv.Atoi, &s.NodeCap, "1000"),
		parse(lookup, "NODE_COST", parseFloat, &s.NodeCost, "0.005"),
		parse(lookup, "VM_MEMORY_OVERHEAD_PERCENT", parseFloat, &s.VMMemoryOverheadPercent, "0.075"),
		parse(lookup, "RESERVED_ENIS", strconv.Atoi, &s.ReservedENIs, "1"),
		parse(lookup, "ISOLATED_VPC", parseBool, &s.IsolatedVPC, "true"),
		parse(lookup, "EKS_CONTROL_PLANE", parseBool, &s.EKSControlPlane, "true"))
	return s, errors.Join(errs...)
}

func parseFloat(v string) (float64, error) { return strconv.ParseFloat(v, 64) }

func parseBytes(v string) (int64, error) { return strconv.ParseInt(v, 10, 64) }

func parsePort(v string) (int, error) {
	port, err := strconv.ParseUint(v, 10, 16)
	return int(port), err
}

// verbosities are the klog levels behind the words of LOG_LEVEL.
var verbosities = map[string]string{"debug": "4", "info": "2", "error": "0"}

func checkLogLevel(level string) error {
	if _, known := verbosities[level]; level == "" || known {
		return nil
	}
	return fmt.Errorf("environment variable LOG_LEVEL has the value %q: use debug, info or error", level)
}

func parseBool(v string) (bool, error) {
	if v != "true" && v != "false" {
		return false, errors.New("neither true nor false")
	}
	return v == "true", nil
}

func parse[T any](lookup func(string) (string, bool), name string, convert func(string) (T, error), into *T, example string) error {
	v, ok := lookup(name)
	if !ok || v == "" {
		return nil
	}
	parsed, err := convert(v)
	if err != nil {
		return fmt.Errorf("environment variable %s has the value %q: %w; use a value like %s", name, v, err, example)
	}
	*into = parsed
	return nil
}

// complete fills from the plugin's arguments what neither flags nor environment have set.
func (s *Settings) complete(args *config.NodeProvisionArgs) {
	if s.BatchIdleDuration == 0 {
		s.BatchIdleDuration = args.BatchIdleDuration
	}
	if s.BatchMaxDuration == 0 {
		s.BatchMaxDuration = max(args.BatchMaxDuration, s.BatchIdleDuration)
	}
	s.PreferencePolicy, s.MinValuesPolicy = args.PreferencePolicy, args.MinValuesPolicy
	if s.preferencePolicyText != "" {
		s.PreferencePolicy = config.PreferencePolicy(s.preferencePolicyText)
	}
	if s.minValuesText != "" {
		s.MinValuesPolicy = config.MinValuesPolicy(s.minValuesText)
	}
}

// validate returns every fault of completed settings, each with flag, value and what would be right.
func (s *Settings) validate() error {
	var errs []error
	check := func(ok bool, flag string, value any, fix string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s has the value %q: %s", flag, fmt.Sprint(value), fix))
		}
	}
	check(s.ClusterName != "", "cluster-name", s.ClusterName, "name the cluster as in its EC2 tags, for example --cluster-name=prod")
	check(s.BatchIdleDuration > 0, "batch-idle-duration", s.BatchIdleDuration, "use a duration above 0s, for example 100ms")
	check(s.BatchMaxDuration >= s.BatchIdleDuration, "batch-max-duration", s.BatchMaxDuration, fmt.Sprintf("use at least --batch-idle-duration, %s", s.BatchIdleDuration))
	check(oneOf(s.PreferencePolicy, config.PreferenceGuide, config.PreferenceRespect, config.PreferenceIgnore),
		"preference-policy", s.PreferencePolicy, "use Guide, Respect or Ignore")
	check(oneOf(s.MinValuesPolicy, config.MinValuesStrict, config.MinValuesBestEffort), "min-values-policy", s.MinValuesPolicy, "use Strict or BestEffort")
	check(s.NodeCap >= 0, "node-cap", s.NodeCap, "use 0 for the default, or a number of nodes")
	check(s.NodeCost >= 0, "node-cost", s.NodeCost, "use an amount in USD per hour, 0 or more")
	_, err := budget.Share(s.MaxUnhealthy, 0)
	check(err == nil, "max-unhealthy", s.MaxUnhealthy, "use a number of nodes or a percentage, for example 20%")
	check(s.LeaseName != "", "provisioner-lease-name", s.LeaseName, "name a Lease; Karpenter's is karpenter-leader-election")
	check(s.LeaseNamespace != "", "provisioner-lease-namespace", s.LeaseNamespace, "name a namespace, for example kube-system")
	check(s.VMMemoryOverheadPercent >= 0 && s.VMMemoryOverheadPercent < 1, "vm-memory-overhead-percent", s.VMMemoryOverheadPercent, "use a share from 0 up to, not including, 1")
	check(s.ReservedENIs >= 0, "reserved-enis", s.ReservedENIs, "use 0 or more")
	check(strings.TrimSpace(s.ClusterName) == s.ClusterName, "cluster-name", s.ClusterName, "remove the blanks around the name")
	return errors.Join(errs...)
}

func oneOf[T comparable](v T, values ...T) bool { return slices.Contains(values, v) }
