package message_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/interruption/message"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string
		want message.Kind
		ids  []string
	}{
		"IN-05 spot":                 {"spot-interruption.json", message.SpotInterrupted, []string{"i-0a11b22c33d44e551"}},
		"IN-11 rebalance":            {"rebalance-recommendation.json", message.RebalanceRecommendation, []string{"i-0a11b22c33d44e552"}},
		"IN-12 two entities":         {"scheduled-change.json", message.ScheduledChange, []string{"i-0a11b22c33d44e553", "i-0a11b22c33d44e554"}},
		"IN-13 another category":     {"health-ignored-category.json", message.NoOp, nil},
		"IN-14 another service":      {"health-ignored-service.json", message.NoOp, nil},
		"IN-15 stopping":             {"state-change-stopping.json", message.InstanceStopped, []string{"i-0a11b22c33d44e555"}},
		"stopped":                    {"state-change-stopped.json", message.InstanceStopped, []string{"i-0a11b22c33d44e555"}},
		"shutting down":              {"state-change-shutting-down.json", message.InstanceTerminated, []string{"i-0a11b22c33d44e555"}},
		"IN-16 terminated":           {"state-change-terminated.json", message.InstanceTerminated, []string{"i-0a11b22c33d44e555"}},
		"IN-17 running":              {"state-change-running.json", message.NoOp, nil},
		"pending":                    {"state-change-pending.json", message.NoOp, nil},
		"IN-18 capacity reservation": {"capacity-reservation-interruption.json", message.CapacityReservationInterrupted, []string{"i-0a11b22c33d44e556"}},
		"IN-19 resources as a text":  {"capacity-reservation-interruption-string-resources.json", message.CapacityReservationInterrupted, []string{"i-0a11b22c33d44e557"}},
		"IN-20 another version":      {"wrong-version.json", message.NoOp, nil},
		"IN-21 another detail-type":  {"unknown-detail-type.json", message.NoOp, nil},
		"JSON that is no event":      {"json-without-envelope.json", message.NoOp, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(filepath.Join("testdata", tc.file))
			require.NoError(t, err)
			got, err := message.Parse(string(raw))
			require.NoError(t, err)
			require.Equal(t, tc.want, got.Kind)
			require.Equal(t, tc.ids, got.Instances)
			if tc.want != message.NoOp {
				require.Equal(t, 2026, got.Time.Year())
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"malformed-truncated.json.txt", "malformed-text.json.txt"} { // IN-22
		raw, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		_, err = message.Parse(string(raw))
		require.ErrorContains(t, err, "read message", file)
	}
	_, err := message.Parse(`{"version":"0","source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation","detail":7}`)
	require.ErrorContains(t, err, `read detail of "EC2 Instance Rebalance Recommendation"`)
	got, err := message.Parse("") // IN-23
	require.NoError(t, err)
	require.Equal(t, message.Message{Kind: message.NoOp}, got)
}

func TestOnlyInstancesCount(t *testing.T) {
	t.Parallel()
	got, err := message.Parse(`{"version":"0","source":"aws.health","detail-type":"AWS Health Event","time":"soon","detail":{"service":"EC2","eventTypeCategory":"scheduledChange",
		"affectedEntities":[{"entityValue":"h-1"},{"entityValue":"i-1"},{"entityValue":"i-1"},{"entityValue":"vol-1"}]}}`)
	require.NoError(t, err)
	require.Equal(t, message.Message{Kind: message.ScheduledChange, Instances: []string{"i-1"}, Time: time.Time{}}, got)
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) == 0 {
		f.Fatal("no samples", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, err := message.Parse(body)
		if err != nil {
			return
		}
		if got.Kind == message.NoOp && len(got.Instances) > 0 {
			t.Fatal("nothing to do, and instances to do it to")
		}
		for _, id := range got.Instances {
			if !strings.HasPrefix(id, "i-") {
				t.Fatalf("%q is no instance", id)
			}
		}
	})
}
