package ec2sim

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Script is what happens to the simulated account by itself.
type Script struct {
	Steps []Step `json:"steps"`
}

// Step is one happening. Exactly one of the pointers is set.
type Step struct {
	At metav1.Duration `json:"at"` // after the start of the server

	Fail     *FailStep     `json:"fail,omitempty"`
	Capacity *CapacityStep `json:"capacity,omitempty"`
	Latency  *LatencyStep  `json:"latency,omitempty"`
	TakeBack *TakeBackStep `json:"takeBack,omitempty"`
}

// FailStep makes the next calls of an action fail; see Server.FailNext.
type FailStep struct {
	Action string `json:"action"`
	Code   string `json:"code"`
	Count  int    `json:"count"`
}

// CapacityStep makes launches fail in the matching pools; see Server.SetLaunchError.
type CapacityStep struct {
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	Code         string `json:"code"` // empty ends it
}

// LatencyStep slows an action down; see Server.SetLatency.
type LatencyStep struct {
	Action string          `json:"action"`
	Delay  metav1.Duration `json:"delay"`
}

// TakeBackStep ends every running instance that matches.
type TakeBackStep struct {
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
}

// ParseScript reads a script from YAML; unknown fields are errors.
func ParseScript(raw []byte) (Script, error) {
	var s Script
	if err := yaml.UnmarshalStrict(raw, &s); err != nil {
		return Script{}, fmt.Errorf("decode ec2 script: %w", err)
	}
	if err := s.validate(); err != nil {
		return Script{}, err
	}
	return s, nil
}

func (s Script) validate() error {
	var errs []error
	for i, step := range s.Steps {
		set := 0
		for _, is := range []bool{step.Fail != nil, step.Capacity != nil, step.Latency != nil, step.TakeBack != nil} {
			if is {
				set++
			}
		}
		switch {
		case set != 1:
			errs = append(errs, fmt.Errorf("script: steps[%d] has %d of fail, capacity, latency and takeBack; name exactly one", i, set))
		case step.At.Duration < 0:
			errs = append(errs, fmt.Errorf("script: steps[%d].at %s is negative", i, step.At.Duration))
		case step.Fail != nil && (step.Fail.Action == "" || step.Fail.Code == ""):
			errs = append(errs, fmt.Errorf("script: steps[%d].fail needs action and code", i))
		case step.Latency != nil && (step.Latency.Action == "" || step.Latency.Delay.Duration < 0):
			errs = append(errs, fmt.Errorf("script: steps[%d].latency needs an action and a delay that is not negative", i))
		}
	}
	return errors.Join(errs...)
}

// play does one step. The caller holds mu.
func (s *Server) play(step Step) {
	switch {
	case step.Fail != nil:
		s.faults.add(fault{action: step.Fail.Action, code: step.Fail.Code, count: step.Fail.Count})
	case step.Capacity != nil:
		c := step.Capacity
		s.pools.setError(poolPattern{c.InstanceType, c.Zone, c.CapacityType}, c.Code)
	case step.Latency != nil:
		s.faults.setLatency(step.Latency.Action, step.Latency.Delay.Duration)
	case step.TakeBack != nil:
		p := poolPattern{step.TakeBack.InstanceType, step.TakeBack.Zone, step.TakeBack.CapacityType}
		for _, i := range s.order {
			if i.alive() && p.matches(i.pool) {
				s.end(i, "Server.SpotInstanceTermination: Instance terminated by EC2")
			}
		}
	}
}
