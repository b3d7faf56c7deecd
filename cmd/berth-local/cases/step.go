package cases

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestWait is what an advance step may last in real time.
const longestWait = time.Minute

// step is one thing that happens: exactly one of the first five fields is set, none when the step is not
// supported.
type step struct {
	pending  *podsPending
	settle   bool
	advance  time.Duration
	fault    *ec2Fault
	poolEdit *updateNodePool
	long     bool // it takes longer than real time allows
}

type podsPending struct {
	Step         string   `json:"step"`
	Pods         []string `json:"pods"`
	Concurrently bool     `json:"concurrently"`
}

type advance struct {
	Step string          `json:"step"`
	By   metav1.Duration `json:"by"`
}

type ec2Fault struct {
	Step  string           `json:"step"`
	API   string           `json:"api"`
	Code  string           `json:"code"`
	Match *pools           `json:"match"`
	Count *int             `json:"count"`
	For   *metav1.Duration `json:"for"`
}

// pools are the capacity pools that an ec2Fault is about; empty fields match all.
type pools struct {
	InstanceType string `json:"instanceType"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
}

type updateNodePool struct {
	Step   string              `json:"step"`
	Name   string              `json:"name"`
	Limits corev1.ResourceList `json:"limits"`
	Weight *int32              `json:"weight"`
}

// unsupportedSteps has the reason why a known step cannot be done yet.
var unsupportedSteps = map[string]string{
	"restartController": "the scheduler cannot be killed apart from its cluster",
	"newLeader":         "the scheduler cannot be killed apart from its cluster",
	"advanceTo":         "it needs a simulated clock",
}

func readStep(unsupported *fields, path string, raw json.RawMessage) (step, error) {
	var kind struct {
		Step string `json:"step"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return step{}, fmt.Errorf("read %s: %w", path, err)
	}
	switch kind.Step {
	case "podsPending":
		p := &podsPending{}
		return step{pending: p}, unsupported.decode(path, raw, p)
	case "settle", "nodesRegister": // simulated kubelets register by themselves
		var plain struct {
			Step string `json:"step"`
		}
		return step{settle: true}, unsupported.decode(path, raw, &plain)
	case "advance":
		var a advance
		if err := unsupported.decode(path, raw, &a); err != nil {
			return step{}, err
		}
		if a.By.Duration > longestWait {
			unsupported.add(fmt.Sprintf("%s: advance by %s needs a simulated clock", path, a.By.Duration))
		}
		return step{advance: a.By.Duration, long: a.By.Duration > longestWait}, nil
	case "ec2Fault":
		f := &ec2Fault{}
		if err := unsupported.decode(path, raw, f); err != nil {
			return step{}, err
		}
		if f.Match != nil && (f.API != "CreateFleet" || f.Count != nil) {
			unsupported.add(path + ".match with another api than CreateFleet, or with count")
		}
		return step{fault: f}, nil
	case "updateNodePool":
		u := &updateNodePool{}
		return step{poolEdit: u}, unsupported.decode(path, raw, u)
	default:
		reason := ""
		if why := unsupportedSteps[kind.Step]; why != "" {
			reason = ": " + why
		}
		unsupported.add(fmt.Sprintf("%s: step %s%s", path, kind.Step, reason))
		return step{long: kind.Step == "advanceTo"}, nil
	}
}
