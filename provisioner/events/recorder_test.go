package events_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/provisioner/events"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func drain(sink *record.FakeRecorder) []string {
	var out []string
	for {
		select {
		case e := <-sink.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func TestRepetitionsAreKeptBack(t *testing.T) {
	t.Parallel()
	sink, clock := record.NewFakeRecorder(100), clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r := events.NewRecorder(sink, clock)
	r.FailedScheduling(pod("a"), "no nodepools found")
	r.FailedScheduling(pod("a"), "no nodepools found")
	r.FailedScheduling(pod("b"), "no nodepools found")
	require.Len(t, drain(sink), 2, "one event per pod")
	clock.SetTime(time.Unix(1000, 0).Add(5*time.Minute + time.Second))
	r.FailedScheduling(pod("a"), "no nodepools found")
	require.Equal(t, []string{"Warning FailedScheduling Failed to schedule pod, no nodepools found"}, drain(sink))
}

func TestNominatedIsRateLimited(t *testing.T) {
	t.Parallel()
	sink := record.NewFakeRecorder(100)
	r := events.NewRecorder(sink, clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	for i := range 50 {
		r.Nominated(pod(strings.Repeat("x", i+1)), "claim", "")
	}
	got := drain(sink)
	require.GreaterOrEqual(t, len(got), 10)
	require.Less(t, len(got), 20)
	require.Equal(t, "Normal Nominated Pod should schedule on: nodeclaim/claim", got[0])
}

func TestLongMessagesAreCut(t *testing.T) {
	t.Parallel()
	sink := record.NewFakeRecorder(1)
	events.NewRecorder(sink, clocktesting.NewFakePassiveClock(time.Unix(1000, 0))).FailedScheduling(pod("a"), strings.Repeat("ä", 2000))
	event := strings.TrimPrefix(drain(sink)[0], "Warning FailedScheduling ")
	require.LessOrEqual(t, len(event), 1024)
	require.True(t, strings.HasSuffix(event, "..."))
}
