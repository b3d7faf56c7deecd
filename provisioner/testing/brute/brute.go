package brute

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/provisioner/solver"
)

// Best is the outcome of a search.
type Best struct {
	// Placed is how many pods can be placed, Price what the new nodes cost in an hour at the least then,
	// with Problem.NodeCost for each.
	Placed int
	Price  float64
	// Exhausted says that everything was tried; else the outcome is only what was found in time.
	Exhausted bool
	// Complete says that no pod is left out which would have a place if it were alone.
	Complete bool
	// Where says for each pod that is placed where, for messages.
	Where map[string]string
}

// Search tries every order and every place, up to so many states.
func Search(p solver.Problem, states int) Best {
	s := &search{world: newWorld(p), seen: map[string]bool{}, states: states}
	s.best = Best{Exhausted: true, Price: -1}
	s.visit(0, 0)
	s.best.Complete = s.best.Placed == s.hope(0)
	return s.best
}

// Extend keeps what the plan places and tries to place the pods that it leaves out, in every order and at
// every place. Claims are the cheapest machine that they may become, and are charged to limits by the
// largest.
func Extend(p solver.Problem, plan solver.Plan, states int) Best {
	s := &search{world: newWorld(p), seen: map[string]bool{}, states: states}
	s.best = Best{Exhausted: true, Price: -1}
	s.adopt(plan)
	s.visit(0, 0)
	return s.best
}

// search walks over states: which pods are where, however they came there.
type search struct {
	*world
	seen   map[string]bool
	states int
	best   Best
}

func (s *search) visit(placed int, price float64) {
	if placed > s.best.Placed || placed == s.best.Placed && (s.best.Price < 0 || price < s.best.Price-1e-9) {
		s.best.Placed, s.best.Price, s.best.Where = placed, price, s.where()
	}
	hope := s.hope(placed)
	if hope < s.best.Placed || hope == s.best.Placed && price >= s.best.Price-1e-9 {
		return // whatever follows places no more and costs no less
	}
	id := s.id()
	if s.seen[id] {
		return
	}
	if len(s.seen) == s.states {
		s.best.Exhausted = false
		return
	}
	s.seen[id] = true
	for _, k := range s.kinds {
		if len(k.left) == 0 || !k.hopeful {
			continue
		}
		for _, n := range s.nodes {
			if !s.admits(k, n) {
				continue
			}
			k.put(n)
			s.visit(placed+1, price)
			k.take(n)
		}
		for _, m := range s.machines {
			if !m.takes[k.index] || !s.buyable(m) {
				continue
			}
			n := m.node(fmt.Sprintf("new-%d", len(s.nodes)))
			s.nodes = append(s.nodes, n)
			m.bought++
			if s.admits(k, n) {
				k.put(n)
				s.visit(placed+1, price+m.price)
				k.take(n)
			}
			m.bought--
			s.nodes = s.nodes[:len(s.nodes)-1]
		}
		if s.free {
			break // without rules between pods the order is of no account; what is left out comes last
		}
	}
	if s.free {
		s.skip(placed, price)
	}
}

// hope is how many pods there may be at the end.
func (s *search) hope(placed int) int {
	for _, k := range s.kinds {
		if k.hopeful {
			placed += len(k.left)
		}
	}
	return placed
}

// skip goes on without the pods of the first kind that is left.
func (s *search) skip(placed int, price float64) {
	for _, k := range s.kinds {
		if len(k.left) > 0 && k.hopeful {
			left := k.left
			k.left = nil
			s.visit(placed, price)
			k.left = left
			return
		}
	}
}

// id names the state; new nodes that are alike are the same.
func (s *search) id() string {
	var old, made []string
	for _, n := range s.nodes {
		text := n.contents()
		if n.machine == nil {
			old = append(old, text)
		} else {
			made = append(made, fmt.Sprint(n.machine.index, ":", text))
		}
	}
	slices.Sort(made)
	for _, k := range s.kinds {
		old = append(old, fmt.Sprint(len(k.left)))
	}
	return strings.Join(old, "|") + "||" + strings.Join(made, "|")
}

func (s *search) where() map[string]string {
	out := map[string]string{}
	for _, n := range s.nodes {
		name := n.name
		if n.machine != nil {
			name += " " + n.machine.text
		}
		for _, k := range n.added {
			for range k.count {
				out[fmt.Sprintf("%s #%d", k.kind.pod.Name, len(out))] = name
			}
		}
	}
	return out
}

// kind is a set of pods that differ in nothing but their name.
type kind struct {
	index int
	pod   *corev1.Pod
	left  []*corev1.Pod
	needs map[corev1.ResourceName]int64
	// hopeful: some node or machine would take a pod of the kind if it were alone.
	hopeful bool
	// eligible are the domains, by key, of machines that would.
	eligible map[string][]string
}

func kindsOf(pods []*corev1.Pod) []*kind {
	var out []*kind
	known := map[string]*kind{}
	for _, pod := range pods {
		raw, err := json.Marshal([]any{pod.Spec, pod.Labels, pod.Namespace})
		if err != nil {
			panic(err) // a generated pod
		}
		k := known[string(raw)]
		if k == nil {
			k = &kind{index: len(out), pod: pod, needs: requests(pod)}
			known[string(raw)] = k
			out = append(out, k)
		}
		k.left = append(k.left, pod)
	}
	return out
}

// put moves one pod onto the node, take back.
func (k *kind) put(n *node) {
	last := len(k.left) - 1
	n.pods = append(n.pods, k.left[last])
	k.left = k.left[:last]
	for name, amount := range k.needs {
		n.free[name] -= amount
	}
	n.note(k, 1)
}

func (k *kind) take(n *node) {
	last := len(n.pods) - 1
	k.left = append(k.left, n.pods[last])
	n.pods = n.pods[:last]
	for name, amount := range k.needs {
		n.free[name] += amount
	}
	n.note(k, -1)
}
