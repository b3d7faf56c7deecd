package facts_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

func TestEmbeddedCatalogue(t *testing.T) {
	t.Parallel()
	info, err := os.Stat("catalogue.tsv.gz")
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(200_000), "budget of the embedded catalogue")

	catalog, err := facts.Load()
	require.NoError(t, err)
	types := catalog.Types()
	require.Len(t, types, 1373)
	require.True(t, slices.IsSortedFunc(types, func(a, b facts.InstanceType) int { return strings.Compare(a.Name, b.Name) }))

	count := func(match func(facts.InstanceType) bool) (n int) {
		for _, it := range types {
			if match(it) {
				n++
			}
		}
		return n
	}
	// The counts that the source states for its own listed types.
	require.Equal(t, 152, count(func(it facts.InstanceType) bool { return it.BareMetal }))
	require.Equal(t, 1332, count(func(it facts.InstanceType) bool { return slices.Contains(it.UsageClasses, "spot") }))
	require.Equal(t, 11, count(func(it facts.InstanceType) bool { return slices.Contains(it.UsageClasses, "capacity-block") }))
	require.Equal(t, 70, count(func(it facts.InstanceType) bool { return len(it.GPUs) > 0 }))
	require.Equal(t, 13, count(func(it facts.InstanceType) bool { return len(it.NeuronDevices) > 0 }))
	require.Equal(t, 298, count(func(it facts.InstanceType) bool { return it.Network.MaxEFA > 0 }))
	require.Equal(t, 529, count(func(it facts.InstanceType) bool {
		return it.LocalStorage != nil && it.LocalStorage.NVMe == "required"
	}))
	require.Equal(t, 1267, count(func(it facts.InstanceType) bool { return it.BranchENI.Trunking }))
	require.Equal(t, 1354, count(func(it facts.InstanceType) bool { return it.Zones["us-east-1"] != "" }))
	for _, it := range types {
		require.NotEmpty(t, it.Architectures, it.Name)
		require.Positive(t, it.VCPUs, it.Name)
		require.Positive(t, it.MemoryMiB, it.Name)
		require.Less(t, it.Network.DefaultCard, len(it.Network.Cards), it.Name)
	}
}

func TestTypesEqualTheSource(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/types-sample.json")
	require.NoError(t, err)
	var want []facts.InstanceType
	require.NoError(t, json.Unmarshal(raw, &want))
	require.NotEmpty(t, want)
	all := facts.Default().Data().Types
	for _, w := range want {
		i := slices.IndexFunc(all, func(it facts.InstanceType) bool { return it.Name == w.Name })
		require.GreaterOrEqual(t, i, 0, w.Name)
		require.Equal(t, w, all[i])
		got, listed := facts.Lookup(w.Name)
		require.Equal(t, w.Status == facts.Listed, listed, w.Name)
		if listed {
			require.Equal(t, w, got)
		}
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		region, name string
		want         float64
		known        bool
		estimated    bool
	}{
		"observed price":                      {"us-east-1", "m5.large", 0.096, true, false},
		"price of a type that is not listed":  {"us-east-1", "f1.2xlarge", 1.65, true, false},
		"region without known zones":          {"us-gov-west-1", "m5.large", 0.121, true, false},
		"unknown region":                      {"mars-1", "m5.large", 0, false, false},
		"unknown type":                        {"us-east-1", "m99.large", 0, false, false},
		"type not sold in the region's table": {"us-east-1", "mac1.metal", 0, false, false},
		"price computed from another region":  {"us-east-2", "m8azn.large", 0.20646, true, true},
		"observed price of an older record":   {"us-east-2", "a1.large", 0.051, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := facts.OnDemandPrice(tc.region, tc.name)
			require.Equal(t, tc.known, ok)
			require.InDelta(t, tc.want, got, 1e-9)
			require.Equal(t, tc.estimated, facts.Default().PriceEstimated(tc.region, tc.name))
		})
	}
}

func TestSpotFactorTestValues(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.3875, facts.SpotFactor("m5.large", "us-east-1a"), 1e-12)
	require.InDelta(t, 0.3666, facts.SpotFactor("c7g.xlarge", "us-east-1b"), 1e-12)
	price, ok := facts.SpotPrice("us-east-1", "us-east-1a", "m5.large")
	require.True(t, ok)
	require.InDelta(t, 0.0372, price, 1e-9)
}

func TestSpotPricesEqualTheRecordedTable(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/spot-sample.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 300)
	for _, row := range rows[1:] {
		want, err := strconv.ParseFloat(row[3], 64)
		require.NoError(t, err)
		got, ok := facts.SpotPrice("us-east-1", row[1], row[0])
		require.True(t, ok, row)
		require.InDelta(t, want, got, 1.1e-6, row)
	}
}

func TestSpotPriceIsUnknown(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ region, zone, name string }{
		"zone does not offer the type":  {"us-east-1", "us-east-1e", "m5.large"},
		"zone of another region":        {"us-east-1", "us-east-2a", "m5.large"},
		"type without spot":             {"us-east-1", "us-east-1b", "mac1.metal"},
		"unknown type":                  {"us-east-1", "us-east-1a", "m99.large"},
		"region whose zones are secret": {"us-gov-west-1", "us-gov-west-1a", "m5.large"},
		"zone name without letter":      {"us-east-1", "us-east-1", "m5.large"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ok := facts.SpotPrice(tc.region, tc.zone, tc.name)
			require.False(t, ok)
		})
	}
}

