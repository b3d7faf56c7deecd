package ec2sim

import (
	"context"
	"crypto/md5" //nolint:gosec // SQS says so
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queue is an SQS standard queue.
type queue struct {
	messages []*queued
	// added is closed, and made anew, when a message comes.
	added chan struct{}
}

type queued struct {
	id, body  string
	sent      time.Time
	visibleAt time.Time
	received  int
	handle    string // of the newest receive; "" before the first
}

// CreateQueue makes an SQS queue; one that exists stays as it is.
func (s *Server) CreateQueue(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[name] == nil {
		s.queues[name] = &queue{added: make(chan struct{})}
	}
}

// DeleteQueue removes a queue with its messages.
func (s *Server) DeleteQueue(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, name)
}

// Send puts a message into a queue, and reports whether there is one of that name.
func (s *Server) Send(name, body string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return false
	}
	s.put(q, body)
	return true
}

// put adds a message. The caller holds mu.
func (s *Server) put(q *queue, body string) *queued {
	s.serial++
	now := s.opts.Clock.Now()
	m := &queued{id: fmt.Sprintf("%08x-0000-4000-9000-%012x", uint32(s.opts.Seed), s.serial), body: body, sent: now, visibleAt: now} //nolint:gosec // an id
	q.messages = append(q.messages, m)
	close(q.added)
	q.added = make(chan struct{})
	return m
}

// QueueLength is how many messages the queue holds, those in flight included.
func (s *Server) QueueLength(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		return len(q.messages)
	}
	return 0
}

func noQueue() *apiError {
	bad := badRequest("QueueDoesNotExist", "The specified queue does not exist.")
	bad.queryCode = "AWS.SimpleQueueService.NonExistentQueue;Sender"
	return bad
}

func (s *Server) queueURL(name string) string {
	return fmt.Sprintf("https://sqs.%s.amazonaws.com/%s/%s", s.opts.Region, s.opts.AccountID, name)
}

// queueIn finds the queue that the request's QueueUrl names.
func (s *Server) queueIn(r *request) (*queue, *apiError) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
	}
	if err := json.Unmarshal(r.json, &in); err != nil || in.QueueURL == "" {
		return nil, badRequest("MissingParameter", "The request must contain the parameter QueueUrl.")
	}
	q := s.queues[in.QueueURL[strings.LastIndexByte(in.QueueURL, '/')+1:]]
	if q == nil {
		return nil, noQueue()
	}
	return q, nil
}

func (s *Server) getQueueURL(r *request) ([]byte, *apiError) {
	var in struct{ QueueName string }
	if err := json.Unmarshal(r.json, &in); err != nil || in.QueueName == "" {
		return nil, badRequest("MissingParameter", "The request must contain the parameter QueueName.")
	}
	if s.queues[in.QueueName] == nil {
		return nil, noQueue()
	}
	return marshal(map[string]string{"QueueUrl": s.queueURL(in.QueueName)}), nil
}

func (s *Server) sendMessage(r *request) ([]byte, *apiError) {
	q, bad := s.queueIn(r)
	if bad != nil {
		return nil, bad
	}
	var in struct{ MessageBody string }
	if err := json.Unmarshal(r.json, &in); err != nil || in.MessageBody == "" {
		return nil, badRequest("MissingParameter", "The request must contain the parameter MessageBody.")
	}
	m := s.put(q, in.MessageBody)
	return marshal(map[string]string{"MessageId": m.id, "MD5OfMessageBody": sum(m.body)}), nil
}

// receiving is what a ReceiveMessage asks for.
type receiving struct {
	MaxNumberOfMessages int
	VisibilityTimeout   *int
	WaitTimeSeconds     int
}

