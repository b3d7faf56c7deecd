package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// shown is how many nodes the table has without --all.
const shown = 40

func (r *report) writeTable(w io.Writer, o *Options) error {
	var b bytes.Buffer
	r.nodeTable(&b, o.All)
	r.waiting(&b)
	r.totals(&b)
	if c := r.Compare; c != nil {
		c.write(&b)
	}
	if r.verified && len(r.Violations) == 0 {
		b.WriteString("Verified: an independent checker found no fault.\n")
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "FAULT: %s\n", v)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r *report) nodeTable(b *bytes.Buffer, all bool) {
	if len(r.NodeClaims) == 0 {
		return
	}
	list := r.NodeClaims
	if !all && len(list) > shown {
		list = list[:shown]
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NEW NODE\tTYPE\tZONE\tCAPACITY\tUSD/H\tCPU\tMEMORY\tPODS\tOTHER TYPES")
	for _, c := range list {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.4f\t%s\t%s\t%d/%d\t%d\n", c.Name, c.Cheapest.Type, c.Cheapest.Zone, c.Cheapest.CapacityType,
			c.Cheapest.Price, bar(c.used.MilliCPU, c.free.MilliCPU), bar(c.used.Memory, c.free.Memory), c.used.Pods, c.free.Pods, len(c.InstanceTypes)-1)
	}
	_ = t.Flush()
	if hidden := r.NodeClaims[len(list):]; len(hidden) > 0 {
		sum := 0.0
		for _, c := range hidden {
			sum += c.Cheapest.Price
		}
		fmt.Fprintf(b, "... and %d more nodes for USD %.2f/h (--all shows them)\n", len(hidden), sum)
	}
	b.WriteByte('\n')
}

// bar draws how much of the whole is used.
func bar(used, whole int64) string {
	const width = 10
	part := 0.0
	if whole > 0 {
		part = float64(used) / float64(whole)
	}
	full := int(min(max(part, 0), 1)*width + 0.5)
	return fmt.Sprintf("%s%s %3.0f%%", strings.Repeat("█", full), strings.Repeat("░", width-full), part*100)
}

// waiting groups the pods that stay pending by their reasons, the largest group first.
func (r *report) waiting(b *bytes.Buffer) {
	type group struct {
		reasons []string
		pods    []string
	}
	groups := map[string]*group{}
	for _, u := range r.Unschedulable {
		id := strings.Join(u.Reasons, "\x00")
		if groups[id] == nil {
			groups[id] = &group{reasons: u.Reasons}
		}
		groups[id].pods = append(groups[id].pods, u.Pod)
	}
	list := make([]*group, 0, len(groups))
	for _, g := range groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(b.pods), len(a.pods)), strings.Compare(a.pods[0], b.pods[0]))
	})
	for _, g := range list {
		names := strings.Join(g.pods[:min(3, len(g.pods))], ", ")
		if len(g.pods) > 3 {
			names += ", ..."
		}
		fmt.Fprintf(b, "STAYS PENDING: %s (%s)\n", count(len(g.pods), "pod"), names)
		for _, reason := range g.reasons {
			fmt.Fprintf(b, "  - %s\n", reason)
		}
		if len(g.reasons) == 0 {
			b.WriteString("  - there is no NodePool in the files\n")
		}
	}
	if len(list) > 0 {
		b.WriteByte('\n')
	}
}

func (r *report) totals(b *bytes.Buffer) {
	placed := 0
	for _, c := range r.NodeClaims {
		placed += len(c.Pods)
	}
	fmt.Fprintf(b, "%s on %s for USD %.2f/h", count(placed, "pod"), count(len(r.NodeClaims), "new node"), r.HourlyPrice)
	if r.HourlyPrice > 0 {
		fmt.Fprintf(b, " (no plan can cost less than USD %.2f/h)", r.LowerBound)
	}
	fmt.Fprintf(b, ", %s on existing nodes, %d pending.\n", count(len(r.Existing), "pod"), len(r.Unschedulable))
	fmt.Fprintf(b, "Planned in %.3f s, confirmed by the scheduler's filters in %.3f s, peak memory %d MiB.\n", r.Seconds, r.FitSeconds, r.PeakRSSBytes>>20)
	if n := len(r.Disagreements); n > 0 {
		fmt.Fprintf(b, "The filters refused %s that planning had found good, the first: %s\n", count(n, "placement"), r.Disagreements[0])
	}
}

func (c *comparison) write(b *bytes.Buffer) {
	b.WriteByte('\n')
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\tNODES\tUSD/H\t")
	unknown := ""
	if c.CurrentPriced < c.CurrentNodes {
		unknown = fmt.Sprintf("without %s whose price is unknown", count(c.CurrentNodes-c.CurrentPriced, "node"))
	}
	_, _ = fmt.Fprintf(t, "now\t%d\t%.2f\t%s\n", c.CurrentNodes, c.CurrentHourlyPrice, unknown)
	_, _ = fmt.Fprintf(t, "with this plan\t%d\t%.2f\t%s\n", c.AfterNodes, c.AfterHourlyPrice, unknown)
	pending := ""
	if c.ScratchUnschedulable > 0 {
		pending = fmt.Sprintf("%s would not fit", count(c.ScratchUnschedulable, "pod"))
	}
	_, _ = fmt.Fprintf(t, "all pods planned from scratch\t%d\t%.2f\t%s\n", c.ScratchNodes, c.ScratchHourlyPrice, pending)
	_ = t.Flush()
	trimmed := regexp.MustCompile(`(?m) +$`).ReplaceAll(b.Bytes(), nil)
	b.Reset()
	b.Write(trimmed)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
