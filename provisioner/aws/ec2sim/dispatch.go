package ec2sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// request is one call on its way through the server.
type request struct {
	service, action string
	body            string
	form            *form           // query protocols
	json            json.RawMessage // JSON protocols
	path            string          // REST
	token           string
	id              string
}

// reply is what a handler made; contentType is set by the protocol.
type reply struct {
	body        []byte
	contentType string
	status      int
	header      map[string]string
}

// handler answers a request; it runs with Server.mu held.
type handler func(s *Server, r *request) ([]byte, *apiError)

var operations = map[string]map[string]handler{
	"ec2": {
		"CreateFleet":                   (*Server).createFleet,
		"CreateLaunchTemplate":          (*Server).createLaunchTemplate,
		"CreateTags":                    (*Server).createTags,
		"DeleteLaunchTemplate":          (*Server).deleteLaunchTemplate,
		"DescribeAvailabilityZones":     (*Server).describeAvailabilityZones,
		"DescribeCapacityReservations":  (*Server).describeCapacityReservations,
		"DescribeImages":                (*Server).describeImages,
		"DescribeInstances":             (*Server).describeInstances,
		"DescribeInstanceStatus":        (*Server).describeInstanceStatus,
		"DescribeInstanceTypes":         (*Server).describeInstanceTypes,
		"DescribeInstanceTypeOfferings": (*Server).describeInstanceTypeOfferings,
		"DescribeLaunchTemplates":       (*Server).describeLaunchTemplates,
		"DescribePlacementGroups":       (*Server).describePlacementGroups,
		"DescribeSecurityGroups":        (*Server).describeSecurityGroups,
		"DescribeSpotPriceHistory":      (*Server).describeSpotPriceHistory,
		"DescribeSubnets":               (*Server).describeSubnets,
		"RunInstances":                  (*Server).runInstances,
		"TerminateInstances":            (*Server).terminateInstances,
	},
	"iam": {
		"AddRoleToInstanceProfile":      (*Server).addRoleToInstanceProfile,
		"CreateInstanceProfile":         (*Server).createInstanceProfile,
		"DeleteInstanceProfile":         (*Server).deleteInstanceProfile,
		"GetInstanceProfile":            (*Server).getInstanceProfile,
		"ListInstanceProfiles":          (*Server).listInstanceProfiles,
		"RemoveRoleFromInstanceProfile": (*Server).removeRoleFromInstanceProfile,
	},
	"sts": {
		"AssumeRoleWithWebIdentity": (*Server).assumeRoleWithWebIdentity,
		"GetCallerIdentity":         (*Server).getCallerIdentity,
	},
	"ssm":     {"GetParameter": (*Server).getParameter},
	"pricing": {"GetProducts": (*Server).getProducts},
	"sqs": {
		"DeleteMessage":      (*Server).deleteMessage,
		"DeleteMessageBatch": (*Server).deleteMessageBatch,
		"GetQueueUrl":        (*Server).getQueueURL,
		"ReceiveMessage":     (*Server).receiveMessage,
		"SendMessage":        (*Server).sendMessage,
	},
	"eks":  {"DescribeCluster": (*Server).describeCluster},
	"imds": {"PutToken": (*Server).imdsToken, "GetIdentityDocument": (*Server).imdsIdentity},
}

// ServeHTTP answers one request of any of the services.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	began := s.opts.Clock.Now()
	r, bad := s.read(w, hr)
	r.id = s.requestID()
	var out reply
	if bad == nil {
		bad = s.pause(hr.Context(), r)
	}
	if bad == nil && r.service == "sqs" && r.action == "ReceiveMessage" {
		s.awaitMessages(hr.Context(), r)
	}
	dropped := false
	if bad == nil {
		var body []byte
		body, bad, dropped = s.answer(r)
		out.body = body
	}
	if bad != nil {
		out = protocolOf(r).failure(r, bad)
	} else {
		out = protocolOf(r).success(r, out.body)
	}
	call := Call{Time: began, Service: r.service, Action: r.action, Body: r.body, Status: out.status,
		Token: r.token, Took: s.opts.Clock.Since(began)}
	if bad != nil {
		call.Code = bad.code
	}
	if dropped {
		call.Code = noReply
	}
	s.journal.add(call)
	if dropped {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close() // the client sees a broken connection, as it should
			return
		}
		out.status = http.StatusBadGateway // HTTP/2 cannot be taken over; this is the nearest
	}
	h := w.Header()
	h.Set("Content-Type", out.contentType)
	h.Set("X-Amzn-Requestid", r.id)
	for key, value := range out.header {
		h.Set(key, value)
	}
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body) // a client that has gone needs no reply
}

const noReply = "(no reply)"

