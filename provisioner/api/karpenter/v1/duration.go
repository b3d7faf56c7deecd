//go:build !crdschema

package v1

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"time"
)

// Never is the text of a NillableDuration that never elapses.
const Never = "Never"

// clampable texts are durations by their grammar; when time.ParseDuration refuses one, it is too long.
var clampable = regexp.MustCompile(`^([0-9]+(s|m|h))+$`)

// NillableDuration is a duration, or Never. It is encoded exactly as it was written (24h does not come
// back as 24h0m0s), because GitOps tools compare the text. A field with the zero value is left out when
// its object is encoded, so that the API server's default applies; write NeverElapses() for Never.
type NillableDuration struct {
	// Duration is nil for Never.
	Duration *time.Duration
	// Raw is the text as written; it wins over Duration's own form as long as both mean the same.
	Raw string
}

// DurationOf returns d as a NillableDuration.
func DurationOf(d time.Duration) NillableDuration {
	return NillableDuration{Duration: &d}
}

// NeverElapses returns the NillableDuration that is written Never.
func NeverElapses() NillableDuration {
	return NillableDuration{Raw: Never}
}

// ParseNillableDuration reads Never or a Go duration. A duration beyond 292 years, the longest that a
// time.Duration holds, becomes that longest one: a stored object must not become unreadable.
func ParseNillableDuration(text string) (NillableDuration, error) {
	if text == Never {
		return NeverElapses(), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil && clampable.MatchString(text) {
		d, err = math.MaxInt64, nil
	}
	if err != nil {
		return NillableDuration{}, fmt.Errorf("parse duration %q: want %s or a duration such as 720h or 1h30m", text, Never)
	}
	return NillableDuration{Duration: &d, Raw: text}, nil
}

// String returns the text that is encoded.
func (d NillableDuration) String() string {
	if d.Duration == nil {
		return Never
	}
	if d.Raw != "" {
		if parsed, err := ParseNillableDuration(d.Raw); err == nil && parsed.Duration != nil && *parsed.Duration == *d.Duration {
			return d.Raw
		}
	}
	return d.Duration.String()
}

// MarshalJSON implements json.Marshaler.
func (d NillableDuration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.String())
}

// UnmarshalJSON implements json.Unmarshaler. null leaves the value as it is.
func (d *NillableDuration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("decode duration %s: want a string", data)
	}
	parsed, err := ParseNillableDuration(text)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// MarshalText implements encoding.TextMarshaler, for YAML encoders and flags.
func (d NillableDuration) MarshalText() ([]byte, error) {
	return []byte(d.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *NillableDuration) UnmarshalText(text []byte) error {
	parsed, err := ParseNillableDuration(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
