package ec2sim

import "math"

// Capacity types as Instance.CapacityType says them.
const (
	Spot     = "spot"
	OnDemand = "on-demand"
	Reserved = "reserved"
)

// poolKey names a capacity pool: the spare machines of a type in a zone that
// are sold one way.
type poolKey struct{ instanceType, zone, capacityType string }

// poolPattern matches pools; empty parts match all.
type poolPattern struct{ instanceType, zone, capacityType string }

func (p poolPattern) matches(k poolKey) bool {
	return (p.instanceType == "" || p.instanceType == k.instanceType) &&
		(p.zone == "" || p.zone == k.zone) && (p.capacityType == "" || p.capacityType == k.capacityType)
}

// poolTable knows how deep pools are. Spot pools hold 20 to 5,000 small machines
// and fewer large ones, decided by the seed; on-demand pools do not run dry
// unless a test says so. No reply of the server tells a depth.
type poolTable struct {
	seed   uint64
	types  *typeTable
	depth  map[poolKey]int // computed or set, of an empty pool
	used   map[poolKey]int
	errors []poolError // later ones win
}

type poolError struct {
	pattern poolPattern
	code    string
}

func newPoolTable(seed uint64, types *typeTable) *poolTable {
	return &poolTable{seed: seed, types: types, depth: map[poolKey]int{}, used: map[poolKey]int{}}
}

const bottomless = math.MaxInt32

func (t *poolTable) capacity(k poolKey) int {
	if d, known := t.depth[k]; known {
		return d
	}
	d := bottomless
	if k.capacityType == Spot {
		small := 20 * math.Exp2(8*unit(t.seed, "depth|"+k.instanceType+"|"+k.zone))
		if e := t.types.byName[k.instanceType]; e != nil {
			small /= max(1, float64(e.VCPUs)/8)
			if len(e.GPUs)+len(e.NeuronDevices) > 0 {
				small /= 4
			}
		}
		d = max(2, int(small))
	}
	t.depth[k] = d
	return d
}

// left is how many more instances a pool can give.
func (t *poolTable) left(k poolKey) int { return max(0, t.capacity(k)-t.used[k]) }

// rank orders pools by spare capacity: spot by what is left, others, which have
// plenty, by a constant of the seed.
func (t *poolTable) rank(k poolKey) float64 {
	if k.capacityType == Spot {
		return float64(t.left(k))
	}
	return unit(t.seed, "rank|"+k.instanceType+"|"+k.zone+"|"+k.capacityType)
}

func (t *poolTable) take(k poolKey) { t.used[k]++ }

func (t *poolTable) give(k poolKey) {
	if t.used[k]--; t.used[k] <= 0 {
		delete(t.used, k)
	}
}

// errorCode is the code that launches in a pool must fail with, "" for none.
func (t *poolTable) errorCode(k poolKey) string {
	for i := len(t.errors) - 1; i >= 0; i-- {
		if t.errors[i].pattern.matches(k) {
			return t.errors[i].code
		}
	}
	return ""
}

func (t *poolTable) setError(p poolPattern, code string) {
	kept := t.errors[:0]
	for _, e := range t.errors {
		if e.pattern != p {
			kept = append(kept, e)
		}
	}
	t.errors = kept
	if code != "" {
		t.errors = append(t.errors, poolError{p, code})
	}
}

// setDepth fixes how many more instances a pool can give; n < 0 restores the seed's depth.
func (t *poolTable) setDepth(k poolKey, n int) {
	if n < 0 {
		delete(t.depth, k)
		return
	}
	t.depth[k] = t.used[k] + n
}
