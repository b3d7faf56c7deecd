package toml

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Table maps keys to values: string, bool, Literal, []any or Table.
type Table map[string]any

// Literal is a number or a date as it is written in the document.
type Literal string

// Int returns the literal of a whole number.
func Int(n int64) Literal { return Literal(strconv.FormatInt(n, 10)) }

// Strings returns a table of strings.
func Strings(values map[string]string) Table {
	t := Table{}
	for key, value := range values {
		t[key] = value
	}
	return t
}

// Table returns the table below a key, made when there is none. A key with another value is an error.
func (t Table) Table(key string) (Table, error) {
	switch v := t[key].(type) {
	case nil:
		made := Table{}
		t[key] = made
		return made, nil
	case Table:
		return v, nil
	default:
		return nil, fmt.Errorf("%s must be a table", key)
	}
}

// Format writes the document with sorted keys: values first, then the tables below.
func Format(t Table) string {
	var b strings.Builder
	writeTable(&b, nil, t)
	return b.String()
}

func writeTable(b *strings.Builder, path []string, t Table) {
	var tables []string
	wrote := false
	header := func() {
		if wrote || len(path) == 0 {
			return
		}
		wrote = true
		b.WriteString("[" + strings.Join(path, ".") + "]\n")
	}
	for _, key := range slices.Sorted(maps.Keys(t)) {
		if _, ok := t[key].(Table); ok {
			tables = append(tables, key)
			continue
		}
		header()
		b.WriteString(formatKey(key) + " = " + formatValue(t[key]) + "\n")
	}
	if len(tables) == 0 {
		header() // an empty table says something, too
	}
	for _, key := range tables {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n\n") {
			b.WriteString("\n")
		}
		writeTable(b, append(slices.Clone(path), formatKey(key)), t[key].(Table))
	}
}

func formatKey(key string) string {
	if key != "" && strings.IndexFunc(key, func(r rune) bool { return !isBare(r) }) < 0 {
		return key
	}
	return quote(key)
}

func isBare(r rune) bool {
	return r == '-' || r == '_' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
}

func formatValue(value any) string {
	switch v := value.(type) {
	case string:
		return quote(v)
	case bool:
		return strconv.FormatBool(v)
	case Literal:
		return string(v)
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = formatValue(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case Table:
		items := make([]string, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, formatKey(key)+" = "+formatValue(v[key]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return quote(fmt.Sprint(value))
}

// quote writes a basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
