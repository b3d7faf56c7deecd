// Package disruption removes nodes that are not needed, cost too much, are not what their pool asks for
// any more, or are old: emptiness, consolidation, drift, expiration.
//
// Place in the flow: each round reads a snapshot of the cluster, and chooses nodes within their pools'
// budgets. They are hidden from scheduling; then a plan for their pods is made on a newer snapshot and
// confirmed by the scheduler's filters (Planner, the provisioner's facade); then they are tainted, and
// the API server itself is asked which pods are there. The plan's places are kept for the pods to come,
// its new nodes are launched, and when those are ready the old NodeClaims are deleted; lifecycle drains
// and ends them. What a check refuses is given back. All memory may be lost at any point: the first round
// after a restart takes the marks off, and replacements that nobody needs are consolidated.
//
// File by file: controller.go has the round, emptiness.go nodes without pods, consolidate.go the search for
// what is cheaper, drift.go what has to be replaced, exchange.go how nodes are exchanged, repair.go which are
// given up, static.go how pools with a fixed number of nodes keep it. Below it, pure:
// budget, candidate, method.
package disruption
