package simulate

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	schedulerconfig "github.com/berth-dev/berth/manifests/scheduler-config"
	"github.com/berth-dev/berth/provisioner/cluster"
	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
	"github.com/berth-dev/berth/provisioner/testing/check"
)

// Options of a simulation.
type Options struct {
	Path, Output, Region, SchedulerConfig string
	Preferences, MinValues                string
	NodeCost                              float64
	Timeout                               time.Duration
	Compare, Verify, All, NoFit           bool

	paths []string // of the flag, which may stand there once
}

// NewCommand makes `berth simulate`.
func NewCommand() *cobra.Command {
	o := &Options{}
	cmd := &cobra.Command{
		Use:   "simulate -f PATH",
		Short: "Plan nodes for manifests or a scenario, without a cluster",
		Long: `Plan nodes for the pending pods of manifests or of a scenario, without a cluster.

PATH is a file or a folder of plain Kubernetes YAML or JSON (a dump of "kubectl get -o yaml" will do):
Nodes, Pods, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, volumes and their classes,
PriorityClasses, NodePools, NodeClaims, EC2NodeClasses. Workloads add the pods that they lack. Or PATH is
one scenario with its own machines and prices. "-" reads manifests from standard input.

Prices are the published list prices; spot prices are an estimate. Nothing is changed anywhere.`,
		Example: `  berth simulate -f cluster.yaml
  kubectl get nodes,pods,deploy,ds,sts,nodepools,ec2nodeclasses,nodeclaims -A -o yaml | berth simulate -f - --compare
  berth simulate -f manifests/ -o json | jq .hourlyPrice`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&o.paths, "filename", "f", nil, "file or folder with manifests, or a scenario; - is standard input")
	fs.StringVarP(&o.Output, "output", "o", "table", "table or json")
	fs.StringVar(&o.Region, "region", "us-east-1", "AWS region whose types and prices are used for manifests")
	fs.StringVar(&o.SchedulerConfig, "scheduler-config", "", "KubeSchedulerConfiguration whose filters confirm the plan (default: Berth's own)")
	fs.Float64Var(&o.NodeCost, "node-cost", 0.005, "what a node costs beside its instance, USD per hour; guides the choice and is not part of the price")
	fs.StringVar(&o.Preferences, "preference-policy", "Guide", "Guide, Respect or Ignore; as the setting of the scheduler")
	fs.StringVar(&o.MinValues, "min-values-policy", "Strict", "Strict or BestEffort; as the setting of the scheduler")
	fs.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "time for planning; then the plan so far is printed, and the other pods with that reason")
	fs.BoolVar(&o.Compare, "compare", false, "print what the nodes of the input cost, and what a plan from scratch would cost")
	fs.BoolVar(&o.Verify, "verify", false, "have the plan proved by an independent checker; exit 1 when it finds a fault")
	fs.BoolVar(&o.All, "all", false, "print every node, however many")
	fs.BoolVar(&o.NoFit, "no-fit", false, "plan by algebra alone, without the scheduler's filters")
	return cmd
}

func (o *Options) validate() error {
	if len(o.paths) > 1 {
		return fmt.Errorf("--filename (-f): is given %d times, want once; put the files into one folder and give that", len(o.paths))
	}
	if len(o.paths) == 1 {
		o.Path = o.paths[0]
	}
	switch {
	case o.Path == "":
		return fmt.Errorf("--filename (-f): missing; give a file or folder with manifests, or a scenario")
	case !slices.Contains([]string{"table", "json"}, o.Output):
		return fmt.Errorf("--output (-o): is %q, want table or json", o.Output)
	case !slices.Contains([]string{"Guide", "Respect", "Ignore"}, o.Preferences):
		return fmt.Errorf("--preference-policy: is %q, want Guide, Respect or Ignore", o.Preferences)
	case !slices.Contains([]string{"Strict", "BestEffort"}, o.MinValues):
		return fmt.Errorf("--min-values-policy: is %q, want Strict or BestEffort", o.MinValues)
	case o.NodeCost < 0:
		return fmt.Errorf("--node-cost: is %v, want 0 or more", o.NodeCost)
	case o.Timeout <= 0:
		return fmt.Errorf("--timeout: is %v, want more than 0", o.Timeout)
	}
	return nil
}

