package ec2sim

import (
	"crypto/sha256"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	maxBody   = 4 << 20 // bytes of a request
	maxKeys   = 50_000  // members of a form
	maxDepth  = 12      // dots in a member name
	maxMember = 10_000  // highest list index
)

// node is one member of a form: Filter.1.Name=x is the value of the kid Name of
// the kid 1 of the kid Filter. A nil node is an absent member.
type node struct {
	value string
	set   bool
	kids  map[string]*node
}

// form is a decoded query request.
type form struct {
	node
	// fingerprint identifies the request but for its ClientToken.
	fingerprint [sha256.Size]byte
}

// parseForm decodes an x-www-form-urlencoded body. The first value of a member wins.
func parseForm(body string) (*form, *apiError) {
	f := &form{}
	var pairs []string
	for pair := range strings.SplitSeq(body, "&") {
		if pair == "" {
			continue
		}
		if len(pairs) >= maxKeys {
			return nil, badRequest("MalformedQueryString", "The query string has more than %d members", maxKeys)
		}
		rawKey, rawValue, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(rawKey)
		if err != nil {
			return nil, badRequest("MalformedQueryString", "The query string contains a syntax error")
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			return nil, badRequest("MalformedQueryString", "The query string contains a syntax error")
		}
		if bad := f.put(key, value); bad != nil {
			return nil, bad
		}
		if key != "ClientToken" {
			pairs = append(pairs, pair)
		}
	}
	slices.Sort(pairs)
	f.fingerprint = sha256.Sum256([]byte(strings.Join(pairs, "&")))
	return f, nil
}

func (n *node) put(key, value string) *apiError {
	if strings.Count(key, ".") >= maxDepth {
		return badRequest("MalformedQueryString", "The member name is nested too deeply")
	}
	for part := range strings.SplitSeq(key, ".") {
		if part == "" {
			return badRequest("MalformedQueryString", "The member name %q has an empty part", clip(key))
		}
		kid := n.kids[part]
		if kid == nil {
			if n.kids == nil {
				n.kids = make(map[string]*node, 4)
			}
			kid = &node{}
			n.kids[part] = kid
		}
		n = kid
	}
	if !n.set {
		n.value, n.set = value, true
	}
	return nil
}

// at walks down a dotted path; nil when a part is absent.
func (n *node) at(path string) *node {
	for part := range strings.SplitSeq(path, ".") {
		if n == nil {
			return nil
		}
		n = n.kids[part]
	}
	return n
}

// str returns the value at a path, "" when absent.
func (n *node) str(path string) string {
	if n = n.at(path); n == nil {
		return ""
	}
	return n.value
}

func (n *node) has(path string) bool {
	n = n.at(path)
	return n != nil && (n.set || len(n.kids) > 0)
}

// list returns the members Name.1, Name.2, ... in the order of their numbers.
func (n *node) list(path string) []*node {
	n = n.at(path)
	if n == nil {
		return nil
	}
	indexes := make([]int, 0, len(n.kids))
	for key := range n.kids {
		if i, err := strconv.Atoi(key); err == nil && i > 0 && i <= maxMember && strconv.Itoa(i) == key {
			indexes = append(indexes, i)
		}
	}
	slices.Sort(indexes)
	nodes := make([]*node, 0, len(indexes))
	for _, i := range indexes {
		nodes = append(nodes, n.kids[strconv.Itoa(i)])
	}
	return nodes
}

// strs returns the values of a list of scalars.
func (n *node) strs(path string) []string {
	nodes := n.list(path)
	values := make([]string, 0, len(nodes))
	for _, kid := range nodes {
		values = append(values, kid.value)
	}
	return values
}

func (n *node) integer(path string, absent int) (int, *apiError) {
	if !n.has(path) {
		return absent, nil
	}
	v, err := strconv.ParseInt(n.str(path), 10, 32)
	if err != nil {
		return 0, badRequest("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected an integer", clip(n.str(path)), path)
	}
	return int(v), nil
}

func (n *node) float(path string, absent float64) (float64, *apiError) {
	if !n.has(path) {
		return absent, nil
	}
	v, err := strconv.ParseFloat(n.str(path), 64)
	if err != nil || v != v {
		return 0, badRequest("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected a number", clip(n.str(path)), path)
	}
	return v, nil
}

func (n *node) boolean(path string) (bool, *apiError) {
	switch v := n.str(path); strings.ToLower(v) {
	case "":
		return false, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, badRequest("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected a boolean", clip(v), path)
	}
}

// tags reads a list of Key and Value members.
func (n *node) tags(path string) (map[string]string, *apiError) {
	list := n.list(path)
	if len(list) == 0 {
		return nil, nil
	}
	tags := make(map[string]string, len(list))
	for _, t := range list {
		key, value := t.str("Key"), t.str("Value")
		switch _, twice := tags[key]; {
		case key == "":
			return nil, badRequest("InvalidParameterValue", "Tag keys cannot be empty")
		case twice:
			return nil, badRequest("InvalidParameterValue", "Duplicate tag key '%s' specified.", clip(key))
		case len(key) > 128:
			return nil, badRequest("InvalidParameterValue", "Tag key exceeds the maximum length of 128 characters")
		case len(value) > 256:
			return nil, badRequest("InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters")
		case strings.HasPrefix(key, "aws:"):
			return nil, badRequest("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		}
		tags[key] = value
	}
	if len(tags) > 50 {
		return nil, badRequest("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
	}
	return tags, nil
}

// clip shortens what a client sent before it goes into a message.
func clip(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "..."
	}
	return strings.ToValidUTF8(s, "")
}
