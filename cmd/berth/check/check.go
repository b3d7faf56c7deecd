// Package check is `berth check`: what is wrong, or may surprise, in NodePools and EC2NodeClasses, before
// they are applied.
//
// Place in the flow: the command line calls it; it asks the definitions' own validation, the NodePool
// controller's, and the catalogue of instance types. No cluster.
package check

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/cmd/berth/manifest"
	"github.com/berth-dev/berth/disruption/budget"
	ec2v1 "github.com/berth-dev/berth/provisioner/api/ec2/v1"
	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
	"github.com/berth-dev/berth/provisioner/aws/facts"
	awstypes "github.com/berth-dev/berth/provisioner/aws/types"
	"github.com/berth-dev/berth/provisioner/catalog"
	"github.com/berth-dev/berth/provisioner/nodepool"
	"github.com/berth-dev/berth/provisioner/requirement"
)

// finding is one remark about one object.
type finding struct {
	severity string // ERROR or WARN
	where    string
	text     string
}

// NewCommand makes `berth check`.
func NewCommand() *cobra.Command {
	var paths []string
	var region string
	cmd := &cobra.Command{
		Use:   "check -f PATH",
		Short: "Find faults in NodePools and EC2NodeClasses before they are applied",
		Long: `Find what is wrong, or may surprise, in NodePools, EC2NodeClasses and their like, before they are applied:
everything that the API server would refuse, fields that it would drop, requirements that no instance type
meets, minValues that cannot be reached, zones without subnets, budgets that cannot be read or that block
all disruption. Exits 1 when there is an error; warnings alone exit 0.`,
		Example: "  berth check -f nodepools/\n  kubectl get nodepools,ec2nodeclasses -o yaml | berth check -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(paths) > 1 {
				return fmt.Errorf("--filename (-f): is given %d times, want once; put the files into one folder and give that", len(paths))
			}
			return run(cmd.Context(), strings.Join(paths, ""), region, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVarP(&paths, "filename", "f", nil, "file or folder with manifests; - is standard input")
	cmd.Flags().StringVar(&region, "region", "us-east-1", "AWS region whose instance types count")
	return cmd
}

func run(ctx context.Context, path, region string, stdin io.Reader, out io.Writer) error {
	if path == "" {
		return fmt.Errorf("--filename (-f): missing; give a file or folder with manifests")
	}
	if len(facts.Zones(region)) == 0 {
		return fmt.Errorf("--region: nothing is known about %q; known are %s", region, strings.Join(facts.Regions(), ", "))
	}
	set, err := manifest.Load(path, stdin)
	if err != nil {
		return err
	}
	findings, err := examine(ctx, set, region)
	if err != nil {
		return err
	}
	faults := 0
	for _, f := range findings {
		if f.severity == "ERROR" {
			faults++
		}
		if _, err := fmt.Fprintf(out, "%-5s  %s: %s\n", f.severity, f.where, f.text); err != nil {
			return fmt.Errorf("write findings: %w", err)
		}
	}
	if _, err := fmt.Fprintf(out, "%d objects checked, %d errors, %d warnings\n", len(set.Custom), faults, len(findings)-faults); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	if faults > 0 {
		return fmt.Errorf("%d errors found", faults)
	}
	return nil
}

func examine(ctx context.Context, set *manifest.Set, region string) ([]finding, error) {
	admit, err := newAdmission()
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, d := range set.Custom {
		refused, dropped := admit.faults(ctx, d.GroupVersionKind, d.Raw)
		for _, fault := range refused {
			findings = append(findings, finding{"ERROR", d.Where, fault})
		}
		for _, field := range dropped {
			findings = append(findings, finding{"WARN", d.Where, field + ": unknown field, the API server drops it"})
		}
	}
	for _, pool := range set.Pools {
		where := "NodePool " + pool.Name
		add := func(severity, format string, args ...any) {
			findings = append(findings, finding{severity, where, fmt.Sprintf(format, args...)})
		}
		if err := nodepool.Validate(pool); err != nil {
			for line := range strings.Lines(err.Error()) {
				add("ERROR", "%s", strings.TrimSpace(line))
			}
			continue
		}
		checkBudgets(pool, add)
		checkTypes(pool, set, region, add)
		if string(pool.Spec.Disruption.ConsolidationPolicy) == "WhenUnderutilized" {
			add("WARN", "spec.disruption.consolidationPolicy: WhenUnderutilized is the older name of WhenEmptyOrUnderutilized; Karpenter's own definition refuses it, which matters on the way back")
		}
	}
	return findings, nil
}

// checkBudgets looks for budgets that cannot be read, and for pools that may never disrupt anything.
func checkBudgets(pool *karpv1.NodePool, add func(severity, format string, args ...any)) {
	for _, reason := range []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonUnderutilized, karpv1.DisruptionReasonDrifted} {
		open := false
		week := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
		for hour := range 7 * 24 {
			allowed, err := budget.Allowed(pool, reason, 100, week.Add(time.Duration(hour)*time.Hour))
			if err != nil {
				add("ERROR", "spec.disruption.budgets: %v; until that is mended nothing in the pool is disrupted", err)
				return
			}
			open = open || allowed > 0
		}
		if !open {
			add("WARN", "spec.disruption.budgets: at no hour of the week may a node go for reason %s", reason)
		}
		if at, gap := budget.Gap(pool, reason, week); gap {
			add("WARN", "spec.disruption.budgets: %s", budget.GapText(reason, at))
		}
	}
}

