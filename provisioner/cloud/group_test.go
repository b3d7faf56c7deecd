package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/cloud"
)

func TestGroupRoundTrip(t *testing.T) {
	t.Parallel()
	g := cloud.GroupRef{ID: "g1", Attempt: 2, Members: []string{"b", "a"}}
	got, err := cloud.ParseGroup(g.Encode(), "a")
	require.NoError(t, err)
	require.Equal(t, g, got, "the order of members is part of the identity")
}

func TestParseGroupRejects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"not JSON":       {text: "x", want: "parse launch group"},
		"no id":          {text: `{"attempt":1,"members":["a"]}`, want: "has no id"},
		"no attempt":     {text: `{"id":"g","members":["a"]}`, want: "starts at 1"},
		"not a member":   {text: `{"id":"g","attempt":1,"members":["b"]}`, want: "does not list its member a"},
		"wrong type":     {text: `{"id":7}`, want: "parse launch group"},
		"nothing at all": {text: "", want: "parse launch group"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := cloud.ParseGroup(tc.text, "a")
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func FuzzParseGroup(f *testing.F) {
	f.Add(`{"id":"g","attempt":1,"members":["a"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := cloud.ParseGroup(text, "a")
		if err != nil {
			return
		}
		again, err := cloud.ParseGroup(g.Encode(), "a")
		require.NoError(t, err)
		require.Equal(t, g, again)
	})
}
