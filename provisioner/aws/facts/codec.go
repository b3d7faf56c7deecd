package facts

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The file is gzipped text: a line "zones" (region=zone/id,...), a header line,
// then one line per type. The columns of the layout come first, then one column
// "zones:<region>" and one "price:<region>" for each region. A price computed
// from other regions ends in "~".

// maxText bounds what Decode expands, so that a hostile file cannot fill memory.
const maxText = 16 << 20

// Encode writes d. Equal data gives equal bytes.
func Encode(w io.Writer, d Data) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return fmt.Errorf("open gzip writer: %w", err)
	}
	out := bufio.NewWriter(zip)
	if err := encodeText(out, d); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("close catalogue: %w", err)
	}
	return nil
}

func encodeText(out *bufio.Writer, d Data) error {
	cells := []string{"zones"}
	for _, region := range slices.Sorted(maps.Keys(d.Zones)) {
		zones := make([]string, 0, len(d.Zones[region]))
		for _, z := range d.Zones[region] {
			zones = append(zones, z.Name+"/"+z.ID)
		}
		cells = append(cells, region+"="+strings.Join(zones, ","))
	}
	if err := writeLine(out, cells); err != nil {
		return err
	}
	offered, priced := map[string]bool{}, slices.Sorted(maps.Keys(d.OnDemand))
	for i := range d.Types {
		for region := range d.Types[i].Zones {
			offered[region] = true
		}
	}
	regions := slices.Sorted(maps.Keys(offered))
	if err := writeLine(out, header(regions, priced)); err != nil {
		return err
	}
	types := slices.Clone(d.Types)
	slices.SortFunc(types, func(a, b InstanceType) int { return strings.Compare(a.Name, b.Name) })
	for i := range types {
		t := &types[i]
		cells = cells[:0]
		for _, c := range columns {
			cells = append(cells, c.get(t))
		}
		for _, region := range regions {
			cells = append(cells, t.Zones[region])
		}
		for _, region := range priced {
			cell := formatFloat(d.OnDemand[region][t.Name])
			if d.Estimated[region][t.Name] {
				cell += "~"
			}
			cells = append(cells, cell)
		}
		if err := writeLine(out, cells); err != nil {
			return fmt.Errorf("write instance type %s: %w", t.Name, err)
		}
	}
	return nil
}

func header(offered, priced []string) []string {
	cells := make([]string, 0, len(columns)+len(offered)+len(priced))
	for _, c := range columns {
		cells = append(cells, c.name)
	}
	for _, region := range offered {
		cells = append(cells, "zones:"+region)
	}
	for _, region := range priced {
		cells = append(cells, "price:"+region)
	}
	return cells
}

func writeLine(out *bufio.Writer, cells []string) error {
	for _, cell := range cells {
		if strings.ContainsAny(cell, "\t\n") {
			return fmt.Errorf("cell %q contains a tab or a line end", cell)
		}
	}
	if _, err := out.WriteString(strings.Join(cells, "\t") + "\n"); err != nil {
		return fmt.Errorf("write catalogue line: %w", err)
	}
	return nil
}

// decoder shares equal texts and lists between rows; cells repeat a lot.
type decoder struct {
	texts map[string]string
	lists map[string][]string
}

func (d *decoder) intern(s string) string {
	if known, ok := d.texts[s]; ok {
		return known
	}
	s = strings.Clone(s)
	d.texts[s] = s
	return s
}

func (d *decoder) words(cell string) []string {
	if known, ok := d.lists[cell]; ok {
		return known
	}
	cell = d.intern(cell)
	d.lists[cell] = strings.Split(cell, ",")
	return d.lists[cell]
}

