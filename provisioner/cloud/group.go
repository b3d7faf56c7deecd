package cloud

import (
	"encoding/json"
	"fmt"
	"slices"
)

// GroupRef is the identity of a launch as it stands in the launch-group annotation of every member.
type GroupRef struct {
	ID string `json:"id"`
	// Attempt grows by one when the request changes; at least 1.
	Attempt int `json:"attempt"`
	// Members are the names of the claims, in the order in which instances are mapped to them.
	Members []string `json:"members"`
}

// Encode returns the annotation's text.
func (g GroupRef) Encode() string {
	raw, err := json.Marshal(g)
	if err != nil {
		return "" // strings and integers always encode
	}
	return string(raw)
}

// ParseGroup reads the annotation of the named claim. The error says what is wrong with it.
func ParseGroup(text, claim string) (GroupRef, error) {
	var g GroupRef
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		return g, fmt.Errorf("parse launch group %q: %w", text, err)
	}
	switch {
	case g.ID == "":
		return g, fmt.Errorf("launch group %q has no id", text)
	case g.Attempt < 1:
		return g, fmt.Errorf("launch group %q has attempt %d; it starts at 1", text, g.Attempt)
	case !slices.Contains(g.Members, claim):
		return g, fmt.Errorf("launch group %q does not list its member %s", text, claim)
	}
	return g, nil
}
