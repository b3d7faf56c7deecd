package ec2sim

import (
	"net/http"
	"time"
)

// limit is a token bucket: size tokens at most, rate tokens more each second.
type limit struct{ size, rate float64 }

// EC2's documented defaults per account, region and action.
// Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html,
// tables "Request token bucket sizes and refill rates" and "Resource token
// bucket sizes and refill rates".
var (
	nonMutating   = limit{100, 20} // Describe*, List*, Search*, Get*
	unfiltered    = limit{50, 10}  // some of those, called without filter and paging
	mutating      = limit{50, 5}   // all others, CreateFleet and CreateLaunchTemplate among them
	uncategorized = map[string]limit{
		"CreateTags":         {100, 10},
		"RunInstances":       {5, 2},
		"TerminateInstances": {100, 5},
	}
	smallerWhenUnfiltered = map[string]bool{
		"DescribeInstances":      true,
		"DescribeInstanceStatus": true,
		"DescribeSecurityGroups": true,
	}
	// resources counts the instances of a request and not requests.
	resources = map[string]limit{
		"RunInstances":       {1000, 2},
		"TerminateInstances": {1000, 20},
	}
)

type bucket struct {
	limit
	tokens float64
	at     time.Time
}

// throttle takes the tokens that a request costs, or refuses it. A dry run
// costs as much as the real call.
func (s *Server) throttle(r *request) *apiError {
	if !s.opts.Throttle || r.service != "ec2" {
		return nil
	}
	name, l := r.action, mutating
	if own, ok := uncategorized[r.action]; ok {
		l = own
	} else if isRead(r.action) {
		l = nonMutating
		if smallerWhenUnfiltered[r.action] && !r.form.has("Filter") && !r.form.has("MaxResults") {
			name, l = r.action+" unfiltered", unfiltered
		}
	}
	if !s.spend(name, l, 1) {
		return throttled()
	}
	if l, ok := resources[r.action]; ok {
		n := len(r.form.list("InstanceId"))
		if r.action == "RunInstances" {
			n, _ = r.form.integer("MaxCount", 1)
		}
		if !s.spend(r.action+" resources", l, float64(max(n, 0))) {
			return throttled()
		}
	}
	return nil
}

func throttled() *apiError {
	return refuse(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
}

func isRead(action string) bool {
	for _, prefix := range []string{"Describe", "List", "Search", "Get"} {
		if len(action) > len(prefix) && action[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

func (s *Server) spend(name string, l limit, cost float64) bool {
	now := s.opts.Clock.Now()
	b := s.buckets[name]
	if b == nil {
		b = &bucket{limit: l, tokens: l.size, at: now}
		s.buckets[name] = b
	}
	b.tokens = min(b.size, b.tokens+b.rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < cost {
		return false
	}
	b.tokens -= cost
	return true
}
