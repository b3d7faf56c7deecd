package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what a message announces. The strings are label values of metrics and reasons of disruption.
type Kind string

// Kinds that arrive as messages.
const (
	SpotInterrupted                Kind = "spot_interrupted"
	RebalanceRecommendation        Kind = "rebalance_recommendation"
	ScheduledChange                Kind = "scheduled_change"
	InstanceStopped                Kind = "instance_stopped"
	InstanceTerminated             Kind = "instance_terminated"
	CapacityReservationInterrupted Kind = "capacity_reservation_interrupted"
	NoOp                           Kind = "no_op" // understood, and of no concern to us
)

// Kinds that come from polling the status of instances, never from Parse.
const (
	InstanceStatus Kind = "instance_status"
	SystemStatus   Kind = "system_status"
	EventStatus    Kind = "event_status"
)

// MaxBytes is the size of the largest body that is read: SQS takes no larger message.
const MaxBytes = 1 << 20

// Message is one event, reduced to what decisions need.
type Message struct {
	Kind Kind
	// Instances are the EC2 ids the event is about, each once, in the order of the event. Empty for NoOp.
	Instances []string
	// ID is EventBridge's id of the event; copies of one event share it. May be empty.
	ID string
	// Time is when EventBridge took the event in; zero when missing or unreadable, which stops no action.
	Time time.Time
	// Deadline is the announced end of the instance, where the event states one; else zero.
	Deadline time.Time
}

// ErrTooLarge is returned for bodies above MaxBytes.
var ErrTooLarge = errors.New("body is too large")

type key struct{ version, source, detailType string }

var parsers = map[key]func(json.RawMessage) (Message, error){
	{"0", "aws.ec2", "EC2 Spot Instance Interruption Warning"}:                 ofInstance(SpotInterrupted),
	{"0", "aws.ec2", "EC2 Instance Rebalance Recommendation"}:                  ofInstance(RebalanceRecommendation),
	{"0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"}: ofInstance(CapacityReservationInterrupted),
	{"0", "aws.ec2", "EC2 Instance State-change Notification"}:                 stateChange,
	{"0", "aws.health", "AWS Health Event"}:                                    health,
}

// Parse reads the body of one SQS message: a raw EventBridge event.
//
// Events of other kinds, versions and sources, JSON objects without an envelope and empty bodies are
// NoOp. An error means that the body can never be acted on: not a JSON object, too large, an envelope
// field of the wrong type, or an event of a known kind that names no instance. Fields that no decision
// needs (resources, account, region, all unknown ones) may have any type.
func Parse(body string) (Message, error) {
	if len(body) > MaxBytes {
		return Message{}, fmt.Errorf("%d bytes, at most %d are read: %w", len(body), MaxBytes, ErrTooLarge)
	}
	if strings.TrimSpace(body) == "" {
		return Message{Kind: NoOp}, nil
	}
	envelope, err := object("body", json.RawMessage(body))
	if err != nil {
		return Message{}, err
	}
	var k key
	for _, field := range []struct {
		name string
		into *string
	}{{"version", &k.version}, {"source", &k.source}, {"detail-type", &k.detailType}} {
		if *field.into, err = text(envelope, field.name); err != nil {
			return Message{}, err
		}
	}
	parse, known := parsers[k]
	if !known {
		parse = func(json.RawMessage) (Message, error) { return Message{Kind: NoOp}, nil }
	}
	m, err := parse(envelope["detail"])
	if err != nil {
		return Message{}, fmt.Errorf("%s: %w", k.detailType, err)
	}
	m.ID, _ = text(envelope, "id") // only names the event in logs
	m.Time = moment(envelope, "time")
	return m, nil
}

func ofInstance(kind Kind) func(json.RawMessage) (Message, error) {
	return func(raw json.RawMessage) (Message, error) {
		detail, id, err := instance(raw)
		if err != nil {
			return Message{}, err
		}
		return Message{Kind: kind, Instances: []string{id}, Deadline: moment(detail, "instance-termination-time")}, nil
	}
}

func stateChange(raw json.RawMessage) (Message, error) {
	detail, id, err := instance(raw)
	if err != nil {
		return Message{}, err
	}
	state, err := text(detail, "state")
	if err != nil {
		return Message{}, err
	}
	switch strings.ToLower(state) {
	case "stopping", "stopped":
		return Message{Kind: InstanceStopped, Instances: []string{id}}, nil
	case "shutting-down", "terminated":
		return Message{Kind: InstanceTerminated, Instances: []string{id}}, nil
	default:
		return Message{Kind: NoOp}, nil
	}
}

func health(raw json.RawMessage) (Message, error) {
	detail, err := object("detail", raw)
	if err != nil {
		return Message{}, err
	}
	service, err := text(detail, "service")
	if err != nil {
		return Message{}, err
	}
	category, err := text(detail, "eventTypeCategory")
	if err != nil {
		return Message{}, err
	}
	if service != "EC2" || category != "scheduledChange" {
		return Message{Kind: NoOp}, nil
	}
	var entities []json.RawMessage
	if affected := detail["affectedEntities"]; affected != nil {
		if err := json.Unmarshal(affected, &entities); err != nil {
			return Message{}, fmt.Errorf("detail.affectedEntities is not a list: %w", err)
		}
	}
	m := Message{Kind: ScheduledChange}
	seen := map[string]bool{}
	for _, raw := range entities {
		// Entities may also be volumes, and one bad entry must not cost the others their drain.
		entity, err := object("entity", raw)
		if err != nil {
			continue
		}
		id, err := text(entity, "entityValue")
		if err != nil || !isInstance(id) || seen[id] {
			continue
		}
		seen[id] = true
		m.Instances = append(m.Instances, id)
	}
	if len(m.Instances) == 0 {
		return Message{Kind: NoOp}, nil
	}
	return m, nil
}

func instance(raw json.RawMessage) (detail map[string]json.RawMessage, id string, err error) {
	if detail, err = object("detail", raw); err != nil {
		return nil, "", err
	}
	if id, err = text(detail, "instance-id"); err != nil {
		return nil, "", err
	}
	if !isInstance(id) {
		return nil, "", fmt.Errorf("detail.instance-id %q is no instance id", shorten(id))
	}
	return detail, id, nil
}

// isInstance holds for i- and 8 to 17 lower-case hexadecimal digits: the old and new lengths, and any between.
func isInstance(id string) bool {
	digits, ok := strings.CutPrefix(id, "i-")
	return ok && len(digits) >= 8 && len(digits) <= 17 && strings.Trim(digits, "0123456789abcdef") == ""
}

// object decodes a JSON object by exact key: struct decoding would accept keys of any case.
func object(what string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("%s is not a JSON object: %q", what, shorten(string(raw)))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("decode %s: %w", what, err)
	}
	return fields, nil
}

// text returns a string field, "" when it is absent or null.
func text(fields map[string]json.RawMessage, name string) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%s is not a string: %q", name, shorten(string(raw)))
	}
	return s, nil
}

func moment(fields map[string]json.RawMessage, name string) time.Time {
	s, err := text(fields, name)
	if err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// shorten keeps what strangers sent to the queue out of logs, but for its beginning.
func shorten(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}

// Kinds lists every kind, for closed sets of label values.
func Kinds() []Kind { return slices.Clone(kinds) }

var kinds = []Kind{
	SpotInterrupted, RebalanceRecommendation, ScheduledChange, InstanceStopped, InstanceTerminated, CapacityReservationInterrupted, NoOp,
	InstanceStatus, SystemStatus, EventStatus,
}
