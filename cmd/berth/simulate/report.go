package simulate

import (
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/provisioner/resources"
	"github.com/berth-dev/berth/provisioner/solver"
)

// report is the outcome in the form that `-o json` prints. Prices are in USD per hour. Pods of the
// namespace "default" are named alone, others as namespace/name.
type report struct {
	NodeClaims    []claim           `json:"nodeClaims"`
	Unschedulable []unschedulable   `json:"unschedulable"`
	Existing      map[string]string `json:"existing"` // pod to node
	HourlyPrice   float64           `json:"hourlyPrice"`
	// LowerBound is a price that no plan for the pods on new nodes can undercut.
	LowerBound float64 `json:"lowerBound"`
	// Seconds of planning by algebra; FitSeconds is what confirming with the filters adds.
	Seconds      float64 `json:"seconds"`
	FitSeconds   float64 `json:"fitSeconds"`
	PeakRSSBytes int64   `json:"peakRSSBytes"`
	// Disagreements are placements that the filters refused and the algebra had found good.
	Disagreements []string    `json:"disagreements,omitempty"`
	Compare       *comparison `json:"compare,omitempty"`
	Violations    []string    `json:"violations,omitempty"`

	verified bool
}

type claim struct {
	Name          string   `json:"name"`
	NodePool      string   `json:"nodePool"`
	InstanceTypes []string `json:"instanceTypes"`
	Cheapest      choice   `json:"cheapest"`
	Pods          []string `json:"pods"`

	used, free resources.Vector // of the cheapest type
}

type choice struct {
	Type         string  `json:"type"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
}

type unschedulable struct {
	Pod     string   `json:"pod"`
	Reasons []string `json:"reasons"`
}

// comparison sets the nodes of the input beside the plan and beside a plan from scratch.
type comparison struct {
	CurrentNodes         int     `json:"currentNodes"`
	CurrentPriced        int     `json:"currentNodesWithPrice"`
	CurrentHourlyPrice   float64 `json:"currentHourlyPrice"`
	AfterNodes           int     `json:"afterNodes"`
	AfterHourlyPrice     float64 `json:"afterHourlyPrice"`
	ScratchNodes         int     `json:"scratchNodes"`
	ScratchHourlyPrice   float64 `json:"scratchHourlyPrice"`
	ScratchUnschedulable int     `json:"scratchUnschedulable"`
}

func (r *report) fill(in *input, plan solver.Plan) {
	r.NodeClaims, r.Unschedulable, r.Existing = []claim{}, []unschedulable{}, map[string]string{}
	count := map[string]int{}
	for _, c := range plan.Claims {
		count[c.Pool]++
		out := claim{
			Name: fmt.Sprintf("%s-%d", c.Pool, count[c.Pool]), NodePool: c.Pool,
			Cheapest: choice{c.Cheapest.Type, c.Cheapest.Zone, c.Cheapest.CapacityType, c.Cheapest.Price},
			used:     c.Requests, free: c.Types[0].Allocatable(),
		}
		for _, it := range c.Types {
			out.InstanceTypes = append(out.InstanceTypes, it.Name)
		}
		for _, pod := range c.Pods {
			out.Pods = append(out.Pods, podName(pod))
		}
		r.NodeClaims = append(r.NodeClaims, out)
		r.HourlyPrice += c.Cheapest.Price
	}
	for _, p := range plan.Existing {
		r.Existing[podName(p.Pod)] = p.Node.Key()
	}
	for _, u := range plan.Unfit {
		out := unschedulable{Pod: podName(u.Pod), Reasons: []string{}}
		for _, reason := range u.Reasons {
			out.Reasons = append(out.Reasons, reasonText(reason))
		}
		for _, reason := range in.shut {
			out.Reasons = append(out.Reasons, reasonText(reason))
		}
		r.Unschedulable = append(r.Unschedulable, out)
	}
	for _, u := range in.left {
		r.Unschedulable = append(r.Unschedulable, unschedulable{Pod: podName(u.Pod), Reasons: []string{u.Reasons[0].Reason}})
	}
	for _, d := range plan.Disagreements {
		r.Disagreements = append(r.Disagreements, fmt.Sprintf("%s on %s: %s: %s", podName(d.Pod), d.Target, d.Plugin, d.Reason))
	}
}

func reasonText(r solver.PoolReason) string {
	if r.Pool == "" {
		return r.Reason
	}
	return fmt.Sprintf("nodepool %s: %s", r.Pool, r.Reason)
}

func podName(pod *corev1.Pod) string {
	if pod.Namespace == "" || pod.Namespace == metav1.NamespaceDefault {
		return pod.Name
	}
	return pod.Namespace + "/" + pod.Name
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