// answer runs faults, limits and the handler, in the order in which AWS would.
func (s *Server) answer(r *request) (body []byte, bad *apiError, dropped bool) {
	s.mu.Lock()
	s.advance()
	fault, failed := s.faults.take(r.action)
	if failed && !fault.drop {
		s.mu.Unlock()
		return nil, injected(fault.code), false
	}
	if bad = s.throttle(r); bad == nil {
		handle, known := operations[r.service][r.action]
		if known {
			body, bad = handle(s, r)
		} else {
			bad = unknownAction(r)
		}
	}
	hooks := s.faults.takeHooks(r.action)
	s.mu.Unlock()
	for _, hook := range hooks {
		hook()
	}
	return body, bad, failed && fault.drop
}

func unknownAction(r *request) *apiError {
	if r.service == "ec2" || r.service == "iam" || r.service == "sts" {
		return badRequest("InvalidAction", "The action %s is not valid for this web service.", clip(r.action))
	}
	return refuse(http.StatusNotFound, "UnknownOperationException", "The operation %s is not known.", clip(r.action))
}

// pause waits for the configured latency.
func (s *Server) pause(ctx context.Context, r *request) *apiError {
	s.mu.Lock()
	d := s.opts.Latency + s.faults.latency[r.action]
	s.mu.Unlock()
	if d <= 0 {
		return nil
	}
	timer := s.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return refuse(http.StatusServiceUnavailable, "RequestTimeout", "The client has gone.")
	case <-s.closing.Done():
		return refuse(http.StatusServiceUnavailable, "Unavailable", "The service is shutting down.")
	}
}

func (s *Server) requestID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(s.opts.Seed), s.requests)
}

// versions tells the query services apart.
var versions = map[string]string{"2016-11-15": "ec2", "2010-05-08": "iam", "2011-06-15": "sts"}

// targets tells the JSON services apart.
var targets = map[string]string{"AmazonSSM": "ssm", "AWSPriceListService": "pricing", "AmazonSQS": "sqs"}

var (
	scopePattern   = regexp.MustCompile(`Credential=[^/]+/[0-9]{8}/[^/]+/([a-z0-9-]+)/aws4_request`)
	clusterPattern = regexp.MustCompile(`^/clusters/([^/]+)$`)
)

// read finds out which service and action are meant. The request is never nil,
// so that refusals can be written and journaled too.
func (s *Server) read(w http.ResponseWriter, hr *http.Request) (*request, *apiError) {
	r := &request{service: "ec2", token: hr.Header.Get("X-Amz-Security-Token")}
	if scope := scopePattern.FindStringSubmatch(hr.Header.Get("Authorization")); scope != nil {
		r.service = scope[1]
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	if err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			return r, refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "The request is longer than %d bytes", maxBody)
		}
		return r, badRequest("IncompleteBody", "The body could not be read")
	}
	r.body = string(raw)
	if target := hr.Header.Get("X-Amz-Target"); target != "" {
		return r, r.readTarget(target)
	}
	if hr.URL.Path != "" && hr.URL.Path != "/" {
		return r, r.readPath(hr.Method, hr.URL.Path)
	}
	if r.body == "" {
		r.body = hr.URL.RawQuery
	}
	return r, r.readForm()
}

func (r *request) readTarget(target string) *apiError {
	prefix, action, _ := strings.Cut(target, ".")
	service, known := targets[prefix]
	if !known {
		r.service = "ssm" // any JSON service: the refusal has their form
		return badRequest("UnknownOperationException", "The target %s is not known.", clip(target))
	}
	r.service, r.action = service, action
	if r.body == "" {
		r.body = "{}"
	}
	if !json.Valid([]byte(r.body)) {
		return badRequest("SerializationException", "The body is not JSON")
	}
	r.json = json.RawMessage(r.body)
	return nil
}

func (r *request) readPath(method, path string) *apiError {
	r.path = path
	switch {
	case method == http.MethodPut && path == "/latest/api/token":
		r.service, r.action = "imds", "PutToken"
	case method == http.MethodGet && path == "/latest/dynamic/instance-identity/document":
		r.service, r.action = "imds", "GetIdentityDocument"
	case method == http.MethodGet && clusterPattern.MatchString(path):
		r.service, r.action = "eks", "DescribeCluster"
	default:
		r.service, r.action = "eks", method+" "+clip(path)
		return refuse(http.StatusNotFound, "UnknownOperationException", "There is no %s %s here.", method, clip(path))
	}
	return nil
}

func (r *request) readForm() *apiError {
	f, bad := parseForm(r.body)
	if bad != nil {
		return bad
	}
	r.form, r.action = f, f.str("Action")
	if service, known := versions[f.str("Version")]; known {
		r.service = service
	} else if f.has("Version") || operations[r.service] == nil {
		return badRequest("NoSuchVersion", "The requested version %q is not known.", clip(f.str("Version")))
	}
	if r.action == "" {
		return badRequest("MissingAction", "The request must contain the parameter Action")
	}
	return nil
}

// timeText is the format of times in EC2's requests.
func timeText(f *form, path string) (time.Time, *apiError) {
	v := f.str(path)
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return time.Time{}, badRequest("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected a time", clip(v), path)
	}
	return t, nil
}
