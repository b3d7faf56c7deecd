package ec2sim

import "time"

// ailing is what is wrong with an instance; zero times are healthy.
type ailing struct {
	instance, system time.Time // since when the check fails
	events           []StatusEvent
}

// StatusEvent is something that EC2 has scheduled for an instance.
type StatusEvent struct{ Code, Description string }

func (a *ailing) codes() []string {
	var out []string
	for _, e := range a.events {
		out = append(out, e.Code)
	}
	return out
}

func statusWord(since time.Time) string {
	if since.IsZero() {
		return "ok"
	}
	return "impaired"
}

// FailChecks makes the instance's own check, the one of its host, or both fail since a time; a zero time
// makes it healthy again. It reports whether there is such an instance.
func (s *Server) FailChecks(id string, instanceSince, systemSince time.Time) bool {
	return s.change(id, func(i *instance) { i.ailing.instance, i.ailing.system = instanceSince, systemSince })
}

// Schedule announces events for the instance; none takes them back. It reports whether there is such an
// instance.
func (s *Server) Schedule(id string, events ...StatusEvent) bool {
	return s.change(id, func(i *instance) { i.ailing.events = events })
}
