// Command gen makes the embedded catalogue out of a directory of public EC2
// facts: ec2-instance-types.json, ec2-zones.csv and the price tables. It also
// checks its own rules against the directory: the file must survive a round
// trip, and computed spot prices must equal the recorded ones.
package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// maxBytes is the budget of the embedded file.
const maxBytes = 200_000

func main() {
	dir := flag.String("data", "", "directory with the source tables")
	out := flag.String("out", "catalogue.tsv.gz", "file to write")
	flag.Parse()
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	if dir == "" {
		return errors.New("flag -data is empty: name the directory with the source tables")
	}
	data, err := read(dir)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := facts.Encode(&buf, data); err != nil {
		return fmt.Errorf("encode catalogue: %w", err)
	}
	if buf.Len() > maxBytes {
		return fmt.Errorf("catalogue has %d bytes, budget %d", buf.Len(), maxBytes)
	}
	if err := check(dir, data, buf.Bytes()); err != nil {
		return err
	}
	if err := os.WriteFile(out, buf.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	fmt.Printf("%s: %d types, %d bytes\n", out, len(data.Types), buf.Len())
	return nil
}

func read(dir string) (facts.Data, error) {
	data := facts.Data{
		Zones:     map[string][]facts.Zone{},
		OnDemand:  map[string]map[string]float64{},
		Estimated: map[string]map[string]bool{},
	}
	raw, err := os.ReadFile(filepath.Join(dir, "ec2-instance-types.json"))
	if err != nil {
		return data, fmt.Errorf("read instance types: %w", err)
	}
	var file struct {
		InstanceTypes []facts.InstanceType `json:"instanceTypes"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return data, fmt.Errorf("decode instance types: %w", err)
	}
	data.Types = file.InstanceTypes
	slices.SortFunc(data.Types, func(a, b facts.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	if err := readZones(dir, &data); err != nil {
		return data, err
	}
	for _, name := range []string{"ec2-prices-us-east-1.csv", "ec2-prices-other-regions.csv"} {
		if err := readPrices(filepath.Join(dir, name), &data); err != nil {
			return data, err
		}
	}
	return data, nil
}

func readZones(dir string, data *facts.Data) error {
	rows, err := table(filepath.Join(dir, "ec2-zones.csv"))
	if err != nil {
		return err
	}
	for _, row := range rows {
		data.Zones[row["region"]] = append(data.Zones[row["region"]], facts.Zone{Name: row["zone"], ID: row["zone_id"]})
	}
	// Two regions have offerings but no recorded zone ids. Ids differ between
	// accounts anyway, so letters are numbered in order.
	for _, t := range data.Types {
		for region, letters := range t.Zones {
			known := slices.ContainsFunc(rows, func(row map[string]string) bool { return row["region"] == region })
			for _, letter := range letters {
				name := region + string(letter)
				has := slices.ContainsFunc(data.Zones[region], func(z facts.Zone) bool { return z.Name == name })
				if has {
					continue
				}
				if known {
					return fmt.Errorf("instance type %s is offered in %s, which ec2-zones.csv lacks", t.Name, name)
				}
				id := fmt.Sprintf("%s-az%d", regionCode(region), letter-'a'+1)
				data.Zones[region] = append(data.Zones[region], facts.Zone{Name: name, ID: id})
			}
		}
	}
	for region := range data.Zones {
		slices.SortFunc(data.Zones[region], func(a, b facts.Zone) int { return strings.Compare(a.Name, b.Name) })
	}
	return nil
}

// regionCode shortens a region as zone ids do: eu-central-1 is euc1.
func regionCode(region string) string {
	parts := strings.Split(region, "-")
	code := parts[0]
	for _, p := range parts[1:] {
		code += p[:1]
	}
	return code
}

func readPrices(path string, data *facts.Data) error {
	rows, err := table(path)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, t := range data.Types {
		known[t.Name] = true
	}
	for _, row := range rows {
		region, name := row["region"], row["instance_type"]
		price, err := strconv.ParseFloat(row["usd_per_hour"], 64)
		if err != nil {
			return fmt.Errorf("price of %s in %s: %w", name, region, err)
		}
		if !known[name] { // long gone, such as cc2.8xlarge: nothing can be asked about it
			fmt.Printf("leave out the price of %s in %s: no such instance type\n", name, region)
			continue
		}
		if data.OnDemand[region] == nil {
			data.OnDemand[region], data.Estimated[region] = map[string]float64{}, map[string]bool{}
		}
		data.OnDemand[region][name] = price
		if !strings.HasPrefix(row["method"], "observed") {
			data.Estimated[region][name] = true
		}
	}
	return nil
}

// check proves that the written bytes give the data back, and that the spot
// rule reproduces every row of the recorded table.
func check(dir string, data facts.Data, written []byte) error {
	back, err := facts.Decode(bytes.NewReader(written))
	if err != nil {
		return fmt.Errorf("decode what was written: %w", err)
	}
	for i, t := range data.Types {
		if !reflect.DeepEqual(t, back.Types[i]) {
			return fmt.Errorf("instance type %s changes in a round trip:\n%+v\n%+v", t.Name, t, back.Types[i])
		}
	}
	same := reflect.DeepEqual(data.Zones, back.Zones) && maps.EqualFunc(data.OnDemand, back.OnDemand, maps.Equal) &&
		maps.EqualFunc(data.Estimated, back.Estimated, maps.Equal)
	if !same {
		return errors.New("zones or prices change in a round trip")
	}
	catalog, err := facts.NewCatalog(back)
	if err != nil {
		return fmt.Errorf("index catalogue: %w", err)
	}
	rows, err := table(filepath.Join(dir, "ec2-spot-synthetic-us-east-1.csv"))
	if err != nil {
		return err
	}
	for _, row := range rows {
		want, err := strconv.ParseFloat(row["spot_usd_per_hour_synthetic"], 64)
		if err != nil {
			return fmt.Errorf("spot price of %s in %s: %w", row["instance_type"], row["zone"], err)
		}
		got, ok := catalog.SpotPrice("us-east-1", row["zone"], row["instance_type"])
		if !ok || math.Abs(got-want) > 1.1e-6 {
			return fmt.Errorf("spot price of %s in %s is %v, recorded %v", row["instance_type"], row["zone"], got, want)
		}
	}
	return nil
}

// table reads a CSV file into one map per row.
func table(path string) ([]map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open table: %w", err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", path, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("table %s is empty", path)
	}
	rows := make([]map[string]string, 0, len(lines)-1)
	for _, line := range lines[1:] {
		row := make(map[string]string, len(line))
		for i, cell := range line {
			row[lines[0][i]] = cell
		}
		rows = append(rows, row)
	}
	return rows, nil
}
