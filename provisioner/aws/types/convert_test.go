package types_test

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/class"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/aws/kubelet"
	"github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/catalog"
)

var settings = types.Settings{Region: "us-east-1", VMMemoryOverheadPercent: 0.075}

func describe(t *testing.T, name string) *ec2types.InstanceTypeInfo {
	t.Helper()
	f, ok := facts.Lookup(name)
	require.True(t, ok, name)
	return types.Describe(&f)
}

func convert(t *testing.T, name string, c types.Class, s types.Settings) *catalog.InstanceType {
	t.Helper()
	return types.Convert(describe(t, name), facts.ZonesOf("us-east-1", name), &c, s)
}

func settingsJSON(t *testing.T, text string) kubelet.Config {
	t.Helper()
	c, err := kubelet.Parse(&runtime.RawExtension{Raw: []byte(text)})
	require.NoError(t, err)
	return c
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	return rows
}

// The published reference page is the oracle: every label and allocatable amount of 722 types.
func TestConvertAgreesWithPublishedTypes(t *testing.T) {
	t.Parallel()
	drifted := map[[2]string]bool{} // the facts are newer than the page
	for _, row := range readCSV(t, "testdata/oracle-known-drift.csv")[1:] {
		drifted[[2]string{row[0], row[1]}] = true
	}
	rows := readCSV(t, "testdata/oracle-allocatable.csv")
	header, types := rows[0], 0
	cells := 0
	for _, row := range rows[1:] {
		it := convert(t, row[0], typesAL2023(), settings)
		types++
		for i, want := range row {
			kind, key, ok := strings.Cut(header[i], ":")
			if !ok || drifted[[2]string{row[0], header[i]}] {
				continue
			}
			cells++
			if kind == "label" {
				got, _ := it.Requirements.Get(key).Single()
				require.Equal(t, want, got, "%s %s", row[0], header[i])
				continue
			}
			got := it.Allocatable().ToList()[corev1.ResourceName(key)]
			if want == "" {
				want = "0"
			}
			require.Zero(t, got.Cmp(resource.MustParse(want)), "%s %s: got %s, want %s", row[0], header[i], got.String(), want)
		}
	}
	require.Equal(t, 722, types)
	require.Greater(t, cells, 24_000)
}

