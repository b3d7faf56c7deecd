// Package disruption removes nodes that are not needed any more. Today that is emptiness: nodes on
// which nothing of worth has run for the pool's consolidateAfter.
//
// Place in the flow: it reads snapshots of the cluster, chooses nodes within their pools' budgets, hides
// each from scheduling, looks again, taints it, asks the API server itself whether a pod got there, and
// deletes the NodeClaim; lifecycle then drains and ends it. What a check refuses is given back. All
// memory may be lost at any point: the first round after a restart cleans up what it finds.
package disruption
