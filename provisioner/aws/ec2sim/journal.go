package ec2sim

import (
	"net/url"
	"slices"
	"sync"
	"time"
)

// Call is one request as the server saw it.
type Call struct {
	Time    time.Time // when it arrived
	Service string    // ec2, iam, sts, ssm, pricing, eks, sqs, imds
	Action  string    // CreateFleet
	Body    string    // the form or JSON that was sent
	Code    string    // error code, empty on success; "(no reply)" for a dropped reply
	Status  int       // HTTP status
	Token   string    // the session token that it was signed with
	Took    time.Duration
}

// Form decodes the body of an EC2, IAM or STS call; it is empty for others.
func (c Call) Form() url.Values {
	v, err := url.ParseQuery(c.Body)
	if err != nil {
		return url.Values{}
	}
	return v
}

// The journal keeps the newest calls within these bounds; counts are for ever.
const (
	maxCalls     = 100_000
	maxCallBytes = 64 << 20
)

type journal struct {
	mu     sync.Mutex
	calls  []Call
	bytes  int
	counts map[string]int
}

func (j *journal) add(c Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts == nil {
		j.counts = map[string]int{}
	}
	j.counts[c.Action]++
	j.calls = append(j.calls, c)
	j.bytes += len(c.Body)
	if len(j.calls) <= maxCalls && j.bytes <= maxCallBytes {
		return
	}
	// Drop down to three quarters at once, so that a call costs little on average.
	drop := 0
	for drop < len(j.calls)-1 && (len(j.calls)-drop > maxCalls/4*3 || j.bytes > maxCallBytes/4*3) {
		j.bytes -= len(j.calls[drop].Body)
		drop++
	}
	j.calls = slices.Delete(j.calls, 0, drop)
}

// Calls returns the newest calls, oldest first.
func (s *Server) Calls() []Call {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	return slices.Clone(s.journal.calls)
}

// CallCount returns how many calls of an action there have been, failed ones included.
func (s *Server) CallCount(action string) int {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	return s.journal.counts[action]
}

// ResetCalls empties the journal and the counts.
func (s *Server) ResetCalls() {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.journal.calls, s.journal.bytes, s.journal.counts = nil, 0, nil
}
