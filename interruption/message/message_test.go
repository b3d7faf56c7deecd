package message_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/interruption/message"
)

func sample(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(b)
}

func TestSamples(t *testing.T) {
	t.Parallel()
	at := func(clock string) time.Time {
		v, err := time.Parse(time.RFC3339, "2026-05-04T"+clock+"Z")
		require.NoError(t, err)
		return v
	}
	tests := map[string]struct {
		files []string
		want  message.Message // without ID
	}{
		"IN-05 spot warning": {
			[]string{"spot-interruption.json"},
			message.Message{Kind: message.SpotInterrupted, Instances: []string{"i-0a11b22c33d44e551"}, Time: at("10:15:30")},
		},
		"IN-11 rebalance": {
			[]string{"rebalance-recommendation.json"},
			message.Message{Kind: message.RebalanceRecommendation, Instances: []string{"i-0a11b22c33d44e552"}, Time: at("10:16:00")},
		},
		"IN-12 two entities": {
			[]string{"scheduled-change.json"},
			message.Message{Kind: message.ScheduledChange, Instances: []string{"i-0a11b22c33d44e553", "i-0a11b22c33d44e554"}, Time: at("10:17:00")},
		},
		"IN-13 health category issue": {
			[]string{"health-ignored-category.json"},
			message.Message{Kind: message.NoOp, Time: at("10:17:30")},
		},
		"IN-14 health service RDS": {
			[]string{"health-ignored-service.json"},
			message.Message{Kind: message.NoOp, Time: at("10:17:45")},
		},
		"IN-15 stopping and stopped": {
			[]string{"state-change-stopping.json", "state-change-stopped.json"},
			message.Message{Kind: message.InstanceStopped, Instances: []string{"i-0a11b22c33d44e555"}, Time: at("10:18:00")},
		},
		"IN-16 shutting down and terminated": {
			[]string{"state-change-shutting-down.json", "state-change-terminated.json"},
			message.Message{Kind: message.InstanceTerminated, Instances: []string{"i-0a11b22c33d44e555"}, Time: at("10:18:00")},
		},
		"IN-17 states that go nowhere": {
			[]string{"state-change-running.json", "state-change-pending.json"},
			message.Message{Kind: message.NoOp, Time: at("10:18:00")},
		},
		"IN-18 capacity reservation": {
			[]string{"capacity-reservation-interruption.json"},
			message.Message{Kind: message.CapacityReservationInterrupted, Instances: []string{"i-0a11b22c33d44e556"}, Time: at("10:19:00"), Deadline: at("10:21:00")},
		},
		"IN-19 resources as a string": {
			[]string{"capacity-reservation-interruption-string-resources.json"},
			message.Message{Kind: message.CapacityReservationInterrupted, Instances: []string{"i-0a11b22c33d44e557"}, Time: at("10:19:00"), Deadline: at("10:21:00")},
		},
		"IN-20 wrong version":       {[]string{"wrong-version.json"}, message.Message{Kind: message.NoOp, Time: at("10:20:30")}},
		"IN-21 unknown detail-type": {[]string{"unknown-detail-type.json"}, message.Message{Kind: message.NoOp, Time: at("10:20:00")}},
		"JSON without an envelope":  {[]string{"json-without-envelope.json"}, message.Message{Kind: message.NoOp}},
	}
	seen := map[string]bool{"sqs-receive-message-response.json": true, "malformed-truncated.json.txt": true, "malformed-text.json.txt": true}
	for name, tc := range tests {
		for _, file := range tc.files {
			seen[file] = true
			t.Run(name+"/"+file, func(t *testing.T) {
				t.Parallel()
				got, err := message.Parse(sample(t, file))
				require.NoError(t, err)
				got.ID = ""
				require.Equal(t, tc.want, got)
			})
		}
	}
	entries, err := os.ReadDir("testdata")
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, e.IsDir() || seen[e.Name()], "sample %s is read by no test", e.Name())
	}
}

// The body as SQS hands it out, within its response.
func TestBodyOfAReceiveResponse(t *testing.T) {
	t.Parallel()
	var response struct{ Messages []struct{ Body string } }
	require.NoError(t, json.Unmarshal([]byte(sample(t, "sqs-receive-message-response.json")), &response))
	got, err := message.Parse(response.Messages[0].Body)
	require.NoError(t, err)
	require.Equal(t, message.SpotInterrupted, got.Kind)
	require.Equal(t, "5b0f2c1e-7a44-4d0b-9c36-0d1f6a2b9e01", got.ID)
}

