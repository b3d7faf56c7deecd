package cases

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runWith runs case files with a program that stands for this one, and returns the lines.
func runWith(t *testing.T, files map[string]string, program string) ([]string, error) {
	t.Helper()
	dir, script := t.TempDir(), filepath.Join(t.TempDir(), "program")
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+program+"\n"), 0o700))
	var out bytes.Buffer
	err := Run(t.Context(), &out, dir, Options{Program: script, Timeout: time.Minute})
	return strings.Split(strings.TrimSpace(out.String()), "\n"), err
}

func TestRunWritesALineForEachCase(t *testing.T) {
	t.Parallel()
	plain := head("pods: []", "{step: settle}", "pending: 0")
	tests := map[string]struct {
		text, program string
		want          string
		failed        bool
	}{
		"the process passes it": {plain, `echo '{"verdict":"PASS","why":"so it is"}'`, "PASS x t: so it is [real]", false},
		"the process fails it":  {plain, `printf '%s' '{"verdict":"FAIL","why":"one\ntwo"}'`, "FAIL x t: one two [real]", true},
		"the process dies":      {plain, `echo first >&2; echo help >&2; exit 3`, "FAIL x t: its process ended without a verdict: exit status 3; last words: help [real]", true},
		"the process gets the file and the timeout": {plain, `test "$1 $2 $4 $5" = "cases --one --timeout 1m0s" && test -f "$3" && echo '{"verdict":"PASS","why":"ok"}'`,
			"PASS x t: ok [real]", false},
		"what is not supported starts no process": {head("pods: []", "{step: advance, by: 2m}", "pending: 0"), `echo '{"verdict":"PASS","why":"?"}'`,
			"SKIP x t: not supported: when[0]: advance by 2m0s needs a simulated clock [simulated]", false},
		"what is no case fails": {"a: 1\n", `echo '{"verdict":"PASS","why":"?"}'`,
			"FAIL case.yaml not a case: a case has id, given, when and expect; at least one of them is missing [real]", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, err := runWith(t, map[string]string{"case.yaml": tc.text, "notes.txt": "no case"}, tc.program)
			require.Equal(t, tc.want, lines[0])
			require.Len(t, lines, 2)
			if tc.failed {
				require.ErrorIs(t, err, ErrFailed)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestVariantsAndCountsAreTold(t *testing.T) {
	t.Parallel()
	text := head("pods: []", "{step: settle}", "{pending: 0, variants: [{name: more rain}]}")
	lines, err := runWith(t, map[string]string{"b.yaml": text, "a.yaml": strings.Replace(text, "id: x", "id: w", 1)}, `echo '{"verdict":"PASS","why":"ok"}'`)
	require.NoError(t, err)
	require.Equal(t, []string{
		"PASS w t: ok [real]", "SKIP w/1 more rain: variants are told in words and not run yet [real]",
		"PASS x t: ok [real]", "SKIP x/1 more rain: variants are told in words and not run yet [real]",
		"2 passed, 0 failed, 2 skipped",
	}, lines)
}

func TestADirectoryWithoutCasesIsAnError(t *testing.T) {
	t.Parallel()
	_, err := runWith(t, nil, "exit 0")
	require.ErrorContains(t, err, "has no case file")
}
