package demo

import (
	"context"
	"fmt"
	"io"
	"time"
)

// story prints what happened, each line with the seconds since the beginning.
type story struct {
	out   io.Writer
	start time.Time
	now   func() time.Time
	watch *timeline
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%7.2fs  %s\n", s.now().Sub(s.start).Seconds(), fmt.Sprintf(format, args...))
}

func (s *story) title(text string) { fmt.Fprintf(s.out, "\n%s\n", text) }

const pollInterval = 20 * time.Millisecond

// expect waits until seen reports true for what the watches told so far, then prints its sentence. It
// fails when that takes longer than the timeout, telling what was missing.
func (s *story) expect(ctx context.Context, what string, timeout time.Duration, seen func(view) (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, detail := seen(s.watch.view())
		if ok {
			s.say("%s: %s", what, detail)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("step %q was not seen within %s: %s", what, timeout, detail)
		}
	}
}
