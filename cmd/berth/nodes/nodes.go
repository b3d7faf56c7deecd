// Package nodes is `berth nodes`: which nodes there are, how full they are, and what they cost.
//
// Place in the flow: the command line calls it; it reads the API and changes nothing. It works on any
// cluster whose nodes carry the well-known labels.
package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	"github.com/berth-dev/berth/provisioner/resources"
)

type options struct {
	kubeconfig, context, selector, output, sort string
	once                                        bool
	interval                                    time.Duration
}

// NewCommand makes `berth nodes`.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show nodes with what is requested of them, and their price",
		Long: `Show the nodes of a cluster with what pods request of them, their price, age and state, and the totals; anew
every few seconds until Ctrl-C. Prices are published list prices; spot prices are an estimate.`,
		Example: "  berth nodes\n  berth nodes --once --sort price --selector karpenter.sh/nodepool=general\n  berth nodes -o json | jq .hourlyPrice",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), client, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
	fs.StringVar(&o.context, "context", "", "context of the kubeconfig")
	fs.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	fs.StringVarP(&o.output, "output", "o", "table", "table or json; json prints once")
	fs.StringVar(&o.sort, "sort", "name", "name, price, cpu, memory or age")
	fs.BoolVar(&o.once, "once", false, "print once and end")
	fs.DurationVar(&o.interval, "interval", 3*time.Second, "how often to look")
	return cmd
}

func (o *options) validate() error {
	switch {
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("--output (-o): is %q, want table or json", o.output)
	case !slices.Contains([]string{"name", "price", "cpu", "memory", "age"}, o.sort):
		return fmt.Errorf("--sort: is %q, want name, price, cpu, memory or age", o.sort)
	case o.interval < time.Second:
		return fmt.Errorf("--interval: is %s, want 1s or more", o.interval)
	}
	return nil
}

func (o *options) client() (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return client, nil
}

