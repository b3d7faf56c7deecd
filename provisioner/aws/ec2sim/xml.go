package ec2sim

import (
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// xmlWriter appends elements to a buffer; replies are flat and known, so no
// reflection is needed.
type xmlWriter struct{ buf []byte }

func (w *xmlWriter) open(name string)  { w.buf = append(append(append(w.buf, '<'), name...), '>') }
func (w *xmlWriter) close(name string) { w.buf = append(append(append(w.buf, '<', '/'), name...), '>') }

// in wraps what body writes into an element.
func (w *xmlWriter) in(name string, body func()) {
	w.open(name)
	body()
	w.close(name)
}

func (w *xmlWriter) text(name, value string) {
	w.open(name)
	w.escape(value)
	w.close(name)
}

// opt leaves an empty value out.
func (w *xmlWriter) opt(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *xmlWriter) int(name string, value int64) {
	w.open(name)
	w.buf = strconv.AppendInt(w.buf, value, 10)
	w.close(name)
}

func (w *xmlWriter) bool(name string, value bool) {
	w.open(name)
	w.buf = strconv.AppendBool(w.buf, value)
	w.close(name)
}

func (w *xmlWriter) float(name string, value float64) {
	w.open(name)
	w.buf = strconv.AppendFloat(w.buf, value, 'f', -1, 64)
	w.close(name)
}

func (w *xmlWriter) time(name string, t time.Time) {
	w.text(name, t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// items writes a wrapped list of texts.
func (w *xmlWriter) items(name string, values []string) {
	w.in(name, func() {
		for _, v := range values {
			w.text("item", v)
		}
	})
}

func (w *xmlWriter) tags(tags map[string]string) {
	if len(tags) == 0 {
		return
	}
	w.in("tagSet", func() {
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			w.in("item", func() {
				w.text("key", key)
				w.text("value", tags[key])
			})
		}
	})
}

func (w *xmlWriter) escape(s string) {
	if plain(s) {
		w.buf = append(w.buf, s...)
		return
	}
	for _, r := range s {
		switch {
		case r == '&':
			w.buf = append(w.buf, "&amp;"...)
		case r == '<':
			w.buf = append(w.buf, "&lt;"...)
		case r == '>':
			w.buf = append(w.buf, "&gt;"...)
		case r == '"':
			w.buf = append(w.buf, "&#34;"...)
		case r == '\t' || r == '\n' || r == '\r':
			w.buf = append(strconv.AppendInt(append(w.buf, '&', '#'), int64(r), 10), ';')
		case r < 0x20 || r == 0xFFFE || r == 0xFFFF: // not allowed in XML
			w.buf = utf8.AppendRune(w.buf, utf8.RuneError)
		default:
			w.buf = utf8.AppendRune(w.buf, r)
		}
	}
}

// plain tells that a text needs no escaping, as most texts do not.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20, c >= 0x7f, c == '&', c == '<', c == '>', c == '"':
			return false
		}
	}
	return true
}
