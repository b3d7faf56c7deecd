package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrFailed tells that a case failed.
var ErrFailed = errors.New("a case failed")

// Options of Run.
type Options struct {
	// Timeout for one case; 0 means 120 s.
	Timeout time.Duration
	// Logs is a directory for what each case's cluster logged; empty leaves the logs away.
	Logs string
	// Program that runs a single case when it is called with "cases --one FILE"; empty means this one.
	Program string
}

const defaultTimeout = 120 * time.Second

// Verdicts of a case.
const (
	pass = "PASS"
	fail = "FAIL"
	skip = "SKIP"
)

// result is one line. It says whether the case runs in real or in simulated time; only the first is
// possible today.
type result struct {
	Verdict string `json:"verdict"`
	ID      string `json:"id"`
	Title   string `json:"title"`
	Why     string `json:"why"`

	simulated bool
}

func (r result) String() string {
	clock := "real"
	if r.simulated {
		clock = "simulated"
	}
	return fmt.Sprintf("%s %s %s: %s [%s]", r.Verdict, r.ID, r.Title, strings.ReplaceAll(r.Why, "\n", " "), clock)
}

// Run runs every case file of the directory, one after the other and each in a process of its own, and
// writes a line for each to out. A variant of a case is told in words and gets a line that says that it
// was not run. The error is ErrFailed when a case failed; a directory without cases is an error too.
func Run(ctx context.Context, out io.Writer, dir string, options Options) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list cases: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("directory %s has no case file (*.yaml)", dir)
	}
	slices.Sort(files)
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	if options.Program == "" {
		if options.Program, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
	}
	counts := map[string]int{}
	for _, path := range files {
		for _, r := range runFile(ctx, path, options) {
			counts[r.Verdict]++
			fmt.Fprintln(out, r)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", counts[pass], counts[fail], counts[skip])
	if counts[fail] > 0 {
		return ErrFailed
	}
	return nil
}

// runFile returns the line of a case, and one for each of its variants.
func runFile(ctx context.Context, path string, options Options) []result {
	raw, err := os.ReadFile(path)
	if err != nil {
		return []result{{Verdict: fail, ID: filepath.Base(path), Title: "unreadable", Why: err.Error()}}
	}
	s, err := parse(raw)
	if err != nil {
		return []result{{Verdict: fail, ID: filepath.Base(path), Title: "not a case", Why: err.Error()}}
	}
	r := result{ID: s.ID, Title: s.Title, simulated: s.simulated}
	if r.Why = s.obstacle(); r.Why != "" {
		r.Verdict = skip
	} else {
		r.Verdict, r.Why = runProcess(ctx, path, s.ID, options)
	}
	results := []result{r}
	for i, name := range s.variants {
		results = append(results, result{
			Verdict: skip, ID: fmt.Sprintf("%s/%d", s.ID, i+1), Title: name,
			Why: "variants are told in words and not run yet", simulated: s.simulated,
		})
	}
	return results
}

// obstacle says why there is no use in running the scenario, and is empty when there is.
func (s *scenario) obstacle() string {
	switch {
	case len(s.blocking) > 0:
		return "not supported: " + strings.Join(s.blocking, "; ")
	case s.expect.empty():
		return "nothing of what it expects can be judged" + s.notJudged()
	default:
		return ""
	}
}

// runProcess runs a case in a process of its own and returns its verdict.
func runProcess(ctx context.Context, path, id string, options Options) (verdict, why string) {
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout+2*stopTimeout, fmt.Errorf("it did not end in %s", options.Timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, options.Program, "cases", "--one", path, "--timeout", options.Timeout.String())
	var stdout bytes.Buffer
	tail := &tailWriter{}
	cmd.Stdout, cmd.Stderr = &stdout, tail
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	if options.Logs != "" {
		log, err := os.Create(filepath.Join(options.Logs, id+".log"))
		if err != nil {
			return fail, fmt.Sprintf("create log: %s", err)
		}
		defer log.Close()
		cmd.Stderr = io.MultiWriter(log, tail)
	}
	err := cmd.Run()
	var r result
	if json.Unmarshal(stdout.Bytes(), &r) == nil && r.Verdict != "" {
		return r.Verdict, r.Why
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fail, fmt.Sprintf("its process ended without a verdict: %v; last words: %s", err, tail.last())
}

// tailWriter keeps the last of what is written.
type tailWriter struct{ kept []byte }

const tailSize = 4096

// Write never fails.
func (w *tailWriter) Write(p []byte) (int, error) {
	w.kept = append(w.kept, p...)
	if extra := len(w.kept) - tailSize; extra > 0 {
		w.kept = slices.Delete(w.kept, 0, extra)
	}
	return len(p), nil
}

func (w *tailWriter) last() string {
	lines := strings.Split(strings.TrimSpace(string(w.kept)), "\n")
	return lines[len(lines)-1]
}

// RunOne runs the case of the file in this process and writes its result to out as JSON.
func RunOne(ctx context.Context, out io.Writer, path string, timeout time.Duration) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read case: %w", err)
	}
	s, err := parse(raw)
	if err != nil {
		return fmt.Errorf("parse case %s: %w", path, err)
	}
	r := result{Verdict: skip, ID: s.ID, Title: s.Title, Why: s.obstacle()}
	if r.Why != "" {
		return json.NewEncoder(out).Encode(r)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it did not end in %s", timeout))
	defer cancel()
	begun := time.Now()
	seen, err := s.run(ctx)
	r.Verdict, r.Why = s.verdict(seen, err, time.Since(begun))
	return json.NewEncoder(out).Encode(r)
}

// verdict sums up: what does not hold is a failure; what was not judged keeps a case from passing.
func (s *scenario) verdict(seen *observation, err error, took time.Duration) (verdict, why string) {
	if unsupported := (*unsupportedError)(nil); errors.As(err, &unsupported) {
		return skip, "not supported: " + unsupported.Error()
	}
	if err != nil {
		return fail, err.Error()
	}
	if wrong := judge(&s.expect, seen); len(wrong) > 0 {
		return fail, strings.Join(wrong, "; ") + s.notJudged()
	}
	launched := describe(launchesWhere(seen, func(claimSeen) bool { return true }))
	story := fmt.Sprintf("launched %v, %d pods pending, in %s", launched, len(seen.pending()), took.Round(100*time.Millisecond))
	if len(s.unchecked) > 0 {
		return skip, fmt.Sprintf("what can be judged holds: %s%s", story, s.notJudged())
	}
	return pass, story
}

func (s *scenario) notJudged() string {
	if len(s.unchecked) == 0 {
		return ""
	}
	return "; not judged yet: " + strings.Join(s.unchecked, "; ")
}
