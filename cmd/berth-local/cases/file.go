package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// file is one case as it is written. Fields that only people read are raw.
type file struct {
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Source   json.RawMessage   `json:"source"`
	AlsoSee  json.RawMessage   `json:"alsoSee"`
	Area     json.RawMessage   `json:"area"`
	Given    json.RawMessage   `json:"given"`
	When     []json.RawMessage `json:"when"`
	Observed json.RawMessage   `json:"observed"`
	Expect   json.RawMessage   `json:"expect"`
	Why      json.RawMessage   `json:"why"`
}

// given is the cluster before the first step.
type given struct {
	NodePools     []pool            `json:"nodePools"`
	NodeClass     class             `json:"nodeClass"`
	InstanceTypes []json.RawMessage `json:"instanceTypes"` // instanceType, or the bare name of a real one
	Nodes         json.RawMessage   `json:"nodes"`         // list of node
	DaemonSets    []podSpec         `json:"daemonSets"`
	Pods          []podSpec         `json:"pods"`
}

type pool struct {
	Name                   string              `json:"name"`
	Weight                 *int32              `json:"weight"`
	Labels                 map[string]string   `json:"labels"`
	Taints                 []corev1.Taint      `json:"taints"`
	Requirements           []requirement       `json:"requirements"`
	Limits                 corev1.ResourceList `json:"limits"`
	Disruption             map[string]any      `json:"disruption"`
	ExpireAfter            string              `json:"expireAfter"`
	TerminationGracePeriod string              `json:"terminationGracePeriod"`
}

type requirement struct {
	Key       string   `json:"key"`
	Operator  string   `json:"operator"`
	Values    []string `json:"values"`
	MinValues *int     `json:"minValues"`
}

type class struct {
	Subnets []subnet `json:"subnets"`
}

type subnet struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
}

type instanceType struct {
	Name        string              `json:"name"`
	Arch        string              `json:"arch"` // amd64 (default) or arm64
	Allocatable corev1.ResourceList `json:"allocatable"`
	Price       price               `json:"price"`
}

// price is in USD per hour; 0 means that there is no such offering.
type price struct {
	OnDemand float64 `json:"onDemand"`
	Spot     float64 `json:"spot"`
}

type node struct {
	Name         string `json:"name"`
	Zone         string `json:"zone"`
	InstanceType string `json:"instanceType"`
	NodePool     string `json:"nodePool"`
	CapacityType string `json:"capacityType"`
}

// podSpec is a pod, several equal ones, or what the pods of a DaemonSet look like.
type podSpec struct {
	Name              string              `json:"name"`
	Count             *int                `json:"count"`
	Node              string              `json:"node"`
	Requests          corev1.ResourceList `json:"requests"`
	Labels            map[string]string   `json:"labels"`
	Annotations       map[string]string   `json:"annotations"`
	NodeSelector      map[string]string   `json:"nodeSelector"`
	Tolerations       []corev1.Toleration `json:"tolerations"`
	NodeAffinityTerms [][]requirement     `json:"nodeAffinityTerms"` // the terms are alternatives
	TopologySpread    []spread            `json:"topologySpread"`
	PodAntiAffinity   []affinity          `json:"podAntiAffinity"`
	PodAffinity       []affinity          `json:"podAffinity"`
	HostPorts         []hostPort          `json:"hostPorts"`
	RestartPolicy     string              `json:"restartPolicy"`
}

type spread struct {
	Key               string            `json:"key"`
	MaxSkew           int32             `json:"maxSkew"`
	MinDomains        *int32            `json:"minDomains"`
	WhenUnsatisfiable string            `json:"whenUnsatisfiable"`
	MatchLabels       map[string]string `json:"matchLabels"`
	MatchLabelKeys    []string          `json:"matchLabelKeys"`
}

type affinity struct {
	Required    bool              `json:"required"`
	Key         string            `json:"key"`
	MatchLabels map[string]string `json:"matchLabels"`
}