// Decode reads what Encode wrote. A damaged or foreign file is an error that
// names the line and the column.
func Decode(r io.Reader) (Data, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return Data{}, fmt.Errorf("open catalogue: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(zip, maxText+1))
	if err != nil {
		return Data{}, fmt.Errorf("read catalogue: %w", err)
	}
	if len(raw) > maxText {
		return Data{}, fmt.Errorf("catalogue is longer than %d bytes", maxText)
	}
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	if len(lines) < 2 {
		return Data{}, fmt.Errorf("catalogue has %d lines, want zones, header and types", len(lines))
	}
	zones, err := decodeZones(lines[0])
	if err != nil {
		return Data{}, fmt.Errorf("line 1: %w", err)
	}
	data := Data{Zones: zones, OnDemand: map[string]map[string]float64{}, Estimated: map[string]map[string]bool{}}
	offered, priced, err := decodeHeader(lines[1])
	if err != nil {
		return Data{}, fmt.Errorf("line 2: %w", err)
	}
	for _, region := range priced {
		data.OnDemand[region], data.Estimated[region] = make(map[string]float64, len(lines)), map[string]bool{}
	}
	d := &decoder{texts: make(map[string]string, 1<<12), lists: map[string][]string{}}
	data.Types = make([]InstanceType, len(lines)-2)
	for i, line := range lines[2:] {
		if err := d.row(&data, &data.Types[i], line, offered, priced); err != nil {
			return Data{}, fmt.Errorf("line %d: %w", i+3, err)
		}
	}
	return data, nil
}

func decodeZones(line string) (map[string][]Zone, error) {
	cells := strings.Split(line, "\t")
	if cells[0] != "zones" {
		return nil, fmt.Errorf("starts with %q, want zones", cells[0])
	}
	zones := map[string][]Zone{}
	for _, cell := range cells[1:] {
		region, list, ok := strings.Cut(cell, "=")
		if !ok {
			return nil, fmt.Errorf("cell %q has no =", cell)
		}
		for pair := range strings.SplitSeq(list, ",") {
			name, id, ok := strings.Cut(pair, "/")
			if !ok {
				return nil, fmt.Errorf("zone %q has no id", pair)
			}
			zones[region] = append(zones[region], Zone{strings.Clone(name), strings.Clone(id)})
		}
	}
	return zones, nil
}

func decodeHeader(line string) (offered, priced []string, err error) {
	cells := strings.Split(line, "\t")
	for i, c := range columns {
		if i >= len(cells) || cells[i] != c.name {
			return nil, nil, fmt.Errorf("column %d is not %s: the file has another layout", i+1, c.name)
		}
	}
	for _, cell := range cells[len(columns):] {
		switch kind, region, _ := strings.Cut(cell, ":"); {
		case kind == "zones" && priced == nil:
			offered = append(offered, strings.Clone(region))
		case kind == "price":
			priced = append(priced, strings.Clone(region))
		default:
			return nil, nil, fmt.Errorf("unexpected column %q", cell)
		}
	}
	return offered, priced, nil
}

func (d *decoder) row(data *Data, t *InstanceType, line string, offered, priced []string) error {
	rest, next := line, func() string { return "" }
	next = func() string {
		cell, after, _ := strings.Cut(rest, "\t")
		rest = after
		return cell
	}
	if got, want := strings.Count(line, "\t")+1, len(columns)+len(offered)+len(priced); got != want {
		return fmt.Errorf("%d cells, want %d", got, want)
	}
	for i := range columns {
		if cell := next(); cell != "" {
			if err := columns[i].set(d, t, cell); err != nil {
				return fmt.Errorf("column %s: %w", columns[i].name, err)
			}
		}
	}
	family, size, _ := strings.Cut(t.Name, ".")
	t.Family, t.Size = d.intern(family), d.intern(size)
	for _, region := range offered {
		if cell := next(); cell != "" {
			if t.Zones == nil {
				t.Zones = make(map[string]string, len(offered))
			}
			t.Zones[region] = d.intern(cell)
		}
	}
	for _, region := range priced {
		cell := next()
		if cell == "" {
			continue
		}
		digits, estimated := strings.CutSuffix(cell, "~")
		price, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return fmt.Errorf("column price:%s: %w", region, err)
		}
		data.OnDemand[region][t.Name] = price
		if estimated {
			data.Estimated[region][t.Name] = true
		}
	}
	return nil
}
