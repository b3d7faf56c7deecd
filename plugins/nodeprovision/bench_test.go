package nodeprovision

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// big is a table with 20,000 promises on 1,000 nodes, and the snapshot with those nodes.
func big(tb testing.TB) (*fixture, []*corev1.Pod) {
	nodes := make([]*corev1.Node, 1000)
	for i := range nodes {
		nodes[i] = makeNode(fmt.Sprint("n", i), "64", initialized)
	}
	f := newFixture(tb, ``, shippedOrder, nil, nodes...)
	pods := make([]*corev1.Pod, 20000)
	for i := range pods {
		pods[i] = makePod(fmt.Sprint("p", i), "1")
		f.table.Promise(pods[i], fmt.Sprint("c", i/20), fmt.Sprint("n", i/20), time.Time{}, epoch)
	}
	return f, pods
}

func BenchmarkPostFilter(b *testing.B) {
	f, pods := big(b)
	none := statuses("", 0, "")
	state := framework.NewCycleState()
	took := make([]time.Duration, 0, 1<<20)
	i := 0
	for b.Loop() {
		pod := pods[i%len(pods)]
		if i%2 == 0 {
			pod = makePod(fmt.Sprint("new", i), "1")
		}
		began := time.Now()
		f.PostFilter(b.Context(), state, pod, none)
		took = append(took, time.Since(began))
		i++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

func BenchmarkFilter(b *testing.B) {
	guest := makePod("guest", "1")
	for name, node := range map[string]string{"heldNode": "n1", "otherNode": "free"} {
		b.Run(name, func(b *testing.B) {
			f, _ := big(b)
			free := framework.NewNodeInfo()
			free.SetNode(makeNode("free", "64"))
			var info = free
			if node != "free" {
				info = framework.NewNodeInfo()
				info.SetNode(makeNode(node, "64"))
				for i := range 15 {
					info.AddPod(makePod(fmt.Sprint("there", i), "1"))
				}
			}
			state := framework.NewCycleState()
			_, status := f.PreFilter(b.Context(), state, guest, nil)
			require.True(b, status.IsSuccess())
			b.ReportAllocs()
			for b.Loop() {
				f.Filter(b.Context(), state, guest, info)
			}
		})
	}
}
