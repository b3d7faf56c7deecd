package kubelet_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const invalid, unsupported, gated = ec2v1.ReasonInvalidKubeletConfiguration, ec2v1.ReasonUnsupportedKubeletConfiguration, ec2v1.ReasonKubeletExpressionsDisabled
	tests := map[string]struct{ settings, family, reason, message string }{
		"nothing is fine":                      {settings: "", family: "AL2"},
		"empty is fine":                        {settings: "{}", family: "AL2"},
		"AL2023 takes every upstream field":    {settings: `{"registryPullQPS":10,"clusterDNS":["1.1.1.1","2.2.2.2"]}`, family: "AL2023"},
		"Custom takes every upstream field":    {settings: `{"registryPullQPS":10}`, family: "Custom"},
		"AL2 takes the twelve":                 {settings: `{"maxPods":5,"podsPerCore":1,"kubeReserved":{"cpu":"1"},"cpuCFSQuota":true}`, family: "AL2"},
		"K1 unknown field":                     {settings: `{"fooBar":1}`, family: "AL2023", reason: invalid, message: `spec.kubelet: unknown field "fooBar"`},
		"K1 wrong type":                        {settings: `{"maxPods":[1]}`, family: "AL2023", reason: invalid, message: "spec.kubelet: "},
		"K1 field in another case":             {settings: `{"MaxPods":1}`, family: "AL2023", reason: invalid, message: "MaxPods"},
		"K1 no object":                         {settings: `[1]`, family: "AL2023", reason: invalid, message: "spec.kubelet: "},
		"K2 registerWithTaints":                {settings: `{"registerWithTaints":[{"key":"a","effect":"NoSchedule"}]}`, family: "AL2023", reason: invalid, message: "spec.kubelet.registerWithTaints: can't be set"},
		"K3 unknown signal":                    {settings: `{"evictionHard":{"memory":"1%"}}`, family: "AL2023", reason: invalid, message: `spec.kubelet.evictionHard: "memory" isn't a valid eviction signal`},
		"K4 percentage out of range":           {settings: `{"evictionHard":{"memory.available":"101%"}}`, family: "AL2023", reason: invalid, message: `"101%" must be a percentage or a resource quantity`},
		"K4 negative quantity":                 {settings: `{"evictionHard":{"memory.available":"-1Gi"}}`, family: "AL2023", reason: invalid, message: "can't be a negative resource quantity"},
		"K5 no duration":                       {settings: `{"evictionSoft":{"memory.available":"1%"},"evictionSoftGracePeriod":{"memory.available":"x"}}`, family: "AL2023", reason: invalid, message: "must be a duration"},
		"K5 negative duration":                 {settings: `{"evictionSoft":{"memory.available":"1%"},"evictionSoftGracePeriod":{"memory.available":"-1s"}}`, family: "AL2023", reason: invalid, message: "can't be a negative duration"},
		"K6 no grace period":                   {settings: `{"evictionSoft":{"memory.available":"1%"}}`, family: "AL2023", reason: invalid, message: "spec.kubelet.evictionSoft[memory.available]: has no matching evictionSoftGracePeriod"},
		"K6 no threshold":                      {settings: `{"evictionSoftGracePeriod":{"memory.available":"1s"}}`, family: "AL2023", reason: invalid, message: "has no matching evictionSoft"},
		"K7 unknown resource":                  {settings: `{"kubeReserved":{"gpu":"1"}}`, family: "AL2023", reason: invalid, message: `spec.kubelet.kubeReserved: "gpu" isn't a reservable resource`},
		"K8 negative reservation":              {settings: `{"systemReserved":{"cpu":"-1"}}`, family: "AL2023", reason: invalid, message: "can't be a negative resource quantity"},
		"K9 percent out of range":              {settings: `{"imageGCHighThresholdPercent":101}`, family: "AL2023", reason: invalid, message: "must be between 0 and 100"},
		"K9 negative number":                   {settings: `{"podsPerCore":-1}`, family: "AL2023", reason: invalid, message: "can't be negative"},
		"K10 high below low":                   {settings: `{"imageGCHighThresholdPercent":50,"imageGCLowThresholdPercent":60}`, family: "AL2023", reason: invalid, message: "imageGCHighThresholdPercent (50) must be greater than imageGCLowThresholdPercent (60)"},
		"every mistake is named":               {settings: `{"podsPerCore":-1,"kubeReserved":{"gpu":"1"}}`, family: "AL2023", reason: invalid, message: `gpu" isn't a reservable resource, must be one of cpu, memory, ephemeral-storage, pid; spec.kubelet.podsPerCore`},
		"AP-31 an expression":                  {settings: `{"maxPods":"110"}`, family: "AL2023", reason: gated, message: "NodeClassCEL"},
		"an expression hides no other mistake": {settings: `{"staticPodPath":"x","fooBar":"x","maxPods":"x"}`, family: "AL2023", reason: invalid, message: `unknown field "fooBar"`},
		"AP-31 an expression in reservations":  {settings: `{"kubeReserved":{"cpu":"max(60, vcpus*30)"}}`, family: "AL2023", reason: gated, message: "NodeClassCEL"},
		"a quantity is no expression":          {settings: `{"kubeReserved":{"cpu":"500m"}}`, family: "AL2023"},
		"AP-28 fields that AL2 would drop":     {settings: `{"registryPullQPS":10,"eventBurst":1}`, family: "AL2", reason: unsupported, message: "the AL2 AMI family that would be silently dropped: eventBurst, registryPullQPS"},
		"AP-29 podsPerCore on Bottlerocket":    {settings: `{"podsPerCore":1}`, family: "Bottlerocket", reason: unsupported, message: "podsPerCore"},
		"one DNS address only":                 {settings: `{"clusterDNS":["1.1.1.1","2.2.2.2"]}`, family: "AL2", reason: unsupported, message: "only one, but 2 were set"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := kubelet.Check(&runtime.RawExtension{Raw: []byte(tc.settings)}, tc.family)
			if tc.reason == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, tc.reason, got.Reason, got.Message)
			require.Contains(t, got.Message, tc.message)
		})
	}
	require.Nil(t, kubelet.Check(nil, "AL2"))
}

func TestParseKeepsExpressionsApart(t *testing.T) {
	t.Parallel()
	c, err := kubelet.Parse(&runtime.RawExtension{Raw: []byte(`{"maxPods":"vcpus","kubeReserved":{"cpu":"vcpus*2","memory":"1Gi"}}`)})
	require.NoError(t, err)
	require.Nil(t, c.MaxPods)
	require.Equal(t, map[string]string{"memory": "1Gi"}, c.KubeReserved)
	require.Equal(t, []string{"maxPods", "kubeReserved[cpu]"}, c.Expressions)
}
