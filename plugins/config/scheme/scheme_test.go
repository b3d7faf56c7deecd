package scheme_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/plugins/config"
	"github.com/berth-dev/berth/plugins/config/scheme"
	configv1 "github.com/berth-dev/berth/plugins/config/v1"
	"github.com/berth-dev/berth/plugins/config/validation"
)

func defaults() *config.NodeProvisionArgs {
	return &config.NodeProvisionArgs{
		Preemption: config.ProvisionFirst, Hold: config.HoldEqualOrLower,
		BatchIdleDuration: 100 * time.Millisecond, BatchMaxDuration: time.Second,
		PreferencePolicy: config.PreferenceGuide, MinValuesPolicy: config.MinValuesStrict,
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	with := func(change func(*config.NodeProvisionArgs)) *config.NodeProvisionArgs {
		args := defaults()
		change(args)
		return args
	}
	tests := map[string]struct {
		raw     string
		want    *config.NodeProvisionArgs
		wantErr string
	}{
		"nothing means the defaults":        {raw: ``, want: defaults()},
		"apiVersion and kind may be absent": {raw: `{"hold":"All"}`, want: with(func(a *config.NodeProvisionArgs) { a.Hold = config.HoldAll })},
		"every field arrives": {
			raw: `{"apiVersion":"berth.dev/v1","kind":"NodeProvisionArgs","preemption":"PreemptFirst",
				"priorityClassPolicies":[{"priorityClassNames":["a","b"],"preemption":"Never"}],"hold":"All",
				"batchIdleDuration":"1s","batchMaxDuration":"10s","preferencePolicy":"Respect",
				"minValuesPolicy":"BestEffort","provisionFor":["default-scheduler"]}`,
			want: &config.NodeProvisionArgs{
				Preemption: config.PreemptFirst, Hold: config.HoldAll,
				PriorityClassPolicies: []config.PriorityClassPolicy{{PriorityClassNames: []string{"a", "b"}, Preemption: config.Never}},
				BatchIdleDuration:     time.Second, BatchMaxDuration: 10 * time.Second,
				PreferencePolicy: config.PreferenceRespect, MinValuesPolicy: config.MinValuesBestEffort,
				ProvisionFor: []string{"default-scheduler"},
			},
		},
		"a long idle window stretches the default maximum": {
			raw: `{"batchIdleDuration":"5s"}`,
			want: with(func(a *config.NodeProvisionArgs) {
				a.BatchIdleDuration, a.BatchMaxDuration = 5*time.Second, 5*time.Second
			}),
		},
		"an unknown field is an error":    {raw: `{"premption":"Never"}`, wantErr: `unknown field "premption"`},
		"a field given twice is an error": {raw: `{"hold":"All","hold":"All"}`, wantErr: "hold"},
		"another kind is an error":        {raw: `{"apiVersion":"berth.dev/v1","kind":"Other"}`, wantErr: "Other"},
		"another version is an error":     {raw: `{"apiVersion":"berth.dev/v9","kind":"NodeProvisionArgs"}`, wantErr: "berth.dev/v9"},
		"a duration must be one":          {raw: `{"batchIdleDuration":"soon"}`, wantErr: "soon"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := scheme.Decode(&runtime.Unknown{Raw: []byte(tc.raw)})
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Empty(t, validation.NodeProvision(field.NewPath("args"), got))
		})
	}
}

func TestDecodeTakesWhatTheFrameworkMayPass(t *testing.T) {
	t.Parallel()
	got, err := scheme.Decode(nil)
	require.NoError(t, err)
	require.Equal(t, defaults(), got)

	own := defaults()
	own.ProvisionFor = []string{"x"}
	got, err = scheme.Decode(own)
	require.NoError(t, err)
	require.Equal(t, own, got)
	got.ProvisionFor[0] = "y"
	require.Equal(t, "x", own.ProvisionFor[0], "the result is a copy")

	_, err = scheme.Decode(&configv1.NodeProvisionArgs{})
	require.ErrorContains(t, err, "*v1.NodeProvisionArgs")
}

func TestRoundTripKeepsEverything(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	args := defaults()
	args.PriorityClassPolicies = []config.PriorityClassPolicy{{PriorityClassNames: []string{"a"}, Preemption: config.Never}}
	args.ProvisionFor = []string{"x"}
	wire, err := s.ConvertToVersion(args, configv1.SchemeGroupVersion)
	require.NoError(t, err)
	back, err := s.ConvertToVersion(wire, config.SchemeGroupVersion)
	require.NoError(t, err)
	require.Equal(t, args, back)
	require.Equal(t, wire, wire.DeepCopyObject())
}

func TestValidation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*config.NodeProvisionArgs)
		want   string
	}{
		"Cheapest is reserved":               {func(a *config.NodeProvisionArgs) { a.Preemption = config.Cheapest }, "args.preemption: Invalid value: \"Cheapest\": is reserved and not available yet; use ProvisionFirst, PreemptFirst or Never"},
		"a wrong word lists the right ones":  {func(a *config.NodeProvisionArgs) { a.Preemption = "Sometimes" }, `args.preemption: Unsupported value: "Sometimes": supported values: "ProvisionFirst", "PreemptFirst", "Never"`},
		"hold is checked":                    {func(a *config.NodeProvisionArgs) { a.Hold = "Lower" }, "args.hold"},
		"preferences are checked":            {func(a *config.NodeProvisionArgs) { a.PreferencePolicy = "x" }, "args.preferencePolicy"},
		"minValues are checked":              {func(a *config.NodeProvisionArgs) { a.MinValuesPolicy = "x" }, "args.minValuesPolicy"},
		"an idle window lasts":               {func(a *config.NodeProvisionArgs) { a.BatchIdleDuration = 0 }, "args.batchIdleDuration: Invalid value: \"0s\": must be longer than 0s"},
		"the maximum covers the idle window": {func(a *config.NodeProvisionArgs) { a.BatchMaxDuration = time.Millisecond }, "args.batchMaxDuration: Invalid value: \"1ms\": must be at least batchIdleDuration, 100ms"},
		"a scheduler has a name":             {func(a *config.NodeProvisionArgs) { a.ProvisionFor = []string{""} }, "args.provisionFor[0]"},
		"a scheduler is named once":          {func(a *config.NodeProvisionArgs) { a.ProvisionFor = []string{"x", "x"} }, "args.provisionFor[1]: Duplicate"},
		"a class policy has a policy": {func(a *config.NodeProvisionArgs) {
			a.PriorityClassPolicies = []config.PriorityClassPolicy{{PriorityClassNames: []string{"a"}, Preemption: config.Cheapest}}
		}, "args.priorityClassPolicies[0].preemption"},
		"a class policy has classes": {func(a *config.NodeProvisionArgs) {
			a.PriorityClassPolicies = []config.PriorityClassPolicy{{Preemption: config.Never}}
		}, "args.priorityClassPolicies[0].priorityClassNames: Required"},
		"a class is named once": {func(a *config.NodeProvisionArgs) {
			a.PriorityClassPolicies = []config.PriorityClassPolicy{
				{PriorityClassNames: []string{"a"}, Preemption: config.Never}, {PriorityClassNames: []string{"a"}, Preemption: config.PreemptFirst},
			}
		}, "args.priorityClassPolicies[1].priorityClassNames[0]: Duplicate"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := defaults()
			tc.change(args)
			errs := validation.NodeProvision(field.NewPath("args"), args)
			require.Len(t, errs, 1)
			require.ErrorContains(t, errs[0], tc.want)
		})
	}
}