func TestZones(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"ap-northeast-1", "eu-central-1", "eu-west-1", "us-east-1", "us-east-2", "us-west-2"}, facts.Regions())
	zones := facts.Zones("us-east-1")
	require.Len(t, zones, 6)
	require.Equal(t, facts.Zone{Name: "us-east-1a", ID: "use1-az6"}, zones[0])
	require.Empty(t, facts.Zones("mars-1"))
	require.Equal(t, []string{"us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f"}, facts.ZonesOf("us-east-1", "m5.large"))
	require.Empty(t, facts.ZonesOf("us-east-1", "m99.large"))
	for _, region := range facts.Regions() {
		known := map[string]bool{}
		for _, z := range facts.Zones(region) {
			known[z.Name] = true
			require.NotEmpty(t, z.ID)
		}
		for _, it := range facts.Types() {
			for _, zone := range facts.ZonesOf(region, it.Name) {
				require.True(t, known[zone], "%s is offered in unknown zone %s", it.Name, zone)
			}
		}
	}
}

func TestNetworkTables(t *testing.T) {
	t.Parallel()
	mbps, ok := facts.BandwidthMbps("m5.large")
	require.True(t, ok)
	require.Equal(t, 750, mbps)
	_, ok = facts.BandwidthMbps("c1.medium")
	require.False(t, ok, "only the word Moderate is published")
	require.Equal(t, 9, facts.BranchENIs("m5.large"))
	require.Zero(t, facts.BranchENIs("t3.micro"), "t3 cannot trunk")
	require.Equal(t, 120, facts.BranchENIs("i3.metal"), "limits of a type that is no longer listed")
	require.Zero(t, facts.BranchENIs("m99.large"))
}

func TestEncodeDecodeRoundTrip(t *testing.T) {
	t.Parallel()
	want := facts.Default().Data()
	var a, b bytes.Buffer
	require.NoError(t, facts.Encode(&a, want))
	require.NoError(t, facts.Encode(&b, want))
	require.Equal(t, a.Bytes(), b.Bytes(), "equal data gives equal bytes")
	got, err := facts.Decode(bytes.NewReader(a.Bytes()))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestEncodeRefusesTabs(t *testing.T) {
	t.Parallel()
	err := facts.Encode(&bytes.Buffer{}, facts.Data{Types: []facts.InstanceType{{Name: "a\tb"}}})
	require.ErrorContains(t, err, "tab")
}

func TestDecodeRefusesDamage(t *testing.T) {
	t.Parallel()
	var good bytes.Buffer
	require.NoError(t, facts.Encode(&good, facts.Default().Data()))
	plain := unzip(t, good.Bytes())
	tests := map[string]struct {
		text func() string
		want string
	}{
		"no lines":          {func() string { return "" }, "1 lines"},
		"foreign header":    {func() string { return strings.Replace(plain, "vcpus", "cpus", 1) }, "another layout"},
		"cell is missing":   {func() string { return plain[:strings.LastIndex(plain, "\t")] + "\n" }, "cells, want"},
		"word for a number": {func() string { return strings.Replace(plain, "\t16384\t", "\tmuch\t", 1) }, "column memoryMiB"},
		"zone without id":   {func() string { return strings.Replace(plain, "/use1-az6", "", 1) }, "has no id"},
		"price is no number": {func() string {
			return strings.Replace(plain, "\t0.2568\t", "\tfree\t", 1)
		}, "column price:ap-northeast-1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := facts.Decode(bytes.NewReader(zip(t, tc.text())))
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := facts.Decode(strings.NewReader("not gzip"))
	require.Error(t, err)
}

func TestNewCatalogRefusesDoubles(t *testing.T) {
	t.Parallel()
	_, err := facts.NewCatalog(facts.Data{Types: []facts.InstanceType{{Name: "a"}, {Name: "a"}}})
	require.ErrorContains(t, err, "a appears twice")
	_, err = facts.NewCatalog(facts.Data{Types: []facts.InstanceType{{}}})
	require.ErrorContains(t, err, "has no name")
}

func TestCatalogOfOwnData(t *testing.T) {
	t.Parallel()
	c, err := facts.NewCatalog(facts.Data{
		Types: []facts.InstanceType{{Name: "x.large", Status: facts.Listed, UsageClasses: []string{"spot"},
			Zones: map[string]string{"r-1": "ab"}}},
		Zones:      map[string][]facts.Zone{"r-1": {{Name: "r-1a", ID: "r1-az1"}}},
		OnDemand:   map[string]map[string]float64{"r-1": {"x.large": 2}},
		SpotFactor: func(string, string) float64 { return 0.35 },
	})
	require.NoError(t, err)
	price, ok := c.SpotPrice("r-1", "r-1b", "x.large")
	require.True(t, ok)
	require.InDelta(t, 0.7, price, 1e-12)
	var zero facts.Catalog
	require.Empty(t, zero.Types())
	require.Empty(t, zero.Regions())
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("zones\tr=ra/r1"), []byte("x"))
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		var good bytes.Buffer
		if err := facts.Encode(&good, facts.Data{Types: []facts.InstanceType{{Name: "a.b"}}}); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitN(unzip(t, good.Bytes()), "\n", 3)
		text := string(head) + "\n" + lines[1] + "\n" + string(tail)
		if data, err := facts.Decode(bytes.NewReader(zip(t, text))); err == nil {
			_, _ = facts.NewCatalog(data)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	raw, err := os.ReadFile("catalogue.tsv.gz")
	require.NoError(b, err)
	for b.Loop() {
		data, err := facts.Decode(bytes.NewReader(raw))
		require.NoError(b, err)
		_, err = facts.NewCatalog(data)
		require.NoError(b, err)
	}
}

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func unzip(t *testing.T, raw []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	var buf bytes.Buffer
	_, err = buf.ReadFrom(r)
	require.NoError(t, err)
	return buf.String()
}