// checkTypes looks for requirements that nothing meets.
func checkTypes(pool *karpv1.NodePool, set *manifest.Set, region string, add func(severity, format string, args ...any)) {
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref == nil || ref.Group != ec2v1.SchemeGroupVersion.Group {
		return
	}
	var class *awstypes.Class
	i := slices.IndexFunc(set.Classes, func(nc *ec2v1.EC2NodeClass) bool { return nc.Name == ref.Name })
	if i >= 0 {
		c := awstypes.ClassOf(set.Classes[i])
		class = &c
	} else {
		add("WARN", "spec.template.spec.nodeClassRef.name: EC2NodeClass %q is not in the files; the pool is judged with AL2023 defaults in every zone", ref.Name)
	}
	reqs := requirement.FromClaim(pool.Spec.Template.Spec.Requirements)
	for _, zone := range reqs.Get(corev1.LabelTopologyZone).Values() {
		if class != nil && len(class.Zones) > 0 && reqs.Get(corev1.LabelTopologyZone).IsConcrete() && len(class.Subnets[zone]) == 0 {
			add("WARN", "spec.template.spec.requirements: zone %s has no matching subnet in EC2NodeClass %s; no node will start there", zone, ref.Name)
		}
	}
	types := awstypes.Published(class, awstypes.Settings{Region: region, VMMemoryOverheadPercent: 0.075})
	left := slices.DeleteFunc(types, func(it *catalog.InstanceType) bool {
		return !reqs.Overlaps(it.Requirements) || !slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool { return o.Available && reqs.Overlaps(o.Requirements) })
	})
	if len(left) == 0 {
		add("ERROR", "spec.template.spec.requirements: no instance type of %s meets all of them%s", region, narrowest(reqs, class, region))
		return
	}
	for _, key := range reqs.Keys() {
		values := map[string]bool{}
		for _, it := range left {
			for _, v := range it.Requirements.Get(key).Values() {
				values[v] = true
			}
		}
		if want := reqs[key].MinValues(); want > len(values) {
			add("ERROR", "spec.template.spec.requirements: key %s has minValues %d, and the types that meet all requirements have %d values of it", key, want, len(values))
		}
	}
	if spotOnly := reqs.Get(karpv1.LabelCapacityType); len(left) < 15 && spotOnly.Has(karpv1.CapacityTypeSpot) {
		add("WARN", "spec.template.spec.requirements: only %d instance types meet them; spot capacity is easier to get, and to keep, with 15 or more", len(left))
	}
}

// narrowest names the requirement without which there would be types, if one alone is to blame.
func narrowest(reqs requirement.Set, class *awstypes.Class, region string) string {
	for _, key := range reqs.Keys() {
		rest := reqs.Clone()
		delete(rest, key)
		if slices.ContainsFunc(awstypes.Published(class, awstypes.Settings{Region: region, VMMemoryOverheadPercent: 0.075}), func(it *catalog.InstanceType) bool {
			return rest.Overlaps(it.Requirements)
		}) {
			return fmt.Sprintf("; without the one on %s there would be some", key)
		}
	}
	return ""
}
