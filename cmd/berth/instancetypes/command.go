// Package instancetypes is `berth instance-types`: every EC2 instance type as Berth plans with it, from what
// is publicly known, without a cluster or an account.
//
// Place in the flow: the command line calls it; it prints what provisioner/aws/types makes of the facts.
package instancetypes

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/catalog"
)

// options of the command.
type options struct {
	output, region, class, match string
	overheadPercent              float64
	reservedENIs                 int
}

// NewCommand makes `berth instance-types`.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "instance-types",
		Short: "List every EC2 instance type with labels, what pods can use, and prices",
		Long: `List every EC2 instance type of a region as Berth plans with it: labels, capacity, overhead, what pods can
use, and list prices. Spot prices are an estimate. Data comes with the program; AWS is not asked.`,
		Example: `  berth instance-types --match 'm7i.*'
  berth instance-types -o csv > types.csv
  berth instance-types -o json --class ec2nodeclass.yaml --region eu-west-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.output, "output", "o", "table", "table, csv or json")
	fs.StringVar(&o.region, "region", "us-east-1", "AWS region")
	fs.StringVar(&o.class, "class", "", "file with an EC2NodeClass: its AMI family, kubelet settings and disks count (default: AL2023 as it comes)")
	fs.StringVar(&o.match, "match", "", "only types that match, for example 'c7g.*' or 'm*.large'")
	fs.Float64Var(&o.overheadPercent, "vm-memory-overhead-percent", 0.075, "fraction of memory that is not the node's; as the setting of the scheduler")
	fs.IntVar(&o.reservedENIs, "reserved-enis", 0, "network interfaces kept from pods; as the setting of the scheduler")
	return cmd
}

func (o *options) run(out io.Writer) error {
	switch {
	case !slices.Contains([]string{"table", "csv", "json"}, o.output):
		return fmt.Errorf("--output (-o): is %q, want table, csv or json", o.output)
	case len(facts.Zones(o.region)) == 0:
		return fmt.Errorf("--region: nothing is known about %q; known are %s", o.region, strings.Join(facts.Regions(), ", "))
	case o.overheadPercent < 0 || o.overheadPercent >= 1:
		return fmt.Errorf("--vm-memory-overhead-percent: is %v, want a fraction from 0 to below 1, for example 0.075", o.overheadPercent)
	case o.reservedENIs < 0:
		return fmt.Errorf("--reserved-enis: is %d, want 0 or more", o.reservedENIs)
	}
	class, err := o.nodeClass()
	if err != nil {
		return err
	}
	list := types.Published(class, types.Settings{Region: o.region, VMMemoryOverheadPercent: o.overheadPercent, ReservedENIs: o.reservedENIs})
	list = slices.DeleteFunc(list, func(it *catalog.InstanceType) bool { return o.match != "" && !matches(o.match, it.Name) })
	if len(list) == 0 {
		return fmt.Errorf("--match: no instance type of %s matches %q", o.region, o.match)
	}
	switch o.output {
	case "csv":
		return writeCSV(out, list)
	case "json":
		return writeJSON(out, list)
	default:
		return writeTable(out, list)
	}
}

func (o *options) nodeClass() (*types.Class, error) {
	if o.class == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(o.class)
	if err != nil {
		return nil, fmt.Errorf("--class: %w", err)
	}
	var nc ec2v1.EC2NodeClass
	if err := yaml.UnmarshalStrict(raw, &nc); err != nil {
		return nil, fmt.Errorf("--class %s: %w", o.class, err)
	}
	if nc.Kind != "EC2NodeClass" {
		return nil, fmt.Errorf("--class %s: kind: is %q, want EC2NodeClass", o.class, nc.Kind)
	}
	c := types.ClassOf(&nc)
	return &c, nil
}

// matches compares with a pattern in which * stands for any text.
func matches(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return name == pattern
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for i := 0; i <= len(name); i++ {
		if matches(rest, name[i:]) {
			return true
		}
	}
	return false
}

// The columns are those of the published reference page, sorted as it sorts them.
var (
	labelColumns = []string{
		ec2v1.LabelInstanceAcceleratorCount, ec2v1.LabelInstanceAcceleratorManufacturer, ec2v1.LabelInstanceAcceleratorName,
		ec2v1.LabelInstanceCapabilityFlex, ec2v1.LabelInstanceCategory, ec2v1.LabelInstanceCPU, ec2v1.LabelInstanceCPUManufacturer,
		ec2v1.LabelInstanceCPUSustainedClockSpeedMHz, ec2v1.LabelInstanceEBSBandwidth, ec2v1.LabelInstanceEncryptionInTransitSupported,
		ec2v1.LabelInstanceFamily, ec2v1.LabelInstanceGeneration, ec2v1.LabelInstanceGPUCount, ec2v1.LabelInstanceGPUManufacturer,
		ec2v1.LabelInstanceGPUMemory, ec2v1.LabelInstanceGPUName, ec2v1.LabelInstanceHypervisor, ec2v1.LabelInstanceLocalNVMe,
		ec2v1.LabelInstanceMemory, ec2v1.LabelInstanceNetworkBandwidth, ec2v1.LabelInstanceSize,
		corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelInstanceTypeStable,
	}
	resourceColumns = []corev1.ResourceName{
		ec2v1.ResourceAMDGPU, ec2v1.ResourceNeuron, ec2v1.ResourceNeuronCore, corev1.ResourceCPU, corev1.ResourceEphemeralStorage,
		corev1.ResourceMemory, ec2v1.ResourceNVIDIAGPU, corev1.ResourcePods, ec2v1.ResourceEFA, ec2v1.ResourcePodENI,
	}
)

func writeCSV(out io.Writer, list []*catalog.InstanceType) error {
	w := csv.NewWriter(out)
	header := []string{"instance_type"}
	for _, key := range labelColumns {
		header = append(header, "label:"+key)
	}
	for _, name := range resourceColumns {
		header = append(header, "allocatable:"+string(name))
	}
	rows := [][]string{header}
	for _, it := range list {
		row := []string{it.Name}
		for _, key := range labelColumns {
			value, _ := it.Requirements.Get(key).Single()
			row = append(row, value)
		}
		free := it.Allocatable().ToList()
		for _, name := range resourceColumns {
			amount := ""
			if q, ok := free[name]; ok && !q.IsZero() {
				amount = q.String()
			}
			row = append(row, amount)
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write csv: %w", err)
	}
	return nil
}

// described is a type in the form of `-o json`. Prices are USD per hour, by zone and capacity type.
type described struct {
	Name        string                        `json:"name"`
	Labels      map[string]string             `json:"labels"`
	Capacity    corev1.ResourceList           `json:"capacity"`
	Overhead    corev1.ResourceList           `json:"overhead"`
	Allocatable corev1.ResourceList           `json:"allocatable"`
	Prices      map[string]map[string]float64 `json:"prices"`
}

func describe(it *catalog.InstanceType) described {
	d := described{
		Name: it.Name, Labels: it.Requirements.Labels(), Capacity: it.Capacity.ToList(), Overhead: it.Overhead.ToList(),
		Allocatable: it.Allocatable().ToList(), Prices: map[string]map[string]float64{},
	}
	for _, o := range it.Offerings {
		if !o.Available {
			continue
		}
		if d.Prices[o.Zone] == nil {
			d.Prices[o.Zone] = map[string]float64{}
		}
		d.Prices[o.Zone][o.CapacityType] = o.Price
	}
	return d
}

func writeJSON(out io.Writer, list []*catalog.InstanceType) error {
	all := make([]described, len(list))
	for i, it := range list {
		all[i] = describe(it)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return nil
}

func writeTable(out io.Writer, list []*catalog.InstanceType) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "TYPE\tARCH\tCPU FOR PODS\tMEMORY FOR PODS\tPODS\tGPU\tON-DEMAND USD/H\tSPOT FROM USD/H\tZONES")
	for _, it := range list {
		d := describe(it)
		zones := map[string]bool{}
		onDemand, spot := "-", "-"
		var cheapest float64
		for zone, prices := range d.Prices {
			zones[zone[len(zone)-1:]] = true
			if p, ok := prices[karpv1.CapacityTypeOnDemand]; ok {
				onDemand = fmt.Sprintf("%.4f", p)
			}
			if p, ok := prices[karpv1.CapacityTypeSpot]; ok && (spot == "-" || p < cheapest) {
				cheapest, spot = p, fmt.Sprintf("%.4f", p)
			}
		}
		letters := make([]string, 0, len(zones))
		for z := range zones {
			letters = append(letters, z)
		}
		slices.Sort(letters)
		gpu := d.Labels[ec2v1.LabelInstanceGPUName]
		if gpu != "" {
			gpu = d.Labels[ec2v1.LabelInstanceGPUCount] + " " + gpu
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", it.Name, d.Labels[corev1.LabelArchStable], d.Allocatable.Cpu(), d.Allocatable.Memory(),
			d.Allocatable.Pods(), gpu, onDemand, spot, strings.Join(letters, ""))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