// Run simulates and prints the outcome to out; remarks and progress go to stderr.
func Run(ctx context.Context, o *Options, stdin io.Reader, out, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	configuration := schedulerconfig.Default
	if o.SchedulerConfig != "" {
		var err error
		if configuration, err = os.ReadFile(o.SchedulerConfig); err != nil {
			return fmt.Errorf("--scheduler-config: %w", err)
		}
	}
	// A short-lived process with much garbage: collecting it early halves what it needs of the machine.
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	// What plugins log while they are set up is of no use here.
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	defer stop()
	in, err := read(ctx, o, configuration, stdin)
	if err != nil {
		return err
	}
	for _, note := range in.notes {
		_, _ = fmt.Fprintln(stderr, "note:", note)
	}
	r := simulate(ctx, o, in, stderr)
	if o.Output == "json" {
		err = r.writeJSON(out)
	} else {
		err = r.writeTable(out, o)
	}
	if err == nil && len(r.Violations) > 0 {
		return fmt.Errorf("the checker found %d faults in the plan, the first: %s", len(r.Violations), r.Violations[0])
	}
	return err
}

// simulate plans and measures. The plan is the one that the filters confirmed; seconds is the planning
// by algebra alone, fitSeconds what the filters add.
func simulate(ctx context.Context, o *Options, in *input, stderr io.Writer) *report {
	planning, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	done := progress(stderr, fmt.Sprintf("planning %d pods", len(in.problem.Pods)))
	defer done()
	started := time.Now()
	plan := solver.Solve(planning, in.problem, nil)
	algebra := time.Since(started)
	r := &report{Seconds: algebra.Seconds()}
	if !o.NoFit {
		started = time.Now()
		plan = solver.Solve(planning, in.problem, in.filters.fit)
		r.FitSeconds = max(time.Since(started)-algebra, 0).Seconds()
	}
	r.PeakRSSBytes = peakRSS()
	r.fill(in, plan)
	r.LowerBound = solver.Bound(in.problem, plan)
	if o.Compare {
		r.Compare = compare(planning, in, plan)
	}
	if o.Verify {
		r.Violations = check.Plan(in.problem, plan)
		r.verified = true
	}
	return r
}

// compare plans all pods anew on an empty cluster.
func compare(ctx context.Context, in *input, plan solver.Plan) *comparison {
	c := &comparison{CurrentNodes: len(in.problem.Snapshot.Nodes), CurrentPriced: in.priced, CurrentHourlyPrice: in.current}
	c.AfterHourlyPrice, c.AfterNodes = in.current+price(plan), c.CurrentNodes+len(plan.Claims)
	scratch := in.problem
	empty := *in.problem.Snapshot
	empty.Nodes, empty.PoolUsage = nil, map[string]resources.Vector{}
	scratch.Snapshot = &empty
	scratch.Pods = append(slices.Clone(in.problem.Pods), movable(in.problem.Snapshot)...)
	anew := solver.Solve(ctx, scratch, nil)
	c.ScratchHourlyPrice, c.ScratchNodes, c.ScratchUnschedulable = price(anew), len(anew.Claims), len(anew.Unfit)
	return c
}

// movable returns the bound pods as if they waited, daemons and static pods left out.
func movable(s *cluster.Snapshot) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, node := range s.Nodes {
		for _, pod := range node.Pods {
			if kind := ownerKind(pod); kind == "DaemonSet" || kind == "Node" {
				continue
			}
			pod = pod.DeepCopy()
			pod.Spec.NodeName = ""
			pods = append(pods, pod)
		}
	}
	return pods
}

func price(plan solver.Plan) float64 {
	sum := 0.0
	for _, c := range plan.Claims {
		sum += c.Cheapest.Price
	}
	return sum
}

// peakRSS is the most memory that the process ever had, in bytes.
func peakRSS() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Maxrss * rssUnit
}

// progress tells every few seconds that work is going on.
func progress(w io.Writer, what string) (done func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(3 * time.Second)
		defer ticker.Stop()
		started := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				_, _ = fmt.Fprintf(w, "%s, %s so far\n", strings.TrimSpace(what), time.Since(started).Round(time.Second))
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}