func (o *options) run(ctx context.Context, client kubernetes.Interface, out io.Writer) error {
	for {
		list, err := look(ctx, client, o.selector, time.Now())
		if err != nil {
			return err
		}
		list.order(o.sort)
		if o.output == "json" {
			encoder := json.NewEncoder(out)
			encoder.SetIndent("", "  ")
			return encoder.Encode(list) //nolint:wrapcheck // says what is wrong with the output
		}
		clear := "\x1b[H\x1b[2J"
		if o.once {
			clear = ""
		}
		if _, err := io.WriteString(out, clear+list.table()); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
		if o.once {
			return nil
		}
		timer := time.NewTimer(o.interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// listing is what is known of the nodes.
type listing struct {
	Nodes       []row   `json:"nodes"`
	HourlyPrice float64 `json:"hourlyPrice"`
	// Unpriced is how many nodes have no known price.
	Unpriced int `json:"unpriced"`
}

// row is one node. Amounts are millicores and bytes.
type row struct {
	Name         string  `json:"name"`
	Pool         string  `json:"nodePool,omitempty"`
	Type         string  `json:"instanceType,omitempty"`
	Zone         string  `json:"zone,omitempty"`
	CapacityType string  `json:"capacityType,omitempty"`
	Price        float64 `json:"price,omitempty"`
	Pods         int     `json:"pods"`
	CPU          usage   `json:"cpu"`
	Memory       usage   `json:"memory"`
	State        string  `json:"state"`
	AgeSeconds   int64   `json:"ageSeconds"`
}

type usage struct {
	Requested   int64 `json:"requested"`
	Allocatable int64 `json:"allocatable"`
}

func look(ctx context.Context, client kubernetes.Interface, selector string, now time.Time) (*listing, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	// Served from the API server's cache: a look must cost a large cluster little.
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		ResourceVersion: "0", FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	load, count := map[string]resources.Vector{}, map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		load[pod.Spec.NodeName] = load[pod.Spec.NodeName].Add(resources.PodRequests(pod))
		count[pod.Spec.NodeName]++
	}
	out := &listing{Nodes: []row{}}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		free, used := resources.FromList(node.Status.Allocatable), load[node.Name]
		l := node.Labels
		r := row{
			Name: node.Name, Pool: l[karpv1.LabelNodePool], Type: l[corev1.LabelInstanceTypeStable], Zone: l[corev1.LabelTopologyZone],
			CapacityType: l[karpv1.LabelCapacityType], Pods: count[node.Name], State: stateOf(node),
			CPU: usage{used.MilliCPU, free.MilliCPU}, Memory: usage{used.Memory, free.Memory},
			AgeSeconds: int64(now.Sub(node.CreationTimestamp.Time).Seconds()),
		}
		price, known := priceOf(l)
		if r.Price = price; !known {
			out.Unpriced++
		}
		out.HourlyPrice += price
		out.Nodes = append(out.Nodes, r)
	}
	return out, nil
}

func priceOf(l map[string]string) (float64, bool) {
	zone, name := l[corev1.LabelTopologyZone], l[corev1.LabelInstanceTypeStable]
	region := cmp.Or(l[corev1.LabelTopologyRegion], strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz"))
	if l[karpv1.LabelCapacityType] == karpv1.CapacityTypeSpot {
		return facts.SpotPrice(region, zone, name)
	}
	return facts.OnDemandPrice(region, name)
}

// stateOf says in one or two words what is up with the node.
func stateOf(node *corev1.Node) string {
	if node.DeletionTimestamp != nil {
		return "terminating"
	}
	for _, t := range node.Spec.Taints {
		if t.Key == karpv1.TaintKeyDisrupted {
			return "being replaced"
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "not ready"
		}
	}
	switch {
	case node.Labels[karpv1.LabelNodePool] != "" && node.Labels[karpv1.LabelInitialized] != karpv1.ValueTrue:
		return "starting"
	case node.Annotations[karpv1.AnnotationDoNotDisrupt] == karpv1.ValueTrue:
		return "do not disrupt"
	case node.Spec.Unschedulable:
		return "cordoned"
	}
	return "ready"
}

func (l *listing) order(by string) {
	part := func(u usage) float64 { return float64(u.Requested) / float64(max(u.Allocatable, 1)) }
	slices.SortStableFunc(l.Nodes, func(a, b row) int {
		name := strings.Compare(a.Name, b.Name)
		switch by {
		case "price":
			return cmp.Or(cmp.Compare(b.Price, a.Price), name)
		case "cpu":
			return cmp.Or(cmp.Compare(part(b.CPU), part(a.CPU)), name)
		case "memory":
			return cmp.Or(cmp.Compare(part(b.Memory), part(a.Memory)), name)
		case "age":
			return cmp.Or(cmp.Compare(b.AgeSeconds, a.AgeSeconds), name)
		default:
			return name
		}
	})
}

func (l *listing) table() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NODE\tPOOL\tTYPE\tZONE\tCAPACITY\tUSD/H\tCPU\tMEMORY\tPODS\tAGE\tSTATE")
	var cpu, memory usage
	pods := 0
	for _, r := range l.Nodes {
		price := "-"
		if r.Price > 0 {
			price = fmt.Sprintf("%.4f", r.Price)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.Name, cmp.Or(r.Pool, "-"), cmp.Or(r.Type, "-"), cmp.Or(r.Zone, "-"),
			cmp.Or(r.CapacityType, "-"), price, bar(r.CPU), bar(r.Memory), r.Pods, duration.HumanDuration(time.Duration(r.AgeSeconds)*time.Second), r.State)
		cpu, memory = usage{cpu.Requested + r.CPU.Requested, cpu.Allocatable + r.CPU.Allocatable}, usage{memory.Requested + r.Memory.Requested, memory.Allocatable + r.Memory.Allocatable}
		pods += r.Pods
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%d nodes for USD %.2f/h", len(l.Nodes), l.HourlyPrice)
	if l.Unpriced > 0 {
		fmt.Fprintf(&b, " (%d without a known price)", l.Unpriced)
	}
	fmt.Fprintf(&b, ", cpu %s, memory %s, %d pods\n", bar(cpu), bar(memory), pods)
	return b.String()
}

// bar draws how much of the whole is requested.
func bar(u usage) string {
	const width = 10
	part := float64(u.Requested) / float64(max(u.Allocatable, 1))
	full := int(min(max(part, 0), 1)*width + 0.5)
	return fmt.Sprintf("%s%s %3.0f%%", strings.Repeat("█", full), strings.Repeat("░", width-full), part*100)
}