func typesAL2023() types.Class {
	return types.Class{Family: ec2v1.AMIFamilyAL2023, Zones: []class.Zone{{Name: "us-east-1a", ID: "use1-az1"}, {Name: "us-east-1b", ID: "use1-az2"}}}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	gi := func(n int64) *ec2v1.VolumeSize { return resource.NewQuantity(n<<30, resource.BinarySI) }
	al2023, bottlerocket := ec2v1.AMIFamilyAL2023, ec2v1.AMIFamilyBottlerocket
	disk := func(device string, size int64, root bool) ec2v1.BlockDeviceMapping {
		return ec2v1.BlockDeviceMapping{DeviceName: aws.String(device), RootVolume: root, EBS: &ec2v1.BlockDevice{VolumeSize: gi(size)}}
	}
	efaOnly := func(card int32) ec2v1.NetworkInterface {
		return ec2v1.NetworkInterface{NetworkCardIndex: card, DeviceIndex: 1, InterfaceType: ec2v1.NetworkInterfaceTypeEFAOnly}
	}
	type amounts map[corev1.ResourceName]string
	tests := map[string]struct {
		instanceType  string
		class         types.Class
		kubelet       string
		settings      types.Settings
		wantCapacity  amounts
		wantAllocates amounts
	}{
		"IT-01 m5.large with defaults": {instanceType: "m5.large", wantCapacity: amounts{"pods": "29", "memory": "7577Mi"},
			wantAllocates: amounts{"cpu": "1930m", "memory": "6903Mi", "ephemeral-storage": "18253611008"}},
		"IT-02 arm64 loses 64 MiB first":             {instanceType: "c6g.large", wantCapacity: amounts{"memory": "3729Mi"}, wantAllocates: amounts{"memory": "3055Mi"}},
		"IT-03 overhead 0 keeps all memory":          {instanceType: "m5.large", settings: types.Settings{Region: "r"}, wantCapacity: amounts{"memory": "8192Mi"}},
		"IT-04 a reserved ENI costs pods, not kube":  {instanceType: "m5.large", settings: types.Settings{VMMemoryOverheadPercent: 0.075, ReservedENIs: 1}, wantCapacity: amounts{"pods": "20"}, wantAllocates: amounts{"memory": "6903Mi"}},
		"IT-05 all ENIs reserved leave no pods":      {instanceType: "m5.large", settings: types.Settings{VMMemoryOverheadPercent: 0.075, ReservedENIs: 3}, wantCapacity: amounts{"pods": "0"}},
		"IT-06 maxPods does not move AL2023's share": {instanceType: "m5.large", kubelet: `{"maxPods":50}`, wantCapacity: amounts{"pods": "50"}, wantAllocates: amounts{"memory": "6903Mi"}},
		"IT-06 maxPods moves Bottlerocket's share":   {instanceType: "m5.large", class: types.Class{Family: bottlerocket}, kubelet: `{"maxPods":50}`, wantAllocates: amounts{"memory": "6672Mi"}},
		"IT-07 podsPerCore caps":                     {instanceType: "m5.large", kubelet: `{"podsPerCore":2}`, wantCapacity: amounts{"pods": "4"}},
		"IT-08 a high podsPerCore does not":          {instanceType: "m5.large", kubelet: `{"podsPerCore":100}`, wantCapacity: amounts{"pods": "29"}},
		"IT-09 podsPerCore 0 is unset":               {instanceType: "m5.large", kubelet: `{"podsPerCore":0}`, wantCapacity: amounts{"pods": "29"}},
		"IT-07 Bottlerocket ignores podsPerCore":     {instanceType: "m5.large", class: types.Class{Family: bottlerocket}, kubelet: `{"podsPerCore":2}`, wantCapacity: amounts{"pods": "29"}},
		"IT-10 Windows": {instanceType: "m5.large", class: types.Class{Family: ec2v1.AMIFamilyWindows2022},
			wantCapacity: amounts{"pods": "110", ec2v1.ResourcePrivateIPv4: "9", "ephemeral-storage": "50Gi"}, wantAllocates: amounts{"memory": "6012Mi"}},
		"IT-12 percentage eviction threshold": {instanceType: "m5.large", kubelet: `{"evictionHard":{"memory.available":"5%"}}`,
			wantAllocates: amounts{"memory": "6945924710"}}, // 7577 Mi less 574 Mi less ceil(5 %)
		"IT-13 100% switches the threshold off":   {instanceType: "m5.large", kubelet: `{"evictionHard":{"memory.available":"100%"}}`, wantAllocates: amounts{"memory": "7003Mi"}},
		"IT-14 soft eviction changes nothing":     {instanceType: "m5.large", kubelet: `{"evictionSoft":{"memory.available":"50%"}}`, wantAllocates: amounts{"memory": "6903Mi"}},
		"IT-15 kubeReserved is taken key by key":  {instanceType: "m5.large", kubelet: `{"kubeReserved":{"cpu":"1"}}`, wantAllocates: amounts{"cpu": "1", "memory": "6903Mi"}},
		"systemReserved comes on top":             {instanceType: "m5.large", kubelet: `{"systemReserved":{"memory":"100Mi"}}`, wantAllocates: amounts{"memory": "6803Mi"}},
		"IT-16 RAID0 gives the disks":             {instanceType: "i3.large", class: types.Class{Family: al2023, RAID0: true}, wantCapacity: amounts{"ephemeral-storage": "475G"}},
		"IT-17 RAID0 without disks gives EBS":     {instanceType: "m5.large", class: types.Class{Family: al2023, RAID0: true}, wantCapacity: amounts{"ephemeral-storage": "20Gi"}},
		"IT-18 rootVolume wins on another device": {instanceType: "m5.large", class: types.Class{Family: al2023, BlockDeviceMappings: []ec2v1.BlockDeviceMapping{disk("/dev/xvda", 30, false), disk("/dev/xvdb", 100, true)}}, wantCapacity: amounts{"ephemeral-storage": "100Gi"}},
		"IT-19 Custom takes the last mapping":     {instanceType: "m5.large", class: types.Class{Family: ec2v1.AMIFamilyCustom, BlockDeviceMappings: []ec2v1.BlockDeviceMapping{disk("/a", 10, false), disk("/b", 30, false)}}, wantCapacity: amounts{"ephemeral-storage": "30Gi"}},
		"IT-20 Bottlerocket's data device":        {instanceType: "m5.large", class: types.Class{Family: bottlerocket, BlockDeviceMappings: []ec2v1.BlockDeviceMapping{disk("/dev/xvda", 50, false)}}, wantCapacity: amounts{"ephemeral-storage": "20Gi"}},
		"IT-24 neuron devices and cores":          {instanceType: "trn1.32xlarge", wantCapacity: amounts{ec2v1.ResourceNeuron: "16", ec2v1.ResourceNeuronCore: "32"}},
		"IT-25 efa-only interfaces are the EFAs":  {instanceType: "p4d.24xlarge", class: types.Class{Family: al2023, NetworkInterfaces: []ec2v1.NetworkInterface{{InterfaceType: ec2v1.NetworkInterfaceTypeInterface}, efaOnly(1), efaOnly(2)}}, wantCapacity: amounts{ec2v1.ResourceEFA: "2"}},
		"IT-26 efa-only on card 0 costs an ENI":   {instanceType: "m5.large", class: types.Class{Family: al2023, NetworkInterfaces: []ec2v1.NetworkInterface{{InterfaceType: ec2v1.NetworkInterfaceTypeInterface}, efaOnly(0)}}, wantCapacity: amounts{"pods": "20"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := tc.class, tc.settings
			if c.Family == "" {
				c.Family = al2023
			}
			if s == (types.Settings{}) {
				s = settings
			}
			if tc.kubelet != "" {
				c.Kubelet = settingsJSON(t, tc.kubelet)
			}
			it := convert(t, tc.instanceType, c, s)
			for name, want := range tc.wantCapacity {
				got := it.Capacity.ToList()[name]
				require.Zero(t, got.Cmp(resource.MustParse(want)), "capacity %s: got %s, want %s", name, got.String(), want)
			}
			for name, want := range tc.wantAllocates {
				got := it.Allocatable().ToList()[name]
				require.Zero(t, got.Cmp(resource.MustParse(want)), "allocatable %s: got %s, want %s", name, got.String(), want)
			}
		})
	}
}

