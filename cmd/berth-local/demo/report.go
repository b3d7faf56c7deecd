package demo

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// report holds the figures of one run. They are told, never judged: a slow machine is no failure.
type report struct {
	ready                 time.Duration
	lone                  []time.Duration // pod created -> CreateFleet received
	bind                  []time.Duration // node Ready -> first pod bound there
	bindBurst             []time.Duration // the same while many pods are pending
	burst                 time.Duration   // last pod created -> last CreateFleet received
	burstPods, burstCalls int
}

func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  cluster ready\t%s\t(goal < 20 s warm)\n", round(r.ready))
	fmt.Fprintf(w, "  lone pod created -> CreateFleet received, p50\t%s\t(goal < 250 ms, n=%d, max %s)\n",
		round(median(r.lone)), len(r.lone), round(longest(r.lone)))
	fmt.Fprintf(w, "  node Ready -> first promised pod bound, p50\t%s\t(goal < 100 ms, n=%d, max %s)\n",
		round(median(r.bind)), len(r.bind), round(longest(r.bind)))
	if r.burstPods > 0 {
		fmt.Fprintf(w, "  the same with %d pods pending, p50\t%s\t(n=%d, max %s)\n",
			r.burstPods, round(median(r.bindBurst)), len(r.bindBurst), round(longest(r.bindBurst)))
		fmt.Fprintf(w, "  last of %d pods created -> last of %d CreateFleet calls\t%s\t(goal < 3 s)\n",
			r.burstPods, r.burstCalls, round(r.burst))
	}
	w.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func longest(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	return slices.Max(ds)
}
