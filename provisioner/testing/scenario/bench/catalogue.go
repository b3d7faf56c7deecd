package bench

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// catalogueTable has a row for each EC2 type: capacity, allocatable (a:) and labels (l:).
//
//go:embed catalog.csv.gz
var catalogueTable []byte

const (
	instanceLabel = "karpenter.k8s.aws/instance-"
	spotFactor    = 0.35
)

var (
	zones     = []string{"us-east-1a", "us-east-1b", "us-east-1c"}
	gpuKinds  = []string{"nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi"}
	youngKind = []string{"t", "g", "gr", "p", "inf", "trn"} // categories of which older generations are current
)

// Catalogues are the names of the lists of machines.
var Catalogues = []string{"current", "all", "fake400"}

func catalogue(which string) ([]object, error) {
	if which == "fake400" {
		return madeUp(), nil
	}
	packed, err := gzip.NewReader(bytes.NewReader(catalogueTable))
	if err != nil {
		return nil, fmt.Errorf("open the catalogue: %w", err)
	}
	rows, err := csv.NewReader(packed).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	var out []object
	for _, row := range rows[1:] {
		r := record{rows[0], row}
		if which == "all" || r.current() {
			machine, err := r.machine()
			if err != nil {
				return nil, err
			}
			out = append(out, machine)
		}
	}
	return out, nil
}

type record struct{ header, row []string }

func (r record) get(column string) string {
	if i := slices.Index(r.header, column); i >= 0 {
		return r.row[i]
	}
	return ""
}

func (r record) current() bool {
	generation, err := strconv.Atoi(r.get("l:generation"))
	young := generation >= 6 || generation >= 3 && slices.Contains(youngKind, r.get("l:category"))
	return err == nil && young && !strings.Contains(r.get("l:size"), "metal")
}

// prefixed are the filled columns whose name begins so, under the rest of their name.
func (r record) prefixed(prefix, as string) object {
	var o object
	for i, column := range r.header {
		if name, ok := strings.CutPrefix(column, prefix); ok && r.row[i] != "" {
			o = append(o, member{as + name, r.row[i]})
		}
	}
	return o
}

func (r record) machine() (object, error) {
	price, err := strconv.ParseFloat(r.get("price"), 64)
	if err != nil {
		return nil, fmt.Errorf("price of %s: %w", r.get("name"), err)
	}
	pods, err := strconv.Atoi(r.get("a:pods"))
	if err != nil {
		return nil, fmt.Errorf("pods of %s: %w", r.get("name"), err)
	}
	labels := r.prefixed("l:", instanceLabel)
	labels.set(instanceLabel+"cpu", r.get("vcpu"))
	labels.set(instanceLabel+"memory", r.get("memoryMiB"))
	allocatable := r.prefixed("a:", "")
	var offerings []object
	for _, zone := range zones {
		offerings = append(offerings, offering(zone, "on-demand", price), offering(zone, "spot", round6(price*spotFactor)))
	}
	o := obj("name", r.get("name"), "arch", r.get("arch"), "os", []string{"linux"}, "cpu", r.get("vcpu"),
		"memory", r.get("memoryMiB")+"Mi", "pods", pods, "labels", labels, "allocatable", allocatable, "offerings", offerings)
	var gpus object
	for _, kind := range gpuKinds {
		if n := allocatable.get(kind); n != nil {
			gpus.set(kind, n)
		}
	}
	if gpus != nil {
		o.set("gpus", gpus)
	}
	return o, nil
}

func offering(zone, capacityType string, price float64) object {
	return obj("zone", zone, "capacityType", capacityType, "price", price, "available", true)
}

// round6 rounds the exact value to six decimals.
func round6(x float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 6, 64), 64)
	if err != nil {
		return math.NaN() // not reached: the text is a number's
	}
	return rounded
}

// madeUp are the 400 types of the peer's own benchmark: n CPUs, 2n GiB, 10n pods.
func madeUp() []object {
	var out []object
	for i := 1; i <= 400; i++ {
		price := round6(float64(0.1*float64(i)) + float64(0.1*2*float64(i)*1.073741824))
		var offerings []object
		for _, o := range [][2]string{{"1", "spot"}, {"2", "spot"}, {"1", "on-demand"}, {"2", "on-demand"}, {"3", "on-demand"}} {
			offerings = append(offerings, offering("test-zone-"+o[0], o[1], price))
		}
		out = append(out, obj("name", fmt.Sprintf("fake-it-%d", i-1), "arch", "amd64", "os", []string{"linux"},
			"cpu", strconv.Itoa(i), "memory", fmt.Sprintf("%dGi", 2*i), "pods", 10*i, "labels", object{},
			"allocatable", obj("cpu", fmt.Sprintf("%dm", 1000*i-100), "memory", fmt.Sprintf("%dMi", 2048*i-10), "pods", strconv.Itoa(10*i)),
			"offerings", offerings))
	}
	return out
}