func (s *Server) receiveMessage(r *request) ([]byte, *apiError) {
	q, bad := s.queueIn(r)
	if bad != nil {
		return nil, bad
	}
	var in receiving
	if err := json.Unmarshal(r.json, &in); err != nil {
		return nil, badRequest("InvalidParameterValue", "The request cannot be read.")
	}
	if in.MaxNumberOfMessages == 0 {
		in.MaxNumberOfMessages = 1
	}
	if in.MaxNumberOfMessages < 1 || in.MaxNumberOfMessages > 10 {
		return nil, badRequest("InvalidParameterValue", "Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", in.MaxNumberOfMessages)
	}
	if in.WaitTimeSeconds < 0 || in.WaitTimeSeconds > 20 {
		return nil, badRequest("InvalidParameterValue", "Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", in.WaitTimeSeconds)
	}
	hidden := 30 * time.Second
	if in.VisibilityTimeout != nil {
		if *in.VisibilityTimeout < 0 || *in.VisibilityTimeout > 43200 {
			return nil, badRequest("InvalidParameterValue", "Value %d for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200, if provided.", *in.VisibilityTimeout)
		}
		hidden = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	now := s.opts.Clock.Now()
	list := []map[string]any{}
	for _, m := range q.messages {
		if len(list) == in.MaxNumberOfMessages {
			break
		}
		if m.visibleAt.After(now) {
			continue
		}
		m.received++
		m.visibleAt = now.Add(hidden)
		m.handle = fmt.Sprintf("handle-%s-%d", m.id, m.received)
		list = append(list, map[string]any{
			"MessageId": m.id, "ReceiptHandle": m.handle, "Body": m.body, "MD5OfBody": sum(m.body),
			"Attributes": map[string]string{
				"SentTimestamp": strconv.FormatInt(m.sent.UnixMilli(), 10), "ApproximateReceiveCount": strconv.Itoa(m.received),
			},
		})
	}
	if len(list) == 0 {
		return []byte("{}"), nil
	}
	return marshal(map[string]any{"Messages": list}), nil
}

func (s *Server) deleteMessage(r *request) ([]byte, *apiError) {
	q, bad := s.queueIn(r)
	if bad != nil {
		return nil, bad
	}
	var in struct{ ReceiptHandle string }
	if err := json.Unmarshal(r.json, &in); err != nil || in.ReceiptHandle == "" {
		return nil, badRequest("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
	}
	q.remove(map[string]bool{in.ReceiptHandle: true})
	return []byte("{}"), nil
}

// remove deletes by handle. One of a message that is gone is no error, as with SQS, and one that is not the
// newest deletes nothing.
func (q *queue) remove(handles map[string]bool) {
	q.messages = slices.DeleteFunc(q.messages, func(m *queued) bool { return m.handle != "" && handles[m.handle] })
}

func (s *Server) deleteMessageBatch(r *request) ([]byte, *apiError) {
	q, bad := s.queueIn(r)
	if bad != nil {
		return nil, bad
	}
	var in struct {
		Entries []struct{ Id, ReceiptHandle string } //nolint:revive // the wire's name
	}
	if err := json.Unmarshal(r.json, &in); err != nil {
		return nil, badRequest("InvalidParameterValue", "The request cannot be read.")
	}
	switch n := len(in.Entries); {
	case n == 0:
		return nil, batchFault("EmptyBatchRequest", "There should be at least one DeleteMessageBatchRequestEntry in the request.")
	case n > 10:
		return nil, batchFault("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent %d.", n)
	}
	handles, ids := map[string]bool{}, map[string]bool{}
	successful, failed := []map[string]any{}, []map[string]any{}
	for _, e := range in.Entries {
		if ids[e.Id] {
			return nil, batchFault("BatchEntryIdsNotDistinct", "Id %s repeated.", clip(e.Id))
		}
		ids[e.Id] = true
		if !strings.HasPrefix(e.ReceiptHandle, "handle-") {
			failed = append(failed, map[string]any{"Id": e.Id, "Code": "ReceiptHandleIsInvalid", "Message": "The input receipt handle is invalid.", "SenderFault": true})
			continue
		}
		handles[e.ReceiptHandle] = true
		successful = append(successful, map[string]any{"Id": e.Id})
	}
	q.remove(handles)
	return marshal(map[string]any{"Successful": successful, "Failed": failed}), nil
}

func batchFault(code, format string, args ...any) *apiError {
	bad := badRequest(code, format, args...)
	bad.queryCode = "AWS.SimpleQueueService." + code + ";Sender"
	return bad
}

func sum(text string) string {
	digest := md5.Sum([]byte(text)) //nolint:gosec // SQS says so
	return hex.EncodeToString(digest[:])
}

// awaitMessages is the long poll: it holds a ReceiveMessage until there is something to receive, or the
// time that it allows is over.
func (s *Server) awaitMessages(ctx context.Context, r *request) {
	var in receiving
	if json.Unmarshal(r.json, &in) != nil || in.WaitTimeSeconds <= 0 || in.WaitTimeSeconds > 20 { // refused later
		return
	}
	deadline := s.opts.Clock.NewTimer(time.Duration(in.WaitTimeSeconds) * time.Second)
	defer deadline.Stop()
	for {
		ready, added, next := s.receivable(r)
		if ready {
			return
		}
		again := s.opts.Clock.NewTimer(next)
		select {
		case <-added:
		case <-again.C():
		case <-deadline.C():
			again.Stop()
			return
		case <-ctx.Done():
			again.Stop()
			return
		case <-s.closing.Done():
			again.Stop()
			return
		}
		again.Stop()
	}
}

// receivable reports whether the request need not wait; if it must, added tells of new messages, and next
// is when one that is in flight shows again.
func (s *Server) receivable(r *request) (ready bool, added <-chan struct{}, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, bad := s.queueIn(r)
	if bad != nil {
		return true, nil, 0
	}
	now := s.opts.Clock.Now()
	next = 20 * time.Second
	for _, m := range q.messages {
		if !m.visibleAt.After(now) {
			return true, nil, 0
		}
		next = min(next, m.visibleAt.Sub(now))
	}
	return false, q.added, next
}
