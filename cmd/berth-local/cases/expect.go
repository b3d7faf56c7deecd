package cases

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// expect is what must hold at the end; nil and empty fields demand nothing.
type expect struct {
	Launches         *launches            `json:"launches"`
	LaunchesOf       map[string]bound     `json:"launchesOf"` // by instance type
	PodsPerZone      map[string]int       `json:"podsPerZone"`
	Pending          json.RawMessage      `json:"pending"` // names, a number, or pendingCount
	Bind             map[string]binding   `json:"bind"`
	Disrupt          []json.RawMessage    `json:"disrupt"` // only the empty list is supported
	Events           []mention            `json:"events"`
	Warnings         []mention            `json:"warnings"`
	EC2Calls         map[string]callBound `json:"ec2Calls"` // by action
	NodeClaims       *claimCounts         `json:"nodeClaims"`
	EC2Instances     *instanceCounts      `json:"ec2Instances"`
	AfterLimitChange *limitChange         `json:"afterLimitChange"`
	OneOf            []json.RawMessage    `json:"oneOf"` // of expect
	Variants         []variant            `json:"-"`

	pendingNames []string
	pendingCount *int
	pendingFirst *int // unbound pods after the first settle step
	oneOf        []expect
	noDisruption bool
}

type variant struct {
	Name string `json:"name"`
}

type bound struct {
	Count *int   `json:"count"`
	Min   *int   `json:"min"`
	Max   *int   `json:"max"`
	Note  string `json:"note"`
}

// String says what is wanted.
func (b bound) String() string {
	switch {
	case b.Count != nil:
		return fmt.Sprint(*b.Count)
	case b.Min != nil && b.Max != nil:
		return fmt.Sprintf("%d to %d", *b.Min, *b.Max)
	case b.Min != nil:
		return fmt.Sprintf("at least %d", *b.Min)
	case b.Max != nil:
		return fmt.Sprintf("at most %d", *b.Max)
	default:
		return "any number"
	}
}

func (b bound) holds(n int) bool {
	return (b.Count == nil || n == *b.Count) && (b.Min == nil || n >= *b.Min) && (b.Max == nil || n <= *b.Max)
}

// launches bounds the NodeClaims that were created and sent to the cloud.
type launches struct {
	bound
	PerZone        map[string]int `json:"perZone"`
	ZoneIn         []string       `json:"zoneIn"`
	NodePool       string         `json:"nodePool"`
	CapacityType   string         `json:"capacityType"`
	InstanceTypeIn []string       `json:"instanceTypeIn"`
	WithinSeconds  *float64       `json:"withinSeconds"` // after the pods became pending
}

type binding struct {
	Node         string `json:"node"`
	NewNode      *bool  `json:"newNode"`
	NodePool     string `json:"nodePool"`
	Zone         string `json:"zone"`
	InstanceType string `json:"instanceType"`
}

// mention wants words in what was said about an object, in its events or its conditions.
type mention struct {
	Object   string   `json:"object"` // Kind/name
	Mentions []string `json:"mentions"`
	About    []string `json:"about"`
	Any      bool     `json:"any"` // some text is enough
	Max      *int     `json:"max"` // events, repetitions included
	MinCount *int     `json:"minCount"`
}

type callBound struct {
	Min *int `json:"min"`
	Max *int `json:"max"`
}

type pendingCount struct {
	Count            *int   `json:"count"`
	AfterFirstSettle *int   `json:"afterFirstSettle"`
	Reason           string `json:"reason"` // for people
}

type claimCounts struct {
	Count             *int        `json:"count"`
	AllHaveProviderID bool        `json:"allHaveProviderID"`
	AfterFirstSettle  *int        `json:"afterFirstSettle"`
	Never             *neverAbove `json:"never"`
}

type neverAbove struct {
	Above int    `json:"above"`
	Until string `json:"until"` // "limit changed", or empty for the whole case
}

type instanceCounts struct {
	Running      *int `json:"running"`
	PerNodeClaim *int `json:"perNodeClaim"`
}

type limitChange struct {
	NodeClaims    int     `json:"nodeClaims"`
	WithinSeconds float64 `json:"withinSeconds"`
}

// empty tells whether nothing is demanded that can be judged.
func (e *expect) empty() bool {
	rest := *e
	rest.Variants, rest.OneOf, rest.Disrupt = nil, nil, nil
	return reflect.DeepEqual(rest, expect{})
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// readExpect reads expectations; what cannot be judged is collected.
func readExpect(unsupported *fields, path string, raw json.RawMessage) (expect, error) {
	var e expect
	raw, variants := takeVariants(raw)
	if err := unsupported.decode(path, raw, &e); err != nil {
		return e, err
	}
	e.Variants = variants
	if err := e.readPending(unsupported, path); err != nil {
		return e, err
	}
	e.noDisruption = e.Disrupt != nil && len(e.Disrupt) == 0
	if len(e.Disrupt) > 0 {
		unsupported.add(path + ".disrupt with entries")
	}
	if c := e.NodeClaims; c != nil && c.Never != nil && c.Never.Until != "" && c.Never.Until != "limit changed" {
		unsupported.add(path + ".nodeClaims.never.until " + c.Never.Until)
	}
	for i, one := range e.OneOf {
		var inner fields
		place := fmt.Sprintf("%s.oneOf[%d]", path, i)
		if one[0] != '{' {
			unsupported.add(place + " in words")
			continue
		}
		alternative, err := readExpect(&inner, place, one)
		if err != nil {
			return e, err
		}
		*unsupported = append(*unsupported, inner...)
		e.oneOf = append(e.oneOf, alternative)
	}
	return e, nil
}

// takeVariants cuts the variants out of expectations: they are scenarios of their own.
func takeVariants(raw json.RawMessage) (json.RawMessage, []variant) {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all["variants"] == nil {
		return raw, nil
	}
	var variants []variant
	if json.Unmarshal(all["variants"], &variants) != nil {
		return raw, nil
	}
	delete(all, "variants")
	rest, err := json.Marshal(all)
	if err != nil {
		return raw, nil
	}
	return rest, variants
}

func (e *expect) readPending(unsupported *fields, path string) error {
	if len(e.Pending) == 0 {
		return nil
	}
	switch e.Pending[0] {
	case '[':
		e.pendingNames = []string{}
		return unsupported.decode(path+".pending", e.Pending, &e.pendingNames)
	case '{':
		var c pendingCount
		err := unsupported.decode(path+".pending", e.Pending, &c)
		e.pendingCount, e.pendingFirst = c.Count, c.AfterFirstSettle
		return err
	default:
		return unsupported.decode(path+".pending", e.Pending, &e.pendingCount)
	}
}
