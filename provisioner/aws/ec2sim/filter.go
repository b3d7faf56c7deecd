package ec2sim

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// filterTable names the filters of an operation and what they look at.
type filterTable[T any] map[string]func(T) []string

const maxFilterValues = 200 // of all filters of a request

// compile reads Filter.N and gives the function that tells whether a thing
// passes: different filters AND, values OR. tags may be nil.
func (t filterTable[T]) compile(f *form, tags func(T) map[string]string) (func(T) bool, *apiError) {
	var tests []func(T) bool
	values := 0
	for _, n := range f.list("Filter") {
		name, patterns := n.str("Name"), n.strs("Value")
		values += len(patterns)
		key, isTag := strings.CutPrefix(name, "tag:")
		get, known := t[name]
		switch {
		case name == "":
			return nil, missing("Filter.Name")
		case len(patterns) == 0:
			return nil, badRequest("InvalidParameterValue", "The filter '%s' has no values", clip(name))
		case values > maxFilterValues:
			return nil, badRequest("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues)
		case isTag && tags != nil:
			tests = append(tests, func(x T) bool {
				v, has := tags(x)[key]
				return has && matchAny(patterns, v)
			})
		case name == "tag-key" && tags != nil:
			tests = append(tests, func(x T) bool {
				for k := range tags(x) {
					if matchAny(patterns, k) {
						return true
					}
				}
				return false
			})
		case known:
			tests = append(tests, func(x T) bool {
				return slices.ContainsFunc(get(x), func(v string) bool { return matchAny(patterns, v) })
			})
		default:
			return nil, badRequest("InvalidParameterValue", "The filter '%s' is invalid", clip(name))
		}
	}
	return func(x T) bool {
		for _, test := range tests {
			if !test(x) {
				return false
			}
		}
		return true
	}, nil
}

func matchAny(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return wildcard(p, value) })
}

// wildcard matches with * for any text, ? for one character and \ to take the
// next character as it is. Linear in practice: only the last star is retried.
func wildcard(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0
	for i < len(s) {
		literal := p
		if p < len(pattern) && pattern[p] == '\\' && p+1 < len(pattern) {
			literal = p + 1
		}
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && literal == p && pattern[p] == '?':
			p++
			i += runeLen(s[i:])
		case literal < len(pattern) && pattern[literal] == s[i]:
			p = literal + 1
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

// paging is how an operation pages.
type paging struct {
	min, max int // allowed MaxResults
	absent   int // page size when MaxResults is absent, 0 for everything
}

// window finds the page that a request asks for in a list of total things, and
// the token of the next one, "" at the end.
func (p paging) window(f *form, total int) (from, to int, next string, bad *apiError) {
	size, bad := f.integer("MaxResults", p.absent)
	if bad != nil {
		return 0, 0, "", bad
	}
	if f.has("MaxResults") && (size < p.min || size > p.max) {
		return 0, 0, "", badRequest("InvalidParameterValue",
			"Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", size, p.min, p.max)
	}
	mark := f.queryMark()
	if token := f.str("NextToken"); token != "" {
		if from, bad = parseToken(token, mark); bad != nil {
			return 0, 0, "", bad
		}
		from = min(from, total)
	}
	if size <= 0 || from+size >= total {
		return from, total, "", nil
	}
	return from, from + size, makeToken(from+size, mark), nil
}

func makeToken(offset int, mark string) string {
	return base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(offset) + "." + mark))
}

func parseToken(token, mark string) (int, *apiError) {
	bad := badRequest("InvalidNextToken", "The specified NextToken is not valid.")
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return 0, bad
	}
	number, got, ok := strings.Cut(string(raw), ".")
	offset, err := strconv.Atoi(number)
	if !ok || err != nil || offset < 0 || got != mark {
		return 0, bad
	}
	return offset, nil
}

// queryMark identifies the query that a token belongs to: a token may not be
// used with other filters.
func (f *form) queryMark() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s|", f.str("Action"))
	for _, n := range f.list("Filter") {
		fmt.Fprintf(h, "%q=%q|", n.str("Name"), n.strs("Value"))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
