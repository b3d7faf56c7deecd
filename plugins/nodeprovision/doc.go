// Package nodeprovision is Berth's one scheduler plugin. It asks for a node when a pod fits nowhere,
// answers for the pod while the node is on its way, and keeps the node's room for the pods that it was
// bought for.
//
// Place in the flow: the scheduling cycle calls it; it looks into promise.Table and asks the facade,
// which batches, solves and launches. Nothing here waits, searches or does I/O. It must stand first in
// multiPoint, so that its refusals are the ones that the queue records and its hints wake the pods.
package nodeprovision
