package ec2sim

import (
	"cmp"
	"strconv"
	"time"
)

func (s *Server) reservation(id string) *CapacityReservation {
	for i := range s.reservations {
		if id != "" && s.reservations[i].ID == id {
			return &s.reservations[i]
		}
	}
	return nil
}

func noReservation(id string) *apiError {
	return badRequest("InvalidCapacityReservationId.NotFound", "The capacity reservation ID '%s' does not exist", clip(id))
}

var reservationFilters = filterTable[CapacityReservation]{
	"state":                   func(r CapacityReservation) []string { return []string{r.State} },
	"owner-id":                func(r CapacityReservation) []string { return []string{r.OwnerID} },
	"instance-match-criteria": func(r CapacityReservation) []string { return []string{r.MatchCriteria} },
	"instance-type":           func(r CapacityReservation) []string { return []string{r.InstanceType} },
	"availability-zone":       func(r CapacityReservation) []string { return []string{r.Zone} },
}

func (s *Server) describeCapacityReservations(r *request) ([]byte, *apiError) {
	f := r.form
	ids := f.strs("CapacityReservationId")
	if len(ids) > 0 && f.has("MaxResults") {
		return nil, badRequest("InvalidParameterCombination", "The parameter CapacityReservationIds cannot be used with the parameter MaxResults")
	}
	pass, bad := reservationFilters.compile(f, func(r CapacityReservation) map[string]string { return r.Tags })
	if bad != nil {
		return nil, bad
	}
	list := s.reservations
	if len(ids) > 0 {
		if list, bad = choose(list, ids, func(r CapacityReservation) string { return r.ID },
			"InvalidCapacityReservationId.NotFound", "The capacity reservation ID '%s' does not exist"); bad != nil {
			return nil, bad
		}
	}
	list = keep(list, pass)
	from, to, next, bad := paging{1, 1000, 0}.window(f, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("capacityReservationSet", func() {
		for _, res := range list[from:to] {
			w.in("item", func() { reservationXML(&w, res) })
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

func reservationXML(w *xmlWriter, res CapacityReservation) {
	w.text("capacityReservationId", res.ID)
	w.text("ownerId", res.OwnerID)
	w.text("instanceType", res.InstanceType)
	w.text("availabilityZone", res.Zone)
	w.text("instanceMatchCriteria", res.MatchCriteria)
	w.text("reservationType", res.ReservationType)
	w.bool("interruptible", res.Interruptible)
	w.text("instancePlatform", "Linux/UNIX")
	w.text("tenancy", "default")
	w.text("state", res.State)
	w.int("totalInstanceCount", int64(res.Total))
	w.int("availableInstanceCount", int64(res.Available))
	if res.End.IsZero() {
		w.text("endDateType", "unlimited")
	} else {
		w.text("endDateType", "limited")
		w.time("endDate", res.End)
	}
	w.tags(res.Tags)
}

var placementFilters = filterTable[PlacementGroup]{
	"state":      func(g PlacementGroup) []string { return []string{cmp.Or(g.State, "available")} },
	"strategy":   func(g PlacementGroup) []string { return []string{g.Strategy} },
	"group-name": func(g PlacementGroup) []string { return []string{g.Name} },
}

func (s *Server) describePlacementGroups(r *request) ([]byte, *apiError) {
	f := r.form
	pass, bad := placementFilters.compile(f, func(PlacementGroup) map[string]string { return nil })
	if bad != nil {
		return nil, bad
	}
	list := s.placements
	for _, by := range []struct {
		member string
		id     func(PlacementGroup) string
	}{
		{"GroupId", func(g PlacementGroup) string { return g.ID }},
		{"GroupName", func(g PlacementGroup) string { return g.Name }},
	} {
		if ids := f.strs(by.member); len(ids) > 0 {
			if list, bad = choose(list, ids, by.id, "InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown."); bad != nil {
				return nil, bad
			}
		}
	}
	w := xmlWriter{}
	w.in("placementGroupSet", func() {
		for _, g := range keep(list, pass) {
			w.in("item", func() {
				w.text("groupName", g.Name)
				w.text("groupId", g.ID)
				w.text("strategy", g.Strategy)
				w.text("state", cmp.Or(g.State, "available"))
				if g.PartitionCount > 0 {
					w.int("partitionCount", int64(g.PartitionCount))
				}
				w.opt("spreadLevel", g.SpreadLevel)
			})
		}
	})
	return w.buf, nil
}

type spotRecord struct {
	entry *typeEntry
	zone  string
}

var spotFilters = filterTable[spotRecord]{
	"instance-type":       func(r spotRecord) []string { return []string{r.entry.Name} },
	"availability-zone":   func(r spotRecord) []string { return []string{r.zone} },
	"product-description": func(spotRecord) []string { return []string{linuxProduct} },
}

const linuxProduct = "Linux/UNIX"

// describeSpotPriceHistory gives the price that is in force in each pool. Like
// EC2 it gives that record even when it is older than StartTime.
func (s *Server) describeSpotPriceHistory(r *request) ([]byte, *apiError) {
	f := r.form
	pass, bad := spotFilters.compile(f, nil)
	if bad != nil {
		return nil, bad
	}
	for _, name := range []string{"StartTime", "EndTime"} {
		if _, bad := timeText(f, name); bad != nil {
			return nil, bad
		}
	}
	products, types := toSet(f.strs("ProductDescription")), toSet(f.strs("InstanceType"))
	var list []spotRecord
	if len(products) == 0 || products[linuxProduct] || products["Linux/UNIX (Amazon VPC)"] {
		for _, e := range s.types.list {
			if len(types) > 0 && !types[e.Name] {
				continue
			}
			for _, zone := range e.zones {
				rec := spotRecord{e, zone}
				if e.spot[zone] > 0 && (f.str("AvailabilityZone") == "" || f.str("AvailabilityZone") == zone) && pass(rec) {
					list = append(list, rec)
				}
			}
		}
	}
	from, to, next, bad := paging{1, 10_000, 1000}.window(f, len(list))
	if bad != nil {
		return nil, bad
	}
	w := xmlWriter{}
	w.in("spotPriceHistorySet", func() {
		for _, rec := range list[from:to] {
			age := time.Duration(1 + unit(s.opts.Seed, "age|"+rec.entry.Name+"|"+rec.zone)*float64(12*time.Hour))
			w.in("item", func() {
				w.text("instanceType", rec.entry.Name)
				w.text("productDescription", linuxProduct)
				w.text("spotPrice", strconv.FormatFloat(rec.entry.spot[rec.zone], 'f', 6, 64))
				w.time("timestamp", s.started.Add(-age))
				w.text("availabilityZone", rec.zone)
			})
		}
	})
	w.text("nextToken", next)
	return w.buf, nil
}

func toSet(values []string) map[string]bool {
	set := make(map[string]bool, len(values))
	for _, v := range values {
		set[v] = true
	}
	return set
}