func spot(detail string) string {
	return `{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":` + detail + `}`
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ body, wantErr string }{
		"IN-22 truncated":              {sample(t, "malformed-truncated.json.txt"), "decode body"},
		"plain text":                   {sample(t, "malformed-text.json.txt"), "not a JSON object"},
		"null":                         {"null", "not a JSON object"},
		"a list":                       {"[1]", "not a JSON object"},
		"two objects":                  {"{} {}", "decode body"},
		"version is a number":          {`{"version":0}`, "version is not a string"},
		"source is a list":             {`{"source":["aws.ec2"]}`, "source is not a string"},
		"no detail":                    {`{"version":"0","source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation"}`, "detail is not a JSON object"},
		"detail is a string":           {spot(`"i-0a11b22c33d44e551"`), "detail is not a JSON object"},
		"no id":                        {spot(`{}`), `instance-id "" is no instance id`},
		"null id":                      {spot(`{"instance-id":null}`), `instance-id "" is no instance id`},
		"id is a number":               {spot(`{"instance-id":7}`), "instance-id is not a string"},
		"id is an ARN":                 {spot(`{"instance-id":"arn:aws:ec2:eu-west-1a:instance/i-0a11b22c33d44e551"}`), "is no instance id"},
		"id of another form":           {spot(`{"instance-id":"i-0A11B22C33D44E551"}`), "is no instance id"},
		"id in another case of key":    {spot(`{"Instance-Id":"i-0a11b22c33d44e551"}`), "is no instance id"},
		"state is a number":            {`{"version":"0","source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-0a11b22c33d44e551","state":1}}`, "state is not a string"},
		"entities are no list":         {`{"version":"0","source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":{}}}`, "affectedEntities is not a list"},
		"larger than SQS takes":        {`{"a":"` + strings.Repeat("x", message.MaxBytes) + `"}`, "too large"},
		"nested deeper than is decent": {strings.Repeat(`{"a":`, 50_000), "decode body"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := message.Parse(tc.body)
			require.ErrorContains(t, err, tc.wantErr)
			require.Less(t, len(err.Error()), 300, "what strangers send must not fill the log")
			require.Zero(t, got)
		})
	}
}

func TestTolerated(t *testing.T) {
	t.Parallel()
	one := []string{"i-0a11b22c33d44e551"}
	tests := map[string]struct {
		body string
		want message.Message
	}{
		"IN-23 empty body": {"", message.Message{Kind: message.NoOp}},
		"blank body":       {" \n", message.Message{Kind: message.NoOp}},
		"empty object":     {"{}", message.Message{Kind: message.NoOp}},
		"no time":          {spot(`{"instance-id":"i-0a11b22c33d44e551"}`), message.Message{Kind: message.SpotInterrupted, Instances: one}},
		"unknown fields":   {spot(`{"instance-id":"i-0a11b22c33d44e551","new":{"a":[1]}},"also-new":[{}]`), message.Message{Kind: message.SpotInterrupted, Instances: one}},
		"old short id":     {spot(`{"instance-id":"i-0a11b22c"}`), message.Message{Kind: message.SpotInterrupted, Instances: []string{"i-0a11b22c"}}},
		"useless wrong types": {
			`{"id":4,"time":5,"account":6,"region":{},"resources":7,` + spot(`{"instance-id":"i-0a11b22c33d44e551","instance-action":3}`)[1:],
			message.Message{Kind: message.SpotInterrupted, Instances: one},
		},
		"time out of form": {`{"time":"yesterday",` + spot(`{"instance-id":"i-0a11b22c33d44e551"}`)[1:], message.Message{Kind: message.SpotInterrupted, Instances: one}},
		"state in capitals": {
			`{"version":"0","source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-0a11b22c33d44e551","state":"STOPPING"}}`,
			message.Message{Kind: message.InstanceStopped, Instances: one},
		},
		"entities that are no instances, twice or broken": {
			`{"version":"0","source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[3,{"entityValue":4},{"entityValue":"vol-1"},{"entityValue":"i-0a11b22c33d44e551"},{"entityValue":"i-0a11b22c33d44e551"}]}}`,
			message.Message{Kind: message.ScheduledChange, Instances: one},
		},
		"health without entities": {
			`{"version":"0","source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"scheduledChange"}}`,
			message.Message{Kind: message.NoOp},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := message.Parse(tc.body)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func FuzzParse(f *testing.F) {
	entries, err := os.ReadDir("testdata")
	require.NoError(f, err)
	for _, e := range entries {
		if !e.IsDir() {
			f.Add(sample(f, e.Name()))
		}
	}
	f.Add(spot(`{"instance-id":"i-0a11b22c33d44e551"}`))
	id := regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)
	f.Fuzz(func(t *testing.T, body string) {
		m, err := message.Parse(body)
		if err != nil {
			require.Zero(t, m)
			return
		}
		require.Contains(t, message.Kinds(), m.Kind)
		require.Equal(t, m.Kind == message.NoOp, len(m.Instances) == 0, "%+v", m)
		seen := map[string]bool{}
		for _, i := range m.Instances {
			require.Regexp(t, id, i)
			require.False(t, seen[i])
			seen[i] = true
		}
		again, err := message.Parse(body)
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
