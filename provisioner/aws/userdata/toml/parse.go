package toml

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that hostile input cannot exhaust the stack.
const maxDepth = 64

// Parse reads a document. Errors name the line.
func Parse(text string) (Table, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("the text is not UTF-8")
	}
	p := &parser{rest: strings.ReplaceAll(text, "\r\n", "\n"), line: 1, closed: map[string]bool{}}
	root := Table{}
	current, path := root, ""
	for {
		p.skip(true)
		if p.rest == "" {
			return root, nil
		}
		var err error
		if strings.HasPrefix(p.rest, "[") {
			current, path, err = p.header(root)
		} else {
			err = p.pair(current, path)
		}
		if err == nil {
			err = p.endOfLine()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
}

type parser struct {
	rest   string
	line   int
	depth  int
	closed map[string]bool // paths of tables that may not be opened again
}

// skip passes over blanks and, with newlines, over lines and comments.
func (p *parser) skip(newlines bool) {
	for p.rest != "" {
		switch c := p.rest[0]; {
		case c == ' ' || c == '\t':
			p.rest = p.rest[1:]
		case c == '\n' && newlines:
			p.line++
			p.rest = p.rest[1:]
		case c == '#' && newlines:
			p.comment()
		default:
			return
		}
	}
}

func (p *parser) comment() {
	if i := strings.IndexByte(p.rest, '\n'); i >= 0 {
		p.rest = p.rest[i:]
	} else {
		p.rest = ""
	}
}

func (p *parser) endOfLine() error {
	p.skip(false)
	if strings.HasPrefix(p.rest, "#") {
		p.comment()
	}
	if p.rest != "" && p.rest[0] != '\n' {
		return fmt.Errorf("unexpected %q", clip(p.rest))
	}
	return nil
}

func (p *parser) take(token string) bool {
	if strings.HasPrefix(p.rest, token) {
		p.rest = p.rest[len(token):]
		return true
	}
	return false
}

// header reads [a.b] or [[a.b]] and returns the table that it opens.
func (p *parser) header(root Table) (Table, string, error) {
	p.take("[")
	array := p.take("[")
	keys, err := p.keys()
	if err != nil {
		return nil, "", err
	}
	if !p.take("]") || (array && !p.take("]")) {
		return nil, "", errors.New("table header is not closed")
	}
	parent, err := descend(root, keys[:len(keys)-1])
	if err != nil {
		return nil, "", err
	}
	last, path := keys[len(keys)-1], strings.Join(keys, "\x00")
	if array {
		list, ok := parent[last].([]any)
		if parent[last] != nil && !ok {
			return nil, "", fmt.Errorf("%s is not an array of tables", last)
		}
		made := Table{}
		parent[last] = append(list, made)
		return made, path + "\x00" + strconv.Itoa(len(list)), nil
	}
	if p.closed[path] {
		return nil, "", fmt.Errorf("table %s is defined twice", strings.Join(keys, "."))
	}
	p.closed[path] = true
	table, err := parent.Table(last)
	return table, path, err
}

// descend walks down to a table, making the missing ones; in an array of tables the last one counts.
func descend(t Table, keys []string) (Table, error) {
	for _, key := range keys {
		if list, ok := t[key].([]any); ok && len(list) > 0 {
			if last, ok := list[len(list)-1].(Table); ok {
				t = last
				continue
			}
		}
		next, err := t.Table(key)
		if err != nil {
			return nil, err
		}
		t = next
	}
	return t, nil
}

// pair reads key = value into a table.
func (p *parser) pair(t Table, path string) error {
	keys, err := p.keys()
	if err != nil {
		return err
	}
	if !p.take("=") {
		return fmt.Errorf("key %s has no value", strings.Join(keys, "."))
	}
	parent, err := descend(t, keys[:len(keys)-1])
	if err != nil {
		return err
	}
	last := keys[len(keys)-1]
	if _, twice := parent[last]; twice {
		return fmt.Errorf("key %s is set twice", strings.Join(keys, "."))
	}
	p.skip(false)
	value, err := p.value()
	if err != nil {
		return err
	}
	parent[last] = value
	if _, table := value.(Table); table {
		p.closed[strings.TrimPrefix(path+"\x00"+strings.Join(keys, "\x00"), "\x00")] = true
	}
	return nil
}

// keys reads a dotted key.
func (p *parser) keys() ([]string, error) {
	var keys []string
	for {
		p.skip(false)
		var key string
		switch {
		case p.rest == "":
			return nil, errors.New("key is missing")
		case p.rest[0] == '"':
			s, err := p.basic()
			if err != nil {
				return nil, err
			}
			key = s
		case p.rest[0] == '\'':
			s, err := p.literal()
			if err != nil {
				return nil, err
			}
			key = s
		default:
			n := strings.IndexFunc(p.rest, func(r rune) bool { return !isBare(r) })
			if n < 0 {
				n = len(p.rest)
			}
			if n == 0 {
				return nil, fmt.Errorf("key is missing before %q", clip(p.rest))
			}
			key, p.rest = p.rest[:n], p.rest[n:]
		}
		keys = append(keys, key)
		p.skip(false)
		if !p.take(".") {
			return keys, nil
		}
	}
}

var plain = regexp.MustCompile(`^(?:[+-]?(?:inf|nan)|[+-]?[0-9][0-9A-Za-z_.+:-]*(?: [0-9]{2}:[0-9:.Z+-]*)?)`)

func (p *parser) value() (any, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errors.New("values are nested too deeply")
	}
	defer func() { p.depth-- }()
	switch {
	case strings.HasPrefix(p.rest, `"""`):
		return p.multiline(`"""`, true)
	case strings.HasPrefix(p.rest, `'''`):
		return p.multiline(`'''`, false)
	case strings.HasPrefix(p.rest, `"`):
		return p.basic()
	case strings.HasPrefix(p.rest, `'`):
		return p.literal()
	case strings.HasPrefix(p.rest, "["):
		return p.array()
	case strings.HasPrefix(p.rest, "{"):
		return p.inline()
	case p.take("true"):
		return true, nil
	case p.take("false"):
		return false, nil
	}
	if number := plain.FindString(p.rest); number != "" {
		p.rest = p.rest[len(number):]
		return Literal(strings.TrimRight(number, " ")), nil
	}
	return nil, fmt.Errorf("value is missing before %q", clip(p.rest))
}

