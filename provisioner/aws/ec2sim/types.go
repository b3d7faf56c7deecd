package ec2sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// typeTable holds the instance types of the region with their finished XML.
type typeTable struct {
	catalog facts.Catalog
	region  string
	list    []*typeEntry // offered in the region, by name
	byName  map[string]*typeEntry
	pages   map[string][]byte // finished pages by query
}

type typeEntry struct {
	facts.InstanceType
	zones []string
	xml   []byte
	price float64 // on-demand, 0 when unknown
	spot  map[string]float64
}

func newTypeTable(catalog facts.Catalog, region string) *typeTable {
	t := &typeTable{catalog: catalog, region: region, byName: map[string]*typeEntry{}, pages: map[string][]byte{}}
	for _, it := range catalog.Types() {
		zones := catalog.ZonesOf(region, it.Name)
		if len(zones) == 0 {
			continue
		}
		e := &typeEntry{InstanceType: it, zones: zones, xml: typeXML(it), spot: map[string]float64{}}
		e.price, _ = catalog.OnDemandPrice(region, it.Name)
		for _, zone := range zones {
			if p, ok := catalog.SpotPrice(region, zone, it.Name); ok {
				e.spot[zone] = p
			}
		}
		t.list = append(t.list, e)
		t.byName[it.Name] = e
	}
	return t
}

var typeFilters = filterTable[*typeEntry]{
	"instance-type":                         func(e *typeEntry) []string { return []string{e.Name} },
	"supported-virtualization-type":         func(e *typeEntry) []string { return e.VirtualizationTypes },
	"processor-info.supported-architecture": func(e *typeEntry) []string { return e.Architectures },
	"supported-usage-class":                 func(e *typeEntry) []string { return e.UsageClasses },
	"supported-root-device-type":            func(e *typeEntry) []string { return e.RootDeviceTypes },
	"supported-boot-mode":                   func(e *typeEntry) []string { return e.BootModes },
	"bare-metal":                            func(e *typeEntry) []string { return boolText(e.BareMetal) },
	"current-generation":                    func(e *typeEntry) []string { return boolText(e.CurrentGeneration) },
	"burstable-performance-supported":       func(e *typeEntry) []string { return boolText(e.Burstable) },
	"free-tier-eligible":                    func(e *typeEntry) []string { return boolText(e.FreeTier) },
	"instance-storage-supported":            func(e *typeEntry) []string { return boolText(e.LocalStorage != nil) },
	"hypervisor":                            func(e *typeEntry) []string { return []string{e.Hypervisor} },
	"vcpu-info.default-vcpus":               func(e *typeEntry) []string { return []string{strconv.Itoa(e.VCPUs)} },
	"memory-info.size-in-mib":               func(e *typeEntry) []string { return []string{strconv.FormatInt(e.MemoryMiB, 10)} },
	"network-info.efa-supported":            func(e *typeEntry) []string { return boolText(e.Network.EFA) },
}

func boolText(b bool) []string { return []string{strconv.FormatBool(b)} }

func (s *Server) describeInstanceTypes(r *request) ([]byte, *apiError) {
	f := r.form
	if dry, bad := f.boolean("DryRun"); bad != nil || dry {
		return nil, orDryRun(bad)
	}
	pass, bad := typeFilters.compile(f, nil)
	if bad != nil {
		return nil, bad
	}
	names := f.strs("InstanceType")
	key := f.queryMark() + "|" + f.str("MaxResults") + "|" + f.str("NextToken") + "|" + strings.Join(names, ",")
	if page, ok := s.types.pages[key]; ok {
		return page, nil
	}
	list := s.types.list
	if len(names) > 0 {
		var unknown []string
		list = nil
		for _, name := range names {
			if e, ok := s.types.byName[name]; ok {
				list = append(list, e)
			} else {
				unknown = append(unknown, clip(name))
			}
		}
		if len(unknown) > 0 {
			return nil, badRequest("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
		}
	}
	list = keep(list, pass)
	from, to, next, bad := paging{5, 100, 100}.window(f, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("instanceTypeSet", func() {
		for _, e := range list[from:to] {
			w.buf = append(w.buf, e.xml...)
		}
	})
	w.text("nextToken", next)
	if len(s.types.pages) < 256 { // only a client that asks differently each time gets there
		s.types.pages[key] = w.buf
	}
	return w.buf, nil
}

func orDryRun(bad *apiError) *apiError {
	if bad != nil {
		return bad
	}
	return dryRun()
}

func keep[T any](list []T, pass func(T) bool) []T {
	kept := make([]T, 0, len(list))
	for _, x := range list {
		if pass(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

type offering struct{ instanceType, location string }

var offeringFilters = filterTable[offering]{
	"instance-type": func(o offering) []string { return []string{o.instanceType} },
	"location":      func(o offering) []string { return []string{o.location} },
}

func (s *Server) describeInstanceTypeOfferings(r *request) ([]byte, *apiError) {
	f := r.form
	kind := f.str("LocationType")
	if kind == "" {
		kind = "region"
	}
	ids := map[string]string{}
	for _, z := range s.types.catalog.Zones(s.opts.Region) {
		ids[z.Name] = z.ID
	}
	var all []offering
	for _, e := range s.types.list {
		switch kind {
		case "region":
			all = append(all, offering{e.Name, s.opts.Region})
		case "availability-zone":
			for _, zone := range e.zones {
				all = append(all, offering{e.Name, zone})
			}
		case "availability-zone-id":
			for _, zone := range e.zones {
				all = append(all, offering{e.Name, ids[zone]})
			}
		default:
			return nil, badRequest("InvalidParameterValue", "Value (%s) for parameter locationType is invalid", clip(kind))
		}
	}
	pass, bad := offeringFilters.compile(f, nil)
	if bad != nil {
		return nil, bad
	}
	all = keep(all, pass)
	from, to, next, bad := paging{5, 1000, 1000}.window(f, len(all))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("instanceTypeOfferingSet", func() {
		for _, o := range all[from:to] {
			w.in("item", func() {
				w.text("instanceType", o.instanceType)
				w.text("locationType", kind)
				w.text("location", o.location)
			})
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

// offers tells whether a zone of the region offers the type.
func (e *typeEntry) offers(zone string) bool { return slices.Contains(e.zones, zone) }

func (e *typeEntry) spotCapable() bool { return slices.Contains(e.UsageClasses, "spot") }
