package pyrand

import (
	"crypto/sha512"
	"math"
	"math/bits"
)

// Parameters of MT19937, from the paper of Matsumoto and Nishimura (1998).
const (
	words      = 624
	middle     = 397
	matrix     = 0x9908b0df
	upperMask  = 0x80000000
	lowerMask  = 0x7fffffff
	seedFactor = 1812433253
)

// Random is a Mersenne Twister with the derived distributions of Python 3. It is not safe for concurrent use.
type Random struct {
	state [words]uint32
	next  int
	// spare is the second half of a pair of normal numbers; it is used up before new ones are drawn.
	spare    float64
	hasSpare bool
}

// FromText is random.Random(text): the number whose big-endian bytes are the text and its SHA-512.
func FromText(text string) *Random {
	sum := sha512.Sum512([]byte(text))
	return fromBytes(append([]byte(text), sum[:]...))
}

// FromInt is random.Random(n) of a number that is not negative.
func FromInt(n uint64) *Random {
	key := []uint32{uint32(n)} //nolint:gosec // the halves of the number are meant
	if high := uint32(n >> 32); high > 0 {
		key = append(key, high)
	}
	return fromKey(key)
}

// fromBytes seeds with a big-endian number.
func fromBytes(number []byte) *Random {
	for len(number) > 0 && number[0] == 0 {
		number = number[1:]
	}
	key := make([]uint32, max(1, (len(number)+3)/4))
	for i := range number {
		fromEnd := len(number) - 1 - i
		key[fromEnd/4] |= uint32(number[i]) << (8 * (fromEnd % 4))
	}
	return fromKey(key)
}

// fromKey is the paper's initialization by an array, least significant word first.
func fromKey(key []uint32) *Random {
	r := &Random{next: words}
	mix := func(i int) uint32 { return r.state[i-1] ^ r.state[i-1]>>30 }
	r.state[0] = 19650218
	for i := 1; i < words; i++ {
		r.state[i] = seedFactor*mix(i) + uint32(i)
	}
	i, j := 1, 0
	wrap := func() {
		if i++; i >= words {
			r.state[0], i = r.state[words-1], 1
		}
	}
	for range max(words, len(key)) {
		r.state[i] = (r.state[i] ^ mix(i)*1664525) + key[j] + uint32(j) //nolint:gosec // an index of a short list
		wrap()
		j = (j + 1) % len(key)
	}
	for range words - 1 {
		r.state[i] = (r.state[i] ^ mix(i)*1566083941) - uint32(i)
		wrap()
	}
	r.state[0] = 1 << 31
	return r
}

func (r *Random) uint32() uint32 {
	if r.next == words {
		r.twist()
	}
	y := r.state[r.next]
	r.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

func (r *Random) twist() {
	for i := range r.state {
		y := r.state[i]&upperMask | r.state[(i+1)%words]&lowerMask
		r.state[i] = r.state[(i+middle)%words] ^ y>>1 ^ y&1*matrix
	}
	r.next = 0
}

// Float64 is random(): 53 random bits, at least 0 and below 1.
func (r *Random) Float64() float64 {
	high, low := r.uint32()>>5, r.uint32()>>6
	return float64(uint64(high)<<26|uint64(low)) / (1 << 53)
}

// IntN is randrange(n), for n from 1 to 2^31.
func (r *Random) IntN(n int) int {
	shift := 32 - bits.Len32(uint32(n)) //nolint:gosec // bounded by contract
	for {
		if k := int(r.uint32() >> shift); k < n {
			return k
		}
	}
}

// Between is randrange(low, high): at least low and below high.
func (r *Random) Between(low, high int) int { return low + r.IntN(high-low) }

// Choice is choice(list).
func Choice[T any](r *Random, list ...T) T { return list[r.IntN(len(list))] }

// Gauss is gauss(mean, deviation).
func (r *Random) Gauss(mean, deviation float64) float64 {
	z := r.spare
	if !r.hasSpare {
		angle := r.Float64() * (2 * math.Pi)
		radius := math.Sqrt(-2 * math.Log(1-r.Float64()))
		z, r.spare = math.Cos(angle)*radius, math.Sin(angle)*radius
	}
	r.hasSpare = !r.hasSpare
	return mean + float64(z*deviation) // the conversion forbids fusing the two operations
}