func (p *parser) array() (any, error) {
	p.take("[")
	list := []any{}
	for {
		p.skip(true)
		if p.take("]") {
			return list, nil
		}
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, item)
		p.skip(true)
		if !p.take(",") && !strings.HasPrefix(p.rest, "]") {
			return nil, fmt.Errorf("array is not closed before %q", clip(p.rest))
		}
	}
}

func (p *parser) inline() (any, error) {
	p.take("{")
	t := Table{}
	p.skip(false)
	if p.take("}") {
		return t, nil
	}
	for {
		if err := p.pair(t, "\x00inline"); err != nil {
			return nil, err
		}
		p.skip(false)
		if p.take("}") {
			return t, nil
		}
		if !p.take(",") {
			return nil, fmt.Errorf("inline table is not closed before %q", clip(p.rest))
		}
	}
}

func (p *parser) literal() (string, error) {
	end := strings.IndexAny(p.rest[1:], "'\n")
	if end < 0 || p.rest[1+end] == '\n' {
		return "", errors.New("string is not closed")
	}
	s := p.rest[1 : 1+end]
	p.rest = p.rest[end+2:]
	return s, nil
}

func (p *parser) basic() (string, error) {
	p.rest = p.rest[1:]
	var b strings.Builder
	for p.rest != "" {
		switch c := p.rest[0]; c {
		case '"':
			p.rest = p.rest[1:]
			return b.String(), nil
		case '\n':
			return "", errors.New("string is not closed")
		case '\\':
			if err := p.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			p.rest = p.rest[1:]
		}
	}
	return "", errors.New("string is not closed")
}

// multiline reads a string between triple quotes; a newline right after the opening ones is dropped.
func (p *parser) multiline(quotes string, escapes bool) (string, error) {
	p.rest = p.rest[3:]
	if p.take("\n") {
		p.line++
	}
	var b strings.Builder
	for p.rest != "" {
		switch c := p.rest[0]; {
		case strings.HasPrefix(p.rest, quotes):
			p.rest = p.rest[3:]
			for range 2 { // up to two quotes may stand before the closing ones
				if p.take(quotes[:1]) {
					b.WriteByte(quotes[0])
				}
			}
			return b.String(), nil
		case c == '\\' && escapes:
			if trimmed := strings.TrimLeft(p.rest[1:], " \t"); strings.HasPrefix(trimmed, "\n") {
				after := strings.TrimLeft(trimmed, " \t\n")
				p.line += strings.Count(trimmed[:len(trimmed)-len(after)], "\n")
				p.rest = after
				continue
			}
			if err := p.escape(&b); err != nil {
				return "", err
			}
		default:
			if c == '\n' {
				p.line++
			}
			b.WriteByte(c)
			p.rest = p.rest[1:]
		}
	}
	return "", errors.New("string is not closed")
}

var escapes = map[byte]string{'b': "\b", 't': "\t", 'n': "\n", 'f': "\f", 'r': "\r", '"': `"`, '\\': `\`, 'e': "\x1b"}

func (p *parser) escape(b *strings.Builder) error {
	if len(p.rest) < 2 {
		return errors.New("string is not closed")
	}
	kind := p.rest[1]
	if s, ok := escapes[kind]; ok {
		b.WriteString(s)
		p.rest = p.rest[2:]
		return nil
	}
	digits := map[byte]int{'u': 4, 'U': 8}[kind]
	if digits == 0 || len(p.rest) < 2+digits {
		return fmt.Errorf("unknown escape \\%c", kind)
	}
	n, err := strconv.ParseUint(p.rest[2:2+digits], 16, 32)
	if err != nil || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return fmt.Errorf("escape %q is no character", p.rest[:2+digits])
	}
	b.WriteRune(rune(n))
	p.rest = p.rest[2+digits:]
	return nil
}

func clip(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 20 {
		return strings.ToValidUTF8(s[:20], "") + "..."
	}
	return s
}
