package userdata_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
	"github.com/berth-dev/berth/provisioner/aws/userdata"
)

var update = flag.Bool("update", false, "write the golden files anew")

// input is a launch into a plain cluster.
func input(t *testing.T, family, custom, settings string) userdata.Input {
	t.Helper()
	c, err := kubelet.Parse(&runtime.RawExtension{Raw: []byte(settings)})
	require.NoError(t, err)
	claim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
		Taints:        []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "team", Value: "b", Effect: corev1.TaintEffectNoExecute}},
		StartupTaints: []corev1.Taint{{Key: "warming", Effect: corev1.TaintEffectNoSchedule}},
	}}
	return userdata.Input{
		Family: family, ClusterName: "berth", ClusterEndpoint: "https://cluster.example", CABundle: "Y2E=", ClusterCIDR: "10.100.0.0/16",
		Labels: userdata.Labels(map[string]string{"karpenter.sh/nodepool": "default", "team": "a", "team.kubernetes.io/x": "y",
			"node.kubernetes.io/instance-type": "m5.large"}, "spot", family),
		Taints: userdata.Taints(claim), Kubelet: c, MaxPods: 29, DNS: []string{"10.100.0.10"}, Custom: custom,
	}
}

const manySettings = `{"podsPerCore":3,"systemReserved":{"memory":"100Mi","cpu":"50m"},"kubeReserved":{"cpu":"80m"},
	"evictionHard":{"nodefs.available":"5%","memory.available":"200Mi"},"evictionSoft":{"memory.available":"10%"},
	"evictionSoftGracePeriod":{"memory.available":"90s"},"evictionMaxPodGracePeriod":60,"imageGCHighThresholdPercent":80,
	"imageGCLowThresholdPercent":70,"cpuCFSQuota":false}`

