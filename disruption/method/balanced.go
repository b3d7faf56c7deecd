package method

// Scale is a pool as the Balanced policy weighs moves in it.
type Scale struct {
	// Cost is what all nodes of the pool cost, USD per hour; Trouble what emptying all of them would cost.
	Cost, Trouble float64
}

// balancedThreshold is the least score that the Balanced policy approves: a move may cost twice its part
// of the saving in trouble.
const balancedThreshold = 0.5

// Score weighs a move in a pool: its part of the pool's cost that is saved, over its part of the trouble.
func (s Scale) Score(saving, trouble float64) float64 {
	switch {
	case saving <= 0 || s.Cost <= 0 || s.Trouble <= 0:
		return 0
	case trouble <= 0:
		return inf
	}
	return (saving / s.Cost) / (trouble / s.Trouble)
}

const inf = 1e308

// Approves reports whether the Balanced policy lets the move happen.
func (s Scale) Approves(saving, trouble float64) bool {
	return s.Score(saving, trouble) >= balancedThreshold
}