type hostPort struct {
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

// names returns the names of the pods that the entry stands for.
func (p podSpec) names() []string {
	if p.Count == nil {
		return []string{p.Name}
	}
	names := make([]string, *p.Count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", p.Name, i)
	}
	return names
}

// scenario is a case ready to run.
type scenario struct {
	ID, Title string
	given     given
	types     []instanceType
	realTypes []string // instance types of which only the name is given
	nodes     []node
	steps     []step
	expect    expect
	variants  []string // names of the variants, which are told in words only
	// blocking names what keeps the case from being run; unchecked what would not be judged.
	blocking, unchecked []string
	// simulated says that the case takes too long for real time.
	simulated bool
}

// parse reads a case file. Fields that are not supported are collected in the scenario; an error means
// that the text is not a case at all.
func parse(raw []byte) (*scenario, error) {
	text, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	var f file
	var blocking, unchecked fields
	if err := blocking.decode("", text, &f); err != nil {
		return nil, err
	}
	if f.ID == "" || len(f.Given) == 0 || len(f.When) == 0 || len(f.Expect) == 0 {
		return nil, errors.New("a case has id, given, when and expect; at least one of them is missing")
	}
	s := &scenario{ID: f.ID, Title: f.Title}
	if err := blocking.decode("given", f.Given, &s.given); err != nil {
		return nil, err
	}
	if err := s.readTypes(&blocking); err != nil {
		return nil, err
	}
	if err := s.readNodes(&blocking); err != nil {
		return nil, err
	}
	for i, raw := range f.When {
		st, err := readStep(&blocking, fmt.Sprintf("when[%d]", i), raw)
		if err != nil {
			return nil, err
		}
		s.steps = append(s.steps, st)
		s.simulated = s.simulated || st.long
	}
	if s.expect, err = readExpect(&unchecked, "expect", f.Expect); err != nil {
		return nil, err
	}
	for _, v := range s.expect.Variants {
		s.variants = append(s.variants, v.Name)
	}
	if s.expect.empty() && len(unchecked) == 0 && len(s.variants) == 0 {
		return nil, errors.New("expect demands nothing")
	}
	s.checkForms(&blocking)
	s.blocking, s.unchecked = blocking, unchecked
	return s, nil
}

func (s *scenario) readTypes(unsupported *fields) error {
	for i, raw := range s.given.InstanceTypes {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			s.realTypes = append(s.realTypes, name)
			continue
		}
		var t instanceType
		if err := unsupported.decode(fmt.Sprintf("given.instanceTypes[%d]", i), raw, &t); err != nil {
			return err
		}
		s.types = append(s.types, t)
	}
	return nil
}

func (s *scenario) readNodes(unsupported *fields) error {
	raw := s.given.Nodes
	if len(raw) == 0 {
		return nil
	}
	if strings.HasPrefix(string(raw), "{") {
		unsupported.add("given.nodes as a count")
		return nil
	}
	return unsupported.decode("given.nodes", raw, &s.nodes)
}

// checkForms names forms of known fields that the runner cannot bring about.
func (s *scenario) checkForms(unsupported *fields) {
	for i, d := range s.given.DaemonSets {
		if d.Count != nil || d.Node != "" {
			unsupported.add(fmt.Sprintf("given.daemonSets[%d].count and node", i))
		}
	}
	known := map[string]bool{}
	for i, n := range s.nodes {
		known[n.Name] = true
		if n.NodePool == "" || n.InstanceType == "" {
			unsupported.add(fmt.Sprintf("given.nodes[%d] without nodePool and instanceType", i))
		}
	}
	for i, p := range s.given.Pods {
		if p.Node != "" && !known[p.Node] {
			unsupported.add(fmt.Sprintf("given.pods[%d].node %s, which given.nodes does not have", i, p.Node))
		}
		for _, a := range append(append([]affinity{}, p.PodAntiAffinity...), p.PodAffinity...) {
			if !a.Required {
				unsupported.add(fmt.Sprintf("given.pods[%d] preferred pod affinity", i))
			}
		}
	}
}

// fields collects the paths of what a case says and this package does not support.
type fields []string

func (f *fields) add(path string) { *f = append(*f, path) }

// decode fills out and collects unknown fields and values of another form under their path.
func (f *fields) decode(path string, raw []byte, out any) error {
	strict, err := kjson.UnmarshalStrict(raw, out)
	if mismatch := (*json.UnmarshalTypeError)(nil); errors.As(err, &mismatch) {
		f.add(fmt.Sprintf("%s as %s", join(path, mismatch.Field), mismatch.Value))
		return nil
	}
	if err != nil && strings.Contains(err.Error(), "cannot unmarshal") {
		f.add(fmt.Sprintf("%s: %s", join(path, ""), err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", join(path, ""), err)
	}
	for _, e := range strict {
		if field, ok := errors.AsType[kjson.FieldError](e); ok {
			f.add(join(path, field.FieldPath()))
		} else {
			f.add(join(path, e.Error()))
		}
	}
	return nil
}

func join(path, field string) string {
	switch {
	case path == "" && field == "":
		return "the case"
	case path == "":
		return field
	case field == "":
		return path
	case strings.HasPrefix(field, "["):
		return path + field
	default:
		return path + "." + field
	}
}