func TestRender(t *testing.T) {
	t.Parallel()
	al2, al2023, bottlerocket := ec2v1.AMIFamilyAL2, ec2v1.AMIFamilyAL2023, ec2v1.AMIFamilyBottlerocket
	mime := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"XX\"\n\n--XX\nContent-Type: text/x-shellscript\n\necho one\n--XX\n" +
		"Content-Type: application/node.eks.aws\nContent-Transfer-Encoding: 7bit\n\nkind: NodeConfig\n--XX--\n"
	tests := map[string]struct {
		golden   string
		family   string
		custom   string
		settings string
		change   func(*userdata.Input)
		want     []string
		wantNot  []string
	}{
		"AL2 without anything":                 {golden: "al2.txt", family: al2},
		"LA-37 AL2 runs the user's script 1st": {golden: "al2-script.txt", family: al2, custom: "#!/bin/bash\necho hello\n", settings: manySettings, change: func(in *userdata.Input) { in.RAID0 = true }},
		"LA-36 AL2 with IPv6":                  {golden: "al2-ipv6.txt", family: al2, change: func(in *userdata.Input) { in.DNS = []string{"fd00::10"} }, want: []string{"--ip-family ipv6"}},
		"AL2023 without anything":              {golden: "al2023.txt", family: al2023},
		"LA-38 AL2023 user NodeConfig 1st":     {golden: "al2023-nodeconfig.txt", family: al2023, custom: "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n"},
		"LA-39 AL2023 keeps the order of MIME": {golden: "al2023-mime.txt", family: al2023, custom: mime},
		"LA-40 AL2023 with RAID0":              {golden: "al2023-raid0.txt", family: al2023, change: func(in *userdata.Input) { in.RAID0 = true }, want: []string{"strategy: RAID0"}},
		"AP-27 AL2023 passes any field on":     {golden: "al2023-settings.txt", family: al2023, settings: `{"registryPullQPS":10,"maxPods":110,"clusterDNS":["10.0.0.1","10.0.0.2"]}`, want: []string{"registryPullQPS: 10"}},
		"Bottlerocket without anything":        {golden: "bottlerocket.txt", family: bottlerocket},
		"LA-41 LA-42 Bottlerocket merges": {golden: "bottlerocket-merge.txt", family: bottlerocket, settings: strings.Replace(manySettings, `"podsPerCore":3,`, "", 1),
			custom:  "[settings.kubernetes]\nmax-pods = 5\nnot-known = true\nallowed-unsafe-sysctls = [\"net.*\"]\n[settings.kubernetes.node-taints]\nmine = \"x:NoSchedule\"\n[settings.kubernetes.node-labels]\nteam = \"mine\"\nother = \"kept\"\n[settings.network]\nhttps-proxy = \"http://proxy:3128\"\n",
			want:    []string{"other = \"kept\"", "https-proxy"},
			wantNot: []string{"not-known", "mine"}},
		"LA-43 Bottlerocket RAID0 on an old image": {golden: "bottlerocket-raid0-old.txt", family: bottlerocket, change: func(in *userdata.Input) { in.RAID0, in.ImageVersion = true, "v1.40.0" }, want: []string{"--dirs"}},
		"LA-43 Bottlerocket RAID0 on a new image":  {golden: "bottlerocket-raid0-new.txt", family: bottlerocket, change: func(in *userdata.Input) { in.RAID0, in.ImageVersion = true, "v1.46.0" }, wantNot: []string{"--dirs"}},
		"LA-44 Windows runs the user's lines 1st":  {golden: "windows.txt", family: ec2v1.AMIFamilyWindows2022, custom: "Write-Host hello"},
		"LA-46 Custom is verbatim":                 {golden: "custom.txt", family: ec2v1.AMIFamilyCustom, custom: "anything\r\n at all", wantNot: []string{"do-not-sync-taints"}},
		"LA-46 Custom may be empty":                {golden: "custom-empty.txt", family: ec2v1.AMIFamilyCustom},
		"LA-45 restricted labels stay away":        {golden: "al2023.txt", family: al2023, wantNot: []string{"team.kubernetes.io", "node.kubernetes.io"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, tc.family, tc.custom, tc.settings)
			if tc.change != nil {
				tc.change(&in)
			}
			got, err := userdata.Render(in)
			require.NoError(t, err)
			path := filepath.Join("testdata", tc.golden)
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			for _, s := range tc.want {
				require.Contains(t, got, s)
			}
			for _, s := range tc.wantNot {
				require.NotContains(t, got, s)
			}
		})
	}
}

func TestRenderNamesTheMistake(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ family, custom, want string }{
		"AL2 with broken MIME":           {ec2v1.AMIFamilyAL2, "MIME-Version: 1.0\nContent-Type: text/plain\n\nx", "must be multipart/mixed"},
		"AL2023 with MIME lacking parts": {ec2v1.AMIFamilyAL2023, "Content-Type: multipart/mixed\n\nx", "without a boundary"},
		"Bottlerocket with broken TOML":  {ec2v1.AMIFamilyBottlerocket, "[settings\n", "line 1"},
		"Bottlerocket with odd types":    {ec2v1.AMIFamilyBottlerocket, "settings = 3\n", "settings must be a table"},
		"unknown family":                 {"Plan9", "", `"Plan9" is not known`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := userdata.Render(input(t, tc.family, tc.custom, ""))
			require.ErrorContains(t, err, tc.want)
		})
	}
	in := input(t, ec2v1.AMIFamilyAL2023, "", "")
	in.ClusterCIDR = ""
	_, err := userdata.Render(in)
	require.ErrorContains(t, err, "service CIDR")
}

func TestUnregisteredTaintIsNotRepeated(t *testing.T) {
	t.Parallel()
	claim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{StartupTaints: []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}}}
	require.Equal(t, []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}, userdata.Taints(claim))
	require.Equal(t, []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}, userdata.Taints(&karpv1.NodeClaim{}))
}
