package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object that keeps the order of its members; the order is part of the bytes.
type object []member

type member struct {
	key   string
	value any
}

// obj pairs keys and values.
func obj(pairs ...any) object {
	var o object
	for i := 0; i+1 < len(pairs); i += 2 {
		o = append(o, member{fmt.Sprint(pairs[i]), pairs[i+1]})
	}
	return o
}

func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// set replaces a member at its place, or adds it at the end.
func (o *object) set(key string, value any) {
	for i := range *o {
		if (*o)[i].key == key {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{key, value})
}

func (o *object) remove(key string) {
	*o = slices.DeleteFunc(*o, func(m member) bool { return m.key == key })
}

// write appends the value without white space, numbers as Python prints them.
func write(out *strings.Builder, value any) {
	switch v := value.(type) {
	case object:
		out.WriteByte('{')
		for i, m := range v {
			separate(out, i)
			out.WriteString(strconv.Quote(m.key) + ":")
			write(out, m.value)
		}
		out.WriteByte('}')
	case []object:
		writeList(out, v)
	case []string:
		writeList(out, v)
	case string:
		out.WriteString(strconv.Quote(v)) // plain ASCII everywhere
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		out.WriteString(text)
	default:
		fmt.Fprint(out, v) // whole numbers and true
	}
}

func writeList[T any](out *strings.Builder, list []T) {
	out.WriteByte('[')
	for i, v := range list {
		separate(out, i)
		write(out, v)
	}
	out.WriteByte(']')
}

func separate(out *strings.Builder, i int) {
	if i > 0 {
		out.WriteByte(',')
	}
}

func text(value any) []byte {
	var out strings.Builder
	write(&out, value)
	out.WriteByte('\n')
	return []byte(out.String())
}
