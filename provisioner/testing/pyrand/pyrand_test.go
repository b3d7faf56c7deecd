package pyrand

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The numbers were drawn by Python 3.11.
func TestDrawsWhatPythonDraws(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		random  *Random
		uniform []float64
		ints    []int // below 1, 2, 20 and 1000, then from 50 to 150
		letter  string
		normal  []float64
	}{
		"seed 0": {FromInt(0), []float64{0.8444218515250481, 0.7579544029403025}, []int{0, 0, 8, 988, 115}, "d",
			[]float64{-1.4471231264273656, 0.9843395512466481, -0.37407684698672905}},
		"seed 1": {FromInt(1), []float64{0.13436424411240122, 0.8474337369372327}, []int{0, 1, 3, 507, 147}, "d",
			[]float64{-0.9623337882514796, 0.16954188799600486, 0.2880150122639932}},
		"a seed of two words": {FromInt(1<<40 + 5), []float64{0.5043802970418443, 0.2686044399723282}, []int{0, 0, 5, 81, 67}, "b",
			[]float64{1.3736153209971664, -0.6591516884878407, 0.02748631902880168}},
		"a text": {FromText("1/micro"), []float64{0.8315416120725554, 0.6054502182177023}, []int{0, 1, 4, 204, 94}, "b",
			[]float64{0.7872228384467157, 0.5576456170108718, -1.7627162241851018}},
		"the empty text": {FromText(""), []float64{0.9602256525641875, 0.595411957851699}, []int{0, 0, 10, 792, 129}, "a",
			[]float64{1.3832161039572832, -0.281437623996834, -0.2097351735536268}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tc.random
			for _, want := range tc.uniform {
				require.Equal(t, want, r.Float64())
			}
			require.Equal(t, tc.ints, []int{r.IntN(1), r.IntN(2), r.IntN(20), r.IntN(1000), r.Between(50, 151)})
			require.Equal(t, tc.letter, Choice(r, "a", "b", "c", "d", "e", "f", "g"))
			for _, want := range tc.normal {
				require.InEpsilon(t, want, r.Gauss(0, 1), 1e-14, "sine and logarithm may differ in the last bit")
			}
		})
	}
}

func TestDrawsMoreThanOneRound(t *testing.T) {
	t.Parallel()
	r := FromInt(1)
	for range 2000 {
		r.Float64()
	}
	require.Equal(t, 0.3897357306683825, r.Float64())
}
