package solver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/provisioner/requirement"
	"github.com/berth-dev/berth/provisioner/resources"
)

// poolFault says why the pool as a whole is no place for the class, "" when types have to be looked at.
func (s *solve) poolFault(c *class, p *pool, shapes []*shape) string {
	if t := untolerated(c.pod, p.Spec.Template.Spec.Taints); t != nil {
		return fmt.Sprintf("taint %s is not tolerated", t.ToString())
	}
	if text := s.refusals[c.key]; text != "" && len(shapes) == 0 {
		return text
	}
	if len(p.candidates) == 0 {
		return "nodepool requirements filtered out all available instance types"
	}
	if len(shapes) == 0 {
		return labelFault(c, p)
	}
	if slices.Contains(p.limits, nodesResource) && p.remaining.Get(nodesResource) < 1 {
		return "node limits have been exhausted for nodepool"
	}
	return ""
}

// labelFault names the label that keeps the class off, for the first of its terms.
func labelFault(c *class, p *pool) string {
	if len(c.terms) == 0 && len(c.own) > 0 {
		return "the pod's node affinity and the places of its volumes exclude each other"
	}
	if len(c.terms) == 0 {
		return "the pod's node affinity matches no node"
	}
	if err := p.base.reqs.Compatible(c.terms[0].set, requirement.IsWellKnown); err != nil {
		return err.Error()
	}
	if names := soldOut(c, p); len(names) > 0 {
		return noCapacity(names)
	}
	return "no instance type has the required labels: " + c.termText()
}

// soldOut are the types of the pool that could take the class if the cloud had any.
func soldOut(c *class, p *pool) []string {
	var names []string
	for _, cand := range p.candidates {
		if c.requests.Fits(cand.free) && slices.ContainsFunc(c.terms, func(t term) bool { return cand.reqs.Allows(t.set, nil) }) {
			names = append(names, cand.it.Name)
		}
	}
	return names
}

func noCapacity(names []string) string {
	const shown = 3
	list := strings.Join(names[:min(len(names), shown)], ", ")
	if len(names) > shown {
		list += fmt.Sprintf(" and %d others", len(names)-shown)
	}
	return "no capacity for now: no offering of " + list + " is available in the required zone and capacity type"
}

// diagnose says what the types lack, by the nearest obstacle: what those that came furthest ran into.
func (s *solve) diagnose(c *class, p *pool, shapes, variants []*shape) string {
	var most resources.Vector
	limits := map[resourceName]bool{}
	roomy, free, within, offered := 0, 0, 0, 0
	for _, sh := range shapes {
		for i := range sh.types.all() {
			cand := p.candidates[i]
			most = most.Max(cand.free)
			if !c.requests.Fits(cand.free) {
				continue
			}
			roomy++
			if portsConflict(cand.ports, c.ports) {
				continue
			}
			free++
			if cand.best(sh.kinds) == nil {
				continue
			}
			offered++
			over := p.over(cand.it.Capacity)
			for _, name := range over {
				limits[name] = true
			}
			if len(over) == 0 {
				within++
			}
		}
	}
	switch {
	case roomy == 0:
		return lacking(c.requests, most)
	case free == 0:
		return portFault(c, p)
	case offered == 0:
		return noCapacity(soldOut(c, p))
	case within == 0:
		names := make([]string, 0, len(limits))
		for name := range limits {
			names = append(names, string(name))
		}
		slices.Sort(names)
		return fmt.Sprintf("all available instance types exceed limits for nodepool (%s)", strings.Join(names, ", "))
	case s.refusals[c.key] != "":
		return s.refusals[c.key]
	case len(variants) > 0 && !slices.ContainsFunc(variants, func(v *shape) bool { return len(s.shortlist(c, v)) > 0 }):
		return "no instance type that fits has an available offering in the zones that topology spread or pod affinity allows"
	default:
		return "topology spread or pod affinity allows no zone or node that could be bought"
	}
}

// portFault names the host port and the DaemonSet that has it.
func portFault(c *class, p *pool) string {
	for _, cand := range p.candidates {
		for _, d := range cand.daemons {
			for _, taken := range hostPorts(d) {
				if i := slices.IndexFunc(c.ports, taken.conflicts); i >= 0 {
					name := d.Name
					if len(d.OwnerReferences) > 0 {
						name = d.OwnerReferences[0].Name
					}
					return fmt.Sprintf("hostPort %d/%s is taken by DaemonSet %s on every instance type", taken.port, taken.protocol, name)
				}
			}
		}
	}
	return "the pod's host ports are taken on every instance type"
}

// lacking says which resources no type has enough of.
func lacking(requests, most resources.Vector) string {
	names := requests.Exceeds(most)
	if len(names) == 0 {
		return "no single instance type has enough of everything: " + requests.String()
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s (the largest allows %s)", requests.Format(name), strings.TrimPrefix(most.Format(name), string(name)+" "))
	}
	text := "no instance type has enough resources: " + strings.Join(parts, ", ")
	if requests.MilliCPU >= 1_000_000_000 {
		text += " (CPU request >= 1 Million, m vs M typo?)"
	}
	return text
}

func (c *class) termText() string {
	var parts []string
	for _, t := range c.terms {
		var keys []string
		for _, key := range t.set.Keys() {
			keys = append(keys, t.set[key].String())
		}
		parts = append(parts, strings.Join(keys, ", "))
	}
	return strings.Join(parts, " or ")
}
