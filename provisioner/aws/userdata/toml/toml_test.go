package toml_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/userdata/toml"
)

const document = `# comment
title = "a \"quoted\" text \u00e9" # more
[settings.kubernetes]
max-pods = 1_000
when = 1979-05-27 07:32:00Z
ratio = -1.5e3
"odd key".'x y' = 'C:\path'
list = [ "a", # one
  'b', ]
inline = { x = 1, y.z = true }
text = """
one \
   two
three"""
[[settings.sources]]
name = "first"
[[settings.sources]]
name = "second"
[settings.empty]
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := toml.Parse(document)
	require.NoError(t, err)
	require.Equal(t, toml.Table{
		"title": `a "quoted" text é`,
		"settings": toml.Table{
			"kubernetes": toml.Table{
				"max-pods": toml.Literal("1_000"), "when": toml.Literal("1979-05-27 07:32:00Z"), "ratio": toml.Literal("-1.5e3"),
				"odd key": toml.Table{"x y": `C:\path`}, "list": []any{"a", "b"},
				"inline": toml.Table{"x": toml.Literal("1"), "y": toml.Table{"z": true}}, "text": "one two\nthree",
			},
			"sources": []any{toml.Table{"name": "first"}, toml.Table{"name": "second"}},
			"empty":   toml.Table{},
		},
	}, got)
}

func TestParseNamesTheLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a = 1\na = 2":             "line 2: key a is set twice",
		"[a]\n[a]":                 "line 2: table a is defined twice",
		"a":                        "line 1: key a has no value",
		"a = ":                     "line 1: value is missing",
		"a = \"x":                  "line 1: string is not closed",
		"a = [1, 2":                "array is not closed",
		"a = {b = 1":               "inline table is not closed",
		"a = 1 b = 2":              "unexpected",
		"[a":                       "line 1: table header is not closed",
		"a = 1\n[a]":               "line 2: a must be a table",
		"a = \"\\q\"":              "unknown escape",
		"a = {x = 1}\n[a]\ny = 2":  "line 2: table a is defined twice",
		"\xff":                     "not UTF-8",
		"a = \"\\ud800\"":          "is no character",
		"x = 'never\nclosed'":      "string is not closed",
		"= 3":                      "key is missing",
		"[[a]]\nb = 1\n[a]\nb = 2": "a must be a table",
	} {
		_, err := toml.Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

// What Format writes, Parse reads as the same.
func FuzzRoundTrip(f *testing.F) {
	f.Add(document)
	f.Add("a.b = {c = [[1], {d = 2}]}")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := toml.Parse(text)
		if err != nil {
			return
		}
		second, err := toml.Parse(toml.Format(first))
		require.NoError(t, err, toml.Format(first))
		require.Equal(t, first, second)
	})
}
