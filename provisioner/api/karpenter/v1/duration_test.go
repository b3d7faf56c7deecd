package v1_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	karpv1 "github.com/berth-dev/berth/provisioner/api/karpenter/v1"
)

func TestNillableDurationRoundTrip(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		text string
		want *time.Duration
	}{
		"CORE-003 Never is nil":                      {"Never", nil},
		"CORE-004 24h is not re-rendered":            {"24h", ptr.To(24 * time.Hour)},
		"minutes beyond an hour stay":                {"90m", ptr.To(90 * time.Minute)},
		"the order of units stays":                   {"30m1h", ptr.To(90 * time.Minute)},
		"zero":                                       {"0s", ptr.To(time.Duration(0))},
		"leading zeros stay":                         {"0024h", ptr.To(24 * time.Hour)},
		"beyond 292 years is the longest duration":   {"99999999h", ptr.To(time.Duration(math.MaxInt64))},
		"beyond 64 bits is the longest duration too": {"99999999999999999999999s", ptr.To(time.Duration(math.MaxInt64))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d karpv1.NillableDuration
			require.NoError(t, json.Unmarshal([]byte(`"`+tc.text+`"`), &d))
			require.Equal(t, tc.want, d.Duration)
			data, err := json.Marshal(d)
			require.NoError(t, err)
			require.Equal(t, `"`+tc.text+`"`, string(data))
			require.Equal(t, tc.text, d.DeepCopy().String())
			require.True(t, equality.Semantic.DeepEqual(d, *d.DeepCopy()))
		})
	}
}

func TestNillableDurationRejects(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`""`, `"never"`, `"1d"`, `"h"`, `"1 h"`, `12`, `{}`, `["1h"]`, `"1h`} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			d := karpv1.DurationOf(time.Hour)
			require.Error(t, json.Unmarshal([]byte(text), &d))
			require.Equal(t, karpv1.DurationOf(time.Hour), d, "a failed decode must not change the value")
		})
	}
}

func TestNillableDurationSetInCode(t *testing.T) {
	t.Parallel()
	spec := karpv1.NodeClaimTemplateSpec{}
	data, err := json.Marshal(spec)
	require.NoError(t, err)
	require.NotContains(t, string(data), "expireAfter", "unset must not become Never")

	spec.ExpireAfter = karpv1.NeverElapses()
	data, err = json.Marshal(spec)
	require.NoError(t, err)
	require.Contains(t, string(data), `"expireAfter":"Never"`)

	spec.ExpireAfter = karpv1.DurationOf(90 * time.Minute)
	data, err = json.Marshal(spec)
	require.NoError(t, err)
	require.Contains(t, string(data), `"expireAfter":"1h30m0s"`)

	d, err := karpv1.ParseNillableDuration("24h")
	require.NoError(t, err)
	d.Duration = ptr.To(time.Hour)
	require.Equal(t, "1h0m0s", d.String(), "the text of an older value must not win")
	d.Duration = nil
	require.Equal(t, "Never", d.String())
}

func TestEmptyBudgetsAreNotAbsent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"budgets":[]}`, `{}`} {
		var d karpv1.Disruption
		require.NoError(t, json.Unmarshal([]byte(text), &d))
		data, err := json.Marshal(d.DeepCopy())
		require.NoError(t, err)
		require.Equal(t, text, string(data))
	}
}

func FuzzNillableDuration(f *testing.F) {
	for _, seed := range []string{"Never", "24h", "1h30m15s", "0s", "99999999h", "-1h", "1.5h", "1us", "", "9223372036854775807ns", "1h\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := karpv1.ParseNillableDuration(text)
		if err != nil {
			return
		}
		require.Equal(t, text, d.String())
		data, err := json.Marshal(d)
		require.NoError(t, err)
		var back karpv1.NillableDuration
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, d, back)
		// The text is only a way of writing: the duration alone gives the same duration back.
		if d.Duration != nil {
			again, err := karpv1.ParseNillableDuration(karpv1.DurationOf(*d.Duration).String())
			require.NoError(t, err)
			require.Equal(t, *d.Duration, *again.Duration)
		}
	})
}