func TestIT11WindowsNeverRunsOnARM(t *testing.T) {
	t.Parallel()
	it := convert(t, "c6g.large", types.Class{Family: ec2v1.AMIFamilyWindows2022}, settings)
	require.True(t, it.Requirements.Get(corev1.LabelOSStable).IsEmpty())
	build, _ := it.Requirements.Get(corev1.LabelWindowsBuild).Single()
	require.Equal(t, "10.0.20348", build)
}

func TestIT23TwoGPUModelsHaveNoGPULabels(t *testing.T) {
	t.Parallel()
	info := describe(t, "g5.xlarge")
	info.GpuInfo.Gpus = append(info.GpuInfo.Gpus, ec2types.GpuDeviceInfo{Name: aws.String("L4"), Manufacturer: aws.String("NVIDIA"), Count: aws.Int32(2)})
	c := typesAL2023()
	it := types.Convert(info, nil, &c, settings)
	require.True(t, it.Requirements.Get(ec2v1.LabelInstanceGPUName).IsEmpty())
	require.True(t, it.Requirements.Get(ec2v1.LabelInstanceGPUCount).IsEmpty())
	require.EqualValues(t, 3, it.Capacity.Get(ec2v1.ResourceNVIDIAGPU))
}

func TestWI39And40SparseTypesDoNotCrash(t *testing.T) {
	t.Parallel()
	c := typesAL2023()
	for name, info := range map[string]*ec2types.InstanceTypeInfo{
		"WI-39 metal without hypervisor": func() *ec2types.InstanceTypeInfo { i := describe(t, "m5.metal"); i.Hypervisor = ""; return i }(),
		"WI-40 nothing but a name":       {InstanceType: "x9.large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			it := types.Convert(info, nil, &c, settings)
			value, ok := it.Requirements.Get(ec2v1.LabelInstanceHypervisor).Single()
			require.True(t, ok)
			require.Empty(t, value)
			require.Zero(t, it.Capacity.Get(ec2v1.ResourceNVIDIAGPU))
			require.NotPanics(t, func() { types.Incompatible(info, &types.Class{NetworkInterfaces: []ec2v1.NetworkInterface{}}) })
		})
	}
}

func TestIncompatible(t *testing.T) {
	t.Parallel()
	nics := []ec2v1.NetworkInterface{{InterfaceType: ec2v1.NetworkInterfaceTypeInterface},
		{NetworkCardIndex: 1, InterfaceType: ec2v1.NetworkInterfaceTypeEFAOnly}, {NetworkCardIndex: 2, InterfaceType: ec2v1.NetworkInterfaceTypeEFAOnly}}
	tests := map[string]struct {
		instanceType string
		class        types.Class
		want         bool
	}{
		"IT-52 a1 does not run AL2023":                   {"a1.xlarge", types.Class{Family: ec2v1.AMIFamilyAL2023}, true},
		"IT-52 a1 runs Bottlerocket":                     {"a1.xlarge", types.Class{Family: ec2v1.AMIFamilyBottlerocket}, false},
		"IT-53 connection tracking needs nitro":          {"m4.large", types.Class{ConnectionTracking: true}, true},
		"IT-53 nitro has connection tracking":            {"m5.large", types.Class{ConnectionTracking: true}, false},
		"IT-54 nested virtualization must be a feature":  {"m5.large", types.Class{NestedVirtualization: true}, true},
		"IT-25 two EFAs do not fit a type with one card": {"c5n.18xlarge", types.Class{NetworkInterfaces: nics}, true},
		"IT-25 two EFAs fit four cards":                  {"p4d.24xlarge", types.Class{NetworkInterfaces: nics}, false},
		"an empty list of interfaces is fine":            {"m5.large", types.Class{NetworkInterfaces: []ec2v1.NetworkInterface{}}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, types.Incompatible(describe(t, tc.instanceType), &tc.class) != "")
		})
	}
}

func TestLabelsOfZonesAndCapacityTypes(t *testing.T) {
	t.Parallel()
	it := convert(t, "m5.large", typesAL2023(), settings)
	require.Equal(t, []string{"us-east-1a", "us-east-1b"}, it.Requirements.Get(corev1.LabelTopologyZone).Values())
	require.Equal(t, []string{"use1-az1", "use1-az2"}, it.Requirements.Get(ec2v1.LabelTopologyZoneID).Values())
	require.Equal(t, []string{"on-demand", "spot"}, it.Requirements.Get(karpv1.LabelCapacityType).Values())
	require.Equal(t, []string{"dedicated", "default"}, it.Requirements.Get(ec2v1.LabelInstanceTenancy).Values())
}
