package solver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/requirement"
)

// lessons are what the filters have taught in earlier rounds of a solve: where classes of pods may not
// go although the algebra lets them.
type lessons struct {
	denied map[denial]bool
	zones  map[denial][]string // denied zones, by class and pool
	said   map[string]Disagreement
	last   map[string]Disagreement // by class key
}

// denial is a placement that the filters have refused: this class, there.
type denial struct {
	class string
	// target is a node's key, a pool, or pool/type/zone/capacity type.
	target string
}

func newLessons() *lessons {
	return &lessons{denied: map[denial]bool{}, zones: map[denial][]string{}, said: map[string]Disagreement{}, last: map[string]Disagreement{}}
}

func (l *lessons) size() int {
	n := len(l.denied)
	for _, zones := range l.zones {
		n += len(zones)
	}
	return n
}

// refuse notes that the filters do not let the class onto the target.
func (l *lessons) refuse(c *class, pod *corev1.Pod, target string, v Verdict) {
	l.denied[denial{c.key, target}] = true
	d := Disagreement{Pod: pod, Target: target, Plugin: v.Plugin, Reason: v.Reason}
	l.said[c.key+target] = d
	l.last[c.key] = d
}

// refuseZone notes that no machine of the pool in this zone is for the class.
func (l *lessons) refuseZone(c *class, pool, zone string) {
	id := denial{c.key, pool}
	if !slices.Contains(l.zones[id], zone) {
		l.zones[id] = append(l.zones[id], zone)
		slices.Sort(l.zones[id])
	}
}

// texts says for each class that was refused what the filters said last.
func (l *lessons) texts() map[string]string {
	out := make(map[string]string, len(l.last))
	for class, d := range l.last {
		out[class] = refusalText(d.Target, Verdict{Plugin: d.Plugin, Reason: d.Reason})
	}
	return out
}

func refusalText(target string, v Verdict) string {
	return fmt.Sprintf("plugin %s refuses it on %s: %s", v.Plugin, target, v.Reason)
}

func (l *lessons) disagreements() []Disagreement {
	out := make([]Disagreement, 0, len(l.said))
	for _, d := range l.said {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Disagreement) int {
		return cmp.Or(strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name), strings.Compare(a.Target, b.Target))
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

func (s *solve) deniedNode(c *class, n *nodePlace) bool {
	return len(s.lessons.denied) > 0 && s.lessons.denied[denial{c.key, n.node.Key()}]
}

func (s *solve) deniedPool(c *class, p *pool) bool {
	return len(s.lessons.denied) > 0 && s.lessons.denied[denial{c.key, p.Name}]
}

// denied reports whether the filters have refused the class on such a machine.
func (s *solve) denied(c *class, cand *candidate, sh *shape) bool {
	return len(s.lessons.denied) > 0 && s.lessons.denied[denial{c.key, targetOf(cand, sh)}]
}

// withoutDenied takes the zones out of the shape in which the filters refuse the class; nil when nothing
// is left.
func (s *solve) withoutDenied(c *class, sh *shape) *shape {
	zones := s.lessons.zones[denial{c.key, sh.pool.Name}]
	if len(zones) == 0 {
		return sh
	}
	return sh.with(newTerm(requirement.NewSet(requirement.New(corev1.LabelTopologyZone, corev1.NodeSelectorOpNotIn, zones...))))
}

// targetOf names the machine that a claim stands for when the filters are asked.
func targetOf(cand *candidate, sh *shape) string {
	offer := cand.best(sh.kinds)
	if offer == nil {
		return sh.pool.Name + "/" + cand.it.Name
	}
	return fmt.Sprintf("%s/%s/%s/%s", sh.pool.Name, cand.it.Name, offer.Zone, offer.CapacityType)
}
