package message

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Kind is what is going to happen to an instance. The words are label values of metrics.
type Kind string

// The kinds of messages.
const (
	SpotInterrupted                Kind = "spot_interrupted"
	RebalanceRecommendation        Kind = "rebalance_recommendation"
	ScheduledChange                Kind = "scheduled_change"
	InstanceStopped                Kind = "instance_stopped"
	InstanceTerminated             Kind = "instance_terminated"
	CapacityReservationInterrupted Kind = "capacity_reservation_interrupted"
	// NoOp is everything that asks for nothing.
	NoOp Kind = "no_op"
)

// Message is one message about instances.
type Message struct {
	Kind Kind
	// Instances are EC2 instance IDs, without duplicates, in the order of the message.
	Instances []string
	// Time is when EventBridge sent it, zero when the message does not say.
	Time time.Time
}

// envelope is the outside of an EventBridge event. Fields that decide nothing are not read, so that their
// form does not matter: `resources` is a list in some documents and a text in others.
type envelope struct {
	Version    string          `json:"version"`
	Source     string          `json:"source"`
	DetailType string          `json:"detail-type"`
	Time       string          `json:"time"`
	Detail     json.RawMessage `json:"detail"`
}

type detail struct {
	InstanceID       string `json:"instance-id"`
	State            string `json:"state"`
	Service          string `json:"service"`
	Category         string `json:"eventTypeCategory"`
	AffectedEntities []struct {
		Value string `json:"entityValue"`
	} `json:"affectedEntities"`
}

// kinds are the events that are read; the key is version, source and detail-type.
var kinds = map[[3]string]func(d detail) (Kind, []string){
	{"0", "aws.ec2", "EC2 Spot Instance Interruption Warning"}:                 always(SpotInterrupted),
	{"0", "aws.ec2", "EC2 Instance Rebalance Recommendation"}:                  always(RebalanceRecommendation),
	{"0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"}: always(CapacityReservationInterrupted),
	{"0", "aws.ec2", "EC2 Instance State-change Notification"}:                 stateChange,
	{"0", "aws.health", "AWS Health Event"}:                                    health,
}

func always(kind Kind) func(detail) (Kind, []string) {
	return func(d detail) (Kind, []string) { return kind, []string{d.InstanceID} }
}

func stateChange(d detail) (Kind, []string) {
	switch strings.ToLower(d.State) {
	case "stopping", "stopped":
		return InstanceStopped, []string{d.InstanceID}
	case "shutting-down", "terminated":
		return InstanceTerminated, []string{d.InstanceID}
	default:
		return NoOp, nil
	}
}

func health(d detail) (Kind, []string) {
	if d.Service != "EC2" || d.Category != "scheduledChange" {
		return NoOp, nil
	}
	ids := make([]string, len(d.AffectedEntities))
	for i, e := range d.AffectedEntities {
		ids[i] = e.Value
	}
	return ScheduledChange, ids
}

// Parse reads the body of a queue message. Events that ask for nothing, and JSON that is no event, are
// NoOp; an error says that the body is not what EventBridge sends.
func Parse(body string) (Message, error) {
	if body == "" {
		return Message{Kind: NoOp}, nil
	}
	var e envelope
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return Message{}, fmt.Errorf("read message: %w", err)
	}
	read, known := kinds[[3]string{e.Version, e.Source, e.DetailType}]
	if !known {
		return Message{Kind: NoOp, Time: timeOf(e.Time)}, nil
	}
	var d detail
	if len(e.Detail) > 0 {
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			return Message{}, fmt.Errorf("read detail of %q: %w", e.DetailType, err)
		}
	}
	kind, ids := read(d)
	out := Message{Kind: kind, Time: timeOf(e.Time)}
	seen := map[string]bool{}
	for _, id := range ids {
		// Health events of EC2 name other things, too: hosts, volumes.
		if strings.HasPrefix(id, "i-") && !seen[id] {
			seen[id] = true
			out.Instances = append(out.Instances, id)
		}
	}
	return out, nil
}

// timeOf is zero for times that cannot be read: they serve a metric only.
func timeOf(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
