package ec2sim

import (
	"container/heap"
	"time"
)

// dueQueue holds what will happen, earliest first; equal times keep their order.
type dueQueue struct {
	entries dueHeap
	serial  uint64
}

type dueEntry struct {
	at     time.Time
	serial uint64
	act    func()
}

func (q *dueQueue) push(at time.Time, act func()) {
	q.serial++
	heap.Push(&q.entries, dueEntry{at, q.serial, act})
}

func (q *dueQueue) next() (time.Time, bool) {
	if len(q.entries) == 0 {
		return time.Time{}, false
	}
	return q.entries[0].at, true
}

func (q *dueQueue) pop(now time.Time) (func(), bool) {
	if len(q.entries) == 0 || q.entries[0].at.After(now) {
		return nil, false
	}
	return heap.Pop(&q.entries).(dueEntry).act, true
}

type dueHeap []dueEntry

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].serial < h[j].serial
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueEntry)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = dueEntry{}
	*h = (*h)[:len(*h)-1]
	return last
}
