package app

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/plugins/config"
	"github.com/berth-dev/berth/plugins/config/scheme"
)

func fromEnv(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func defaultArgs(t *testing.T) *config.NodeProvisionArgs {
	t.Helper()
	args, err := scheme.Decode(nil)
	require.NoError(t, err)
	return args
}

func TestSettingsComeFromFlagsThenEnvironmentThenArguments(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env  map[string]string
		args []string
		want func(*Settings)
	}{
		"defaults": {want: func(*Settings) {}},
		"environment goes before the plugin's arguments": {
			env: map[string]string{"BATCH_IDLE_DURATION": "2s", "PREFERENCE_POLICY": "Respect", "CLUSTER_NAME": "env"},
			want: func(s *Settings) {
				s.BatchIdleDuration, s.BatchMaxDuration, s.PreferencePolicy, s.ClusterName = 2*time.Second, 2*time.Second, config.PreferenceRespect, "env"
			},
		},
		"flags go before the environment": {
			env:  map[string]string{"BATCH_IDLE_DURATION": "2s", "CLUSTER_NAME": "env", "NODE_CAP": "5"},
			args: []string{"--batch-idle-duration=3s", "--batch-max-duration=9s", "--cluster-name=flag", "--node-cap=7", "--min-values-policy=BestEffort"},
			want: func(s *Settings) {
				s.BatchIdleDuration, s.BatchMaxDuration, s.ClusterName, s.NodeCap = 3*time.Second, 9*time.Second, "flag", 7
				s.MinValuesPolicy = config.MinValuesBestEffort
			},
		},
		"the lease follows the pod's namespace": {
			env:  map[string]string{"POD_NAMESPACE": "berth"},
			want: func(s *Settings) { s.LeaseNamespace = "berth" },
		},
		"gates, and those that nobody knows": {
			env:  map[string]string{"FEATURE_GATES": "SpotToSpotConsolidation=true, FromTheFuture=true"},
			want: func(s *Settings) { s.Gates["SpotToSpotConsolidation"] = true },
		},
		"unless it is named": {
			env:  map[string]string{"POD_NAMESPACE": "berth", "LEADER_ELECTION_NAMESPACE": "karpenter", "LEADER_ELECTION_NAME": "x"},
			want: func(s *Settings) { s.LeaseNamespace, s.LeaseName = "karpenter", "x" },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := settingsFromEnv(fromEnv(tc.env))
			require.NoError(t, err)
			f := flagsFor(s)
			require.NoError(t, f.parse(tc.args))
			s.complete(defaultArgs(t))
			s.preferencePolicyText, s.minValuesText = "", ""
			want := &Settings{
				BatchIdleDuration: 100 * time.Millisecond, BatchMaxDuration: time.Second, NodeCost: 0.005, MaxUnhealthy: "20%",
				PreferencePolicy: config.PreferenceGuide, MinValuesPolicy: config.MinValuesStrict,
				LeaseName: "karpenter-leader-election", LeaseNamespace: "kube-system", VMMemoryOverheadPercent: 0.075,
				Gates: maps.Clone(gateDefaults), MetricsPort: 8080, HealthProbePort: 8081,
			}
			tc.want(want)
			require.Equal(t, want, s)
		})
	}
}

func TestWrongEnvironmentNamesVariableValueAndFix(t *testing.T) {
	t.Parallel()
	_, err := settingsFromEnv(fromEnv(map[string]string{"NODE_CAP": "many", "ISOLATED_VPC": "yes", "FEATURE_GATES": "NodeRepair=perhaps"}))
	require.ErrorContains(t, err, `environment variable FEATURE_GATES has "NodeRepair=perhaps"`)
	require.ErrorContains(t, err, `environment variable NODE_CAP has the value "many"`)
	require.ErrorContains(t, err, "use a value like 1000")
	require.ErrorContains(t, err, `environment variable ISOLATED_VPC has the value "yes": neither true nor false`)
}

func TestWrongSettingsNameFlagValueAndFix(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Settings)
		want   string
	}{
		"no cluster":           {func(s *Settings) { s.ClusterName = "" }, `--cluster-name has the value "": name the cluster as in its EC2 tags`},
		"blanks":               {func(s *Settings) { s.ClusterName = " x" }, `--cluster-name has the value " x": remove the blanks`},
		"idle window":          {func(s *Settings) { s.BatchIdleDuration = -1 }, `--batch-idle-duration has the value "-1ns": use a duration above 0s`},
		"maximum below idle":   {func(s *Settings) { s.BatchMaxDuration = time.Millisecond }, `--batch-max-duration has the value "1ms": use at least --batch-idle-duration, 100ms`},
		"preference policy":    {func(s *Settings) { s.PreferencePolicy = "x" }, `--preference-policy has the value "x": use Guide, Respect or Ignore`},
		"minValues policy":     {func(s *Settings) { s.MinValuesPolicy = "x" }, `--min-values-policy has the value "x": use Strict or BestEffort`},
		"negative cap":         {func(s *Settings) { s.NodeCap = -1 }, `--node-cap has the value "-1"`},
		"negative cost":        {func(s *Settings) { s.NodeCost = -1 }, `--node-cost has the value "-1"`},
		"breaker":              {func(s *Settings) { s.MaxUnhealthy = "120%" }, `--max-unhealthy has the value "120%": use a number of nodes or a percentage`},
		"no lease":             {func(s *Settings) { s.LeaseName = "" }, `--provisioner-lease-name has the value ""`},
		"no lease namespace":   {func(s *Settings) { s.LeaseNamespace = "" }, `--provisioner-lease-namespace has the value ""`},
		"more than all memory": {func(s *Settings) { s.VMMemoryOverheadPercent = 1 }, `--vm-memory-overhead-percent has the value "1"`},
		"negative interfaces":  {func(s *Settings) { s.ReservedENIs = -1 }, `--reserved-enis has the value "-1"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := settingsFromEnv(fromEnv(map[string]string{"CLUSTER_NAME": "c"}))
			require.NoError(t, err)
			s.complete(defaultArgs(t))
			require.NoError(t, s.validate())
			tc.change(s)
			require.ErrorContains(t, s.validate(), tc.want)
		})
	}
}
