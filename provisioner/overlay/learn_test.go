package overlay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/overlay"
)

const grace = 5 * time.Minute

// sight is a node of m.large for which 4 were declared, bought in the belief of having them.
func sight(node string, born time.Time, have int64, change ...func(*overlay.Sight)) overlay.Sight {
	s := overlay.Sight{
		Target: overlay.Target{Rule: "uid-o", Pool: "default", Type: "m.large", Resource: vendor}, Generation: 1,
		Node: node, Born: born, Have: have, Declared: 4, Believed: true,
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// limits lists what the findings limit, by instance type.
func limits(seen overlay.Seen) map[string]int64 {
	out := map[string]int64{}
	for target, f := range seen {
		out[target.Type] = f.Have
	}
	return out
}

func TestLearner(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	ofType := func(name string) func(*overlay.Sight) { return func(s *overlay.Sight) { s.Type = name } }
	second := func(s *overlay.Sight) { s.Generation = 2 }
	unaware := func(s *overlay.Sight) { s.Believed = false }
	type look struct {
		at         time.Duration
		generation int64 // of the rule; 0 means 1
		sights     []overlay.Sight
		want       map[string]int64
	}
	list := func(s ...overlay.Sight) []overlay.Sight { return s }
	none, nothing := map[string]int64{}, map[string]int64{"m.large": 0}
	tests := map[string][]look{
		"device plugins may take their time": {
			{at: 0, sights: list(sight("n", t0, 0)), want: none},
			{at: grace - 1, sights: list(sight("n", t0, 0)), want: none},
			{at: grace, sights: list(sight("n", t0, 4)), want: none},
			{at: 3 * grace, sights: list(sight("n", t0, 4)), want: none},
		},
		"the first node tells, and later that it has come": {
			{at: 0, sights: list(sight("n", t0, 0)), want: none},
			{at: grace, sights: list(sight("n", t0, 0)), want: nothing},
			{at: 2 * grace, sights: list(sight("n", t0, 4)), want: none},
		},
		"a part of it": {
			{at: 0, sights: list(sight("n", t0, 3)), want: none},
			{at: grace, sights: list(sight("n", t0, 3)), want: map[string]int64{"m.large": 3}},
		},
		"a node that was not bought for it tells nothing of lack": {
			{at: 0, sights: list(sight("n", t0, 0, unaware)), want: none},
			{at: grace, sights: list(sight("n", t0, 0, unaware)), want: none},
		},
		"one broken machine among good ones is no proof, three in a row are": {
			{at: 0, sights: list(sight("good", t0, 4), sight("bad1", at(1), 0), sight("bad2", at(2), 0)), want: none},
			{at: grace, sights: list(sight("good", t0, 4), sight("bad1", at(1), 0), sight("bad2", at(2), 0)), want: none},
			{at: 2 * grace, sights: list(sight("bad1", at(1), 0), sight("bad2", at(2), 0), sight("bad3", at(3), 0)), want: none},
			{at: 3 * grace, sights: list(sight("bad1", at(1), 0), sight("bad2", at(2), 0), sight("bad3", at(3), 0)), want: nothing},
			{at: 4 * grace, sights: list(sight("bad1", at(1), 0), sight("bad2", at(2), 0), sight("bad3", at(3), 0), sight("good", at(4), 4)), want: none},
		},
		"it is remembered for a day without the node": {
			{at: 0, sights: list(sight("n", t0, 0)), want: none},
			{at: grace, sights: list(sight("n", t0, 0)), want: nothing},
			{at: 24 * time.Hour, want: nothing},
			{at: 25 * time.Hour, want: none},
		},
		"another generation has it tried again, by nodes that come after it": {
			{at: 0, sights: list(sight("n", t0, 0)), want: none},
			{at: grace, sights: list(sight("n", t0, 0)), want: nothing},
			{at: 2 * grace, generation: 2, sights: list(sight("n", t0, 0, second)), want: none},
			{at: 4 * grace, generation: 2, sights: list(sight("n", t0, 0, second)), want: none},
			{at: 5 * grace, generation: 2, sights: list(sight("new", at(4*grace), 0, second)), want: none},
			{at: 6 * grace, generation: 2, sights: list(sight("new", at(4*grace), 0, second)), want: nothing},
		},
		"after a restart the nodes that are there tell": {
			{at: 100 * grace, generation: 2, sights: list(sight("n", t0, 0, second)), want: none},
			{at: 101 * grace, generation: 2, sights: list(sight("n", t0, 0, second)), want: nothing},
		},
		"three types without it are enough": {
			{at: 0, sights: list(sight("a", t0, 0), sight("b", t0, 0, ofType("m.xlarge"))), want: none},
			{at: grace, sights: list(sight("a", t0, 0), sight("b", t0, 0, ofType("m.xlarge"))), want: map[string]int64{"m.large": 0, "m.xlarge": 0}},
			{at: grace + 1, sights: list(sight("c", t0, 0, ofType("c.large"))), want: map[string]int64{"m.large": 0, "m.xlarge": 0}},
			{at: 2*grace + 1, sights: list(sight("c", t0, 0, ofType("c.large"))), want: map[string]int64{"m.large": 0, "m.xlarge": 0, "c.large": 0, "": 0}},
			{at: 2*grace + 2, sights: list(sight("c", t0, 4, ofType("c.large"))), want: map[string]int64{"m.large": 0, "m.xlarge": 0}},
		},
		"not when some type has it": {
			{at: 0, sights: list(sight("a", t0, 0), sight("b", t0, 0, ofType("b")), sight("c", t0, 0, ofType("c")), sight("d", t0, 4, ofType("d"))), want: none},
			{at: grace, sights: list(sight("a", t0, 0), sight("b", t0, 0, ofType("b")), sight("c", t0, 0, ofType("c")), sight("d", t0, 4, ofType("d"))),
				want: map[string]int64{"m.large": 0, "b": 0, "c": 0}},
		},
	}
	for name, looks := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &overlay.Learner{Grace: grace}
			before := none
			for i, k := range looks {
				o := makeOverlay("o", capacity(vendor, "4"))
				o.Generation = max(1, k.generation)
				applied := rules(t, o)
				if len(k.sights) == 0 {
					l.Recall(at(k.at), applied)
				}
				seen, changed := l.Look(at(k.at), applied, k.sights)
				require.Equal(t, k.want, limits(seen), "look %d", i)
				if fmt.Sprint(before) != fmt.Sprint(k.want) && len(k.sights) > 0 {
					require.True(t, changed, "look %d", i)
				}
				before = k.want
			}
		})
	}
	l := &overlay.Learner{Grace: grace}
	applied := rules(t, makeOverlay("o", capacity(vendor, "4")))
	l.Look(t0, applied, list(sight("n", t0, 0)))
	l.Look(at(grace), applied, list(sight("n", t0, 0)))
	_, changed := l.Look(at(2*grace), applied, list(sight("n", t0, 0)))
	require.False(t, changed, "nothing new")
	require.Empty(t, l.Recall(at(2*grace), nil), "the overlay is gone")
}
