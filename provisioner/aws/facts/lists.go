package facts

import (
	"fmt"
	"strconv"
	"strings"
)

// Lists of structures are written as records joined by ";", whose fields are
// joined by ":". No name in the data contains either.

// fields reads one record; the first fault is kept and later reads give zero.
type fields struct {
	d    *decoder
	rest []string
	err  error
}

func records(d *decoder, cell string, width int, each func(f *fields)) error {
	for record := range strings.SplitSeq(cell, ";") {
		f := &fields{d: d, rest: strings.Split(record, ":")}
		if len(f.rest) != width {
			return fmt.Errorf("record %q has %d fields, want %d", record, len(f.rest), width)
		}
		each(f)
		if f.err != nil {
			return fmt.Errorf("record %q: %w", record, f.err)
		}
	}
	return nil
}

func (f *fields) text() string {
	cell := f.rest[0]
	f.rest = f.rest[1:]
	return f.d.intern(cell)
}

func (f *fields) int() int {
	cell := f.text()
	if cell == "" {
		return 0
	}
	n, err := strconv.Atoi(cell)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n
}

func (f *fields) float() float64 {
	cell := f.text()
	if cell == "" {
		return 0
	}
	x, err := strconv.ParseFloat(cell, 64)
	if err != nil && f.err == nil {
		f.err = err
	}
	return x
}

func join[T any](list []T, record func(T) []string) string {
	parts := make([]string, 0, len(list))
	for _, e := range list {
		parts = append(parts, strings.Join(record(e), ":"))
	}
	return strings.Join(parts, ";")
}

func formatInt[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func formatFloat(x float64) string {
	if x == 0 {
		return ""
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// cardColumn writes a run of equal cards with consecutive indexes once, behind its length.
var cardColumn = column{"network.cards",
	func(t *InstanceType) string {
		var parts []string
		cards := t.Network.Cards
		for i := 0; i < len(cards); {
			n := 1
			for i+n < len(cards) && sameCard(cards[i], cards[i+n], n) {
				n++
			}
			c := cards[i]
			parts = append(parts, strings.Join([]string{strconv.Itoa(n), formatInt(c.Index), formatInt(c.MaxENIs),
				c.Performance, formatFloat(c.BaselineGbps), formatFloat(c.PeakGbps)}, ":"))
			i += n
		}
		return strings.Join(parts, ";")
	},
	func(d *decoder, t *InstanceType, cell string) error {
		return records(d, cell, 6, func(f *fields) {
			n := f.int()
			c := Card{f.int(), f.int(), f.text(), f.float(), f.float()}
			if n < 1 || n > 256 {
				f.err = fmt.Errorf("%d cards", n)
				return
			}
			for i := range n {
				run := c
				run.Index += i
				t.Network.Cards = append(t.Network.Cards, run)
			}
		})
	}}

func sameCard(first, later Card, distance int) bool {
	first.Index += distance
	return first == later
}

var storageColumn = column{"localStorage",
	func(t *InstanceType) string {
		s := t.LocalStorage
		if s == nil {
			return ""
		}
		return join(s.Disks, func(d Disk) []string {
			return []string{formatInt(s.TotalGB), s.NVMe, s.Encryption, formatInt(d.Count), formatInt(d.SizeGB), d.Type}
		})
	},
	func(d *decoder, t *InstanceType, cell string) error {
		t.LocalStorage = &LocalStorage{}
		return records(d, cell, 6, func(f *fields) {
			s := t.LocalStorage
			s.TotalGB, s.NVMe, s.Encryption = f.int(), f.text(), f.text()
			s.Disks = append(s.Disks, Disk{f.int(), f.int(), f.text()})
		})
	}}

var gpuColumn = column{"gpus",
	func(t *InstanceType) string {
		return join(t.GPUs, func(g GPU) []string {
			return []string{g.Name, g.Manufacturer, formatInt(g.Count), formatInt(g.MemoryMiB),
				formatInt(g.LogicalCount), formatFloat(g.Partition)}
		})
	},
	func(d *decoder, t *InstanceType, cell string) error {
		return records(d, cell, 6, func(f *fields) {
			t.GPUs = append(t.GPUs, GPU{f.text(), f.text(), f.int(), int64(f.int()), f.int(), f.float()})
		})
	}}

var neuronColumn = column{"neuronDevices",
	func(t *InstanceType) string {
		return join(t.NeuronDevices, func(n NeuronDevice) []string {
			return []string{n.Name, formatInt(n.Count), formatInt(n.CoresPerDevice), formatInt(n.CoreVersion), formatInt(n.MemoryMiB)}
		})
	},
	func(d *decoder, t *InstanceType, cell string) error {
		return records(d, cell, 5, func(f *fields) {
			t.NeuronDevices = append(t.NeuronDevices, NeuronDevice{f.text(), f.int(), f.int(), f.int(), int64(f.int())})
		})
	}}

func deviceColumn(name string, field func(*InstanceType) *[]Device) column {
	return column{name,
		func(t *InstanceType) string {
			return join(*field(t), func(d Device) []string {
				return []string{d.Name, d.Manufacturer, formatInt(d.Count), formatInt(d.MemoryMiB)}
			})
		},
		func(d *decoder, t *InstanceType, cell string) error {
			return records(d, cell, 4, func(f *fields) {
				*field(t) = append(*field(t), Device{f.text(), f.text(), f.int(), int64(f.int())})
			})
		}}
}
