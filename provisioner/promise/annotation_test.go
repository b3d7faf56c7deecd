package promise_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/provisioner/promise"
)

func TestAnnotationRoundTrip(t *testing.T) {
	t.Parallel()
	var pods []*corev1.Pod
	for i := range 1500 {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("%036d", i))}})
	}
	text := promise.EncodeAnnotation(pods)
	require.Less(t, len(text), 100_000, "annotations of an object may have 256 KiB in all")
	uids, err := promise.ParseAnnotation(text)
	require.NoError(t, err)
	require.Len(t, uids, 1000)
	require.Equal(t, pods[999].UID, uids[999])
	_, err = promise.ParseAnnotation("{")
	require.ErrorContains(t, err, "parse promises")
}

func TestLatePromisesInheritTheNodesName(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	table := promise.NewTable()
	table.SetNode("claim", "n1")
	late := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "late"}}
	table.Promise(late, "claim", "", now.Add(time.Minute), now)
	require.Len(t, table.ForNode("n1"), 1, "a promise made from an older picture keeps room on the node, too")
	table.DropClaim("claim")
	table.Promise(late, "claim", "", now.Add(time.Minute), now)
	require.Empty(t, table.ForNode("n1"), "names go with their claim")
}
